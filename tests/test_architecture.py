"""The shape of the package, kept by reading its imports: which way they run, and which library lives where."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fhjax

PACKAGE = Path(fhjax.__file__).parent

# A room may import itself, the foundations, and the rooms named here. docs/architecture.md draws this picture.
FOUNDATIONS = {"records", "errors", "entrance", "files"}
MAY_IMPORT = {
    # "+" of sums calls the rules of merging, and a printed record how it looks, when used and not when imported
    "records": {"errors", "merging", "shown"},
    "shown": set(),
    "merging": {"records", "errors"},
    "errors": set(),
    "entrance": {"errors"},
    "files": {"errors"},
    "survey": FOUNDATIONS,
    "sharding": FOUNDATIONS,
    "model": FOUNDATIONS | {"sharding"},
    "privacy": FOUNDATIONS | {"model", "sharding"},
    "caps": FOUNDATIONS | {"model", "privacy"},
    "assessment": FOUNDATIONS | {"survey", "model", "privacy"},
    "trimming": FOUNDATIONS | {"assessment", "survey", "model", "privacy", "caps"},
    "release": FOUNDATIONS | {"model", "privacy"},
    "plrv": FOUNDATIONS | {"model", "privacy", "release"},
    "report": FOUNDATIONS | {"privacy", "assessment", "plrv"},
    "cli": FOUNDATIONS | {"survey", "model", "privacy", "assessment", "caps", "trimming", "release", "plrv", "report"},
}
# library -> the rooms that may import it
LIVES_IN = {
    "pandas": {"survey", "report", "cli", "shown"},
    "ibis": {"survey", "cli"},
    "duckdb": {"survey", "cli"},
    "pyreadstat": {"survey"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "optax": {"caps"},
}


def imports_of(path: Path) -> set[str]:
    """Dotted names that a module imports, relative ones resolved against the package."""
    return imports_of_file(path, ("fhjax", *path.relative_to(PACKAGE).with_suffix("").parts))


def imports_of_file(path: Path, module: tuple[str, ...] = ()) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module[: len(module) - node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            found.update(f"{name}.{alias.name}" for alias in node.names)
    return found


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    room = room_of(path)
    assert room in MAY_IMPORT, f"{room} is a new room: say in MAY_IMPORT and docs/architecture.md what it may import"
    rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("fhjax.")}
    rooms -= {"__version__"}
    assert rooms <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    libraries = {name.split(".")[0] for name in imports_of(path)}
    for library in libraries & LIVES_IN.keys():
        assert room_of(path) in LIVES_IN[library], f"{library} belongs in {LIVES_IN[library]}"


def test_the_walk_saw_the_package() -> None:
    assert len(MODULES) > 15
    assert "fhjax.records.AreaData" in imports_of(PACKAGE / "model" / "posterior.py")
    assert "fhjax.survey.arrays" in {module_of(path) for path in MODULES}


def module_of(path: Path) -> str:
    return ".".join(("fhjax", *path.relative_to(PACKAGE).with_suffix("").parts))


def test_every_module_is_reached_from_outside() -> None:
    """From a public name, a verb of the command line, a benchmark or an experiment; what only tests use is theirs."""
    modules = {module_of(path): path for path in MODULES if path.name != "__init__.py"}

    def named(found: set[str]) -> set[str]:
        return {name for module in found for name in (module, module.rpartition(".")[0]) if name in modules}

    waiting = set(fhjax._PUBLIC.values()) | {name for name in modules if name.startswith("fhjax.cli.")}
    for folder in ("benchmarks", "experiments"):
        for path in (PACKAGE.parent / folder).glob("*.py"):
            waiting |= named(imports_of_file(path))
    reached: set[str] = set()
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= named(imports_of(modules[module])) - reached
    assert set(modules) - reached == set()


HEAVY = "{'jax', 'numpy', 'ibis', 'pandas', 'matplotlib', 'duckdb'} & set(sys.modules)"


@pytest.mark.parametrize("statement", ["import fhjax", "from fhjax.cli.main import build_parser; build_parser()"])
def test_importing_the_package_is_light(statement: str) -> None:
    """Neither the package nor the parser of all verbs loads JAX, the table engine or the plotting library."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(sorted({HEAVY}))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("order", ["import fhjax, jax", "import jax, fhjax"])
def test_float64_holds_whichever_is_imported_first(order: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{order}; print(jax.numpy.asarray(1.0).dtype)"],
        capture_output=True, text=True, check=True, env=os.environ | {"JAX_ENABLE_X64": "0"},
    )  # fmt: skip
    assert done.stdout.strip() == "float64"
