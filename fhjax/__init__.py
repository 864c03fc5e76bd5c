"""fhjax: how much privacy does a Fay-Herriot release already carry?"""

import jax

# Importing makes no arrays; it only makes those made later float64. float32 understated rho in most areas (docs/architecture.md).
jax.config.update("jax_enable_x64", True)

__version__ = "0.1.0"
