"""Experiments: scripts that write committed results to ``experiments/results`` from files named on the command line."""
