"""``fhjax doctor``: which versions and devices are here, and is arithmetic float64?"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform

import fhjax
from fhjax.cli.compiled import folder

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "pandas", "ibis-framework", "duckdb", "sqlglot", "pyreadstat", "optax")


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("doctor", help="versions, devices, float64", description=__doc__)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the facts; exit 3 when arithmetic is not float64, because then no rho can be trusted."""
    import jax
    import jax.numpy as jnp

    print(f"fhjax {fhjax.__version__} on Python {platform.python_version()} ({platform.system()} {platform.machine()})")
    for package in PACKAGES:
        try:
            print(f"  {package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"  {package} is missing: reinstall fhjax")
    print("devices: " + ", ".join(f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()))
    print(f"compile cache: {_kept()}")
    smallest_step = float(jnp.asarray(1.0) + 2.0**-52 - 1.0)
    if smallest_step != 2.0**-52:
        print("float64: NO. Something turned jax_enable_x64 off after fhjax was imported.")
        return 3
    print("float64: yes")
    return 0


def _kept() -> str:
    where = folder()
    if where is None:
        return "off"
    files = [path for path in where.glob("*") if path.is_file()] if where.is_dir() else []
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"{where} ({len(files):,} files, {size:.1f} MB; no data in them; delete the folder at any time)"
