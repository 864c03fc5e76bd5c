"""From a target rho to weight caps: trimmed sums, closed forms, search, certificate, frontier."""
