"""No command overwrites what it reads or one result with another; an interrupt at any stage changes nothing."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fhjax.cli import arguments
from fhjax.cli.main import build_parser, main
from fhjax.cli.progress import Steps
from fhjax.files import Staging, same_file

VERBS: dict[str, list[str]] = {
    "direct": ["S", "--area", "area", "--weight", "w", "--outcome", "y = 1", "--psu", "hh", "--quiet"],
    "fit": ["A"],
    "guarantee": ["A", "--model-variance", "0.001", "--delta", "1e-6"],
    "report": ["S", "--area", "area", "--weight", "w", "--outcome", "y = 1", "--psu", "hh", "--quiet"],
    "trim": [
        "S",
        "--area",
        "area",
        "--weight",
        "w",
        "--outcome",
        "y = 1",
        "--target-rho",
        "5",
        "--variances",
        "frozen",
        "--quiet",
    ],
    "check": ["A", "--model-variance", "0.001", "--draws", "1000", "--level", "1e-9", "--quiet"],
    "audit": ["D", "--area-level", "A", "--model-variance", "0.001", "--level", "1e-9"],
    "release": ["A", "--model-variance", "0.001", "--delta", "1e-6"],
}
REQUIRED = {"direct": ["--out"], "fit": ["--out"], "guarantee": ["--out"], "report": ["--out"], "trim": ["--out"],
            "check": ["--out"], "audit": ["--out"], "release": ["--out", "--guarantee"]}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    n = 240
    rng = np.random.default_rng(3)
    area = np.arange(n) % 6
    frame = pd.DataFrame({"area": [f"a{a}" for a in area], "w": 5.0 + rng.gamma(2.0, 9.0, n).round(2),
                          "hh": [f"h{i // 12}-{a}" for i, a in enumerate(area)],
                          "y": (rng.random(n) < 0.15 + 0.08 * area).astype(int)})  # fmt: skip
    frame.to_csv(tmp_path / "S.csv", index=False)
    areas = [f"a{a}" for a in range(6)]
    level = pd.DataFrame({"area": areas, "y": np.linspace(0.1, 0.4, 6), "sampling_variance": 1e-3, "sensitivity": 0.02})
    level.to_csv(tmp_path / "A.csv", index=False)
    draws = np.linspace(0.1, 0.4, 6) + 0.02 * rng.normal(size=(60, 6))
    pd.DataFrame(draws, columns=areas).to_csv(tmp_path / "D.csv", index=False)
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def command(verb: str, folder: Path, given: dict[str, str]) -> list[str]:
    argv = [verb, *(str(folder / f"{word}.csv") if word in ("S", "A", "D") else word for word in VERBS[verb])]
    for option in REQUIRED[verb]:
        given = {option: str(folder / f"new{option}"), **given}
    return argv + [word for option, value in given.items() for word in (option, value)]


def path_options(verb: str) -> tuple[list[str], list[str]]:
    """Options of a verb that name files it reads, and that it writes, by their type alone."""
    parser = build_parser()._subparsers._group_actions[0].choices[verb]  # type: ignore[union-attr, index]
    assert isinstance(parser, argparse.ArgumentParser)
    reads = [a.option_strings[0] for a in parser._actions if a.type is arguments.InFile and a.option_strings]
    writes = [a.option_strings[0] for a in parser._actions if a.type in (arguments.OutFile, arguments.OutFolder)]
    return reads, writes


PAIRS = [
    (verb, one, other)
    for verb in VERBS
    for reads, writes in [path_options(verb)]
    for one, other in itertools.combinations([*reads, *writes, "FILE"], 2)
    if one in writes or other in writes
]


@pytest.mark.parametrize(("verb", "one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
@pytest.mark.parametrize("link", [False, True], ids=["same", "link"])
def test_two_paths_of_a_command_are_never_one(
    folder: Path, capsys, verb: str, one: str, other: str, link: bool
) -> None:
    if {one, other} == {"--fit", "--model-variance"}:
        return
    main_file = folder / ("S.csv" if VERBS[verb][0] == "S" else "A.csv" if VERBS[verb][0] == "A" else "D.csv")
    target = main_file if "FILE" in (one, other) else folder / "shared.csv"
    if target != main_file:
        target.write_bytes((folder / "A.csv").read_bytes())
    second = target
    if link:
        second = folder / "link.csv"
        second.symlink_to(target)
    before = snapshot(folder)
    given = {name: str(path) for name, path in ((one, target), (other, second)) if name != "FILE"}
    try:
        code = main(command(verb, folder, given))
    except SystemExit as stop:  # options that argparse refuses together
        code = int(stop.code or 0)
    assert code == 2, capsys.readouterr()
    assert snapshot(folder) == before
    assert "Traceback" not in capsys.readouterr().err


def test_every_path_option_has_a_type() -> None:
    """A new option that names a file is found by its metavar if somebody forgets its type."""
    for verb, parser in build_parser()._subparsers._group_actions[0].choices.items():  # type: ignore[union-attr]
        for action in parser._actions:
            name = str(action.metavar or "")
            if name.startswith(("FILE", "DIR", "DRAWS")):
                assert action.type in (arguments.InFile, arguments.OutFile, arguments.OutFolder), (verb, action.dest)


def test_one_path_in_several_spellings(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x")
    (tmp_path / "hard.csv").hardlink_to(file)
    assert same_file(file, tmp_path / "." / "b" / ".." / "a.csv")
    assert same_file(file, tmp_path / "hard.csv")
    assert same_file(tmp_path / "new", f"{tmp_path}//new")
    assert not same_file(file, tmp_path / "other.csv")


def remembered(monkeypatch: pytest.MonkeyPatch, module, name: str) -> None:
    """A function that is called with the same things again and again gives what it gave."""
    original, results = getattr(module, name), []

    def call(*args, **kwargs):
        if not results:
            results.append(original(*args, **kwargs))
        return results[0]

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize(
    ("verb", "number"),
    [("direct", signal.SIGINT), ("direct", signal.SIGTERM), ("fit", signal.SIGINT), ("guarantee", signal.SIGINT),
     ("audit", signal.SIGINT), ("release", signal.SIGTERM), ("report", signal.SIGINT), ("trim", signal.SIGINT),
     ("check", signal.SIGTERM)],
)  # fmt: skip
def test_an_interrupt_at_every_stage_leaves_the_folder_as_it_was(
    folder: Path, capsys, monkeypatch, verb: str, number: int
) -> None:
    import fhjax.assessment
    import fhjax.caps.plan
    import fhjax.plrv.check
    import fhjax.report.plrv_figures
    import fhjax.report.write

    # Figures take long and add no stage of another kind; what was computed once is not computed at every stage again.
    monkeypatch.setattr(fhjax.report.write, "draw_all", lambda *_: [])
    monkeypatch.setattr(fhjax.report.plrv_figures, "write_check_figures", lambda *_, **__: [])
    for module, name in (
        (fhjax.assessment, "assess"), (fhjax.caps.plan, "plan_trimming"), (fhjax.plrv.check, "check")
    ):  # fmt: skip
        remembered(monkeypatch, module, name)
    count = {"now": 0, "stop": 0}

    def tick() -> None:
        count["now"] += 1
        if count["now"] == count["stop"]:
            signal.raise_signal(number)

    def hooked(owner, name):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            tick()
            result = original(*args, **kwargs)
            tick()
            return result

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((Staging, "_beside"), (Path, "write_text"), (pd.DataFrame, "to_csv"), (Steps, "_write")):
        hooked(owner, name)
    before = snapshot(folder)
    argv = command(verb, folder, {})
    for stop in range(1, 60):
        count.update(now=0, stop=stop)
        code = main(argv)
        said = capsys.readouterr().err
        if count["now"] < stop:  # it ran through before the interrupt came
            assert code in (0, 1)
            assert len(snapshot(folder)) > len(before)
            break
        assert code == 130, (stop, said)
        assert said.strip().splitlines()[-1].startswith(f"fhjax {verb}: interrupted")
        assert "Traceback" not in said
        assert snapshot(folder) == before, stop
    else:
        pytest.fail("never finished")
    assert stop > 4


@pytest.mark.parametrize("library", ["jax", "pandas", "ibis"])
def test_an_interrupt_while_libraries_are_loaded_is_one_line(folder: Path, library: str) -> None:
    program = f"""
import signal, sys

class Stop:
    def find_spec(self, name, *_):
        if name == {library!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Stop())
from fhjax.cli.main import main
sys.exit(main({command("direct", folder, {})!r}))
"""
    before = snapshot(folder)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "fhjax direct: interrupted; nothing was written."
    assert "Traceback" not in done.stderr
    assert snapshot(folder) == before


def test_an_interrupt_while_files_are_put_in_place_lets_it_finish(folder: Path, monkeypatch) -> None:
    original = os.replace

    def replace(*args):
        signal.raise_signal(signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(os, "replace", replace)
    with Staging() as staging:
        for name in ("x", "y"):
            staging.file(folder / name).write_text(name)
    assert [(folder / name).read_text() for name in ("x", "y")] == ["x", "y"]
    assert not list(folder.glob(".fhjax-*"))


def test_a_closed_pipe_is_no_error(folder: Path, monkeypatch, capsys) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

        def close(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(command("direct", folder, {})) == 0
    assert (folder / "new--out").exists()


def test_an_option_is_given_once_and_filters_add_up(folder: Path, capsys) -> None:
    for verb in VERBS:
        parser = build_parser()._subparsers._group_actions[0].choices[verb]  # type: ignore[union-attr, index]
        for action in parser._actions:
            if not action.option_strings or action.nargs == 0 or action.dest in ("help", "where", "na"):
                continue
            value = str((list(action.choices) if action.choices else ["1"])[0])
            words = [action.option_strings[0], *[value] * (2 if action.nargs == 2 else 1)]
            with pytest.raises(SystemExit) as stop:
                build_parser().parse_args([verb, *VERBS[verb][:1], *words, *words])
            assert stop.value.code == 2
            assert "is given twice" in capsys.readouterr().err
    both, one = folder / "both.csv", folder / "one.csv"
    roles = ["direct", str(folder / "S.csv"), "--area", "area", "--weight", "w", "--outcome", "y = 1", "--quiet"]
    assert main([*roles, "--where", "w > 10", "--where", "w < 40", "--out", str(both)]) == 0
    assert main([*roles, "--where", "w > 10 AND w < 40", "--out", str(one)]) == 0
    pd.testing.assert_frame_equal(pd.read_csv(both), pd.read_csv(one))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--center", "full"], "--center has no effect without --replicates"),
        (["--population-columns", "a,N"], "--population-columns has no effect without --population"),
    ],
)
def test_an_option_without_effect_says_so(folder: Path, capsys, more: list[str], words: str) -> None:
    assert main([*command("direct", folder, {}), *more]) == 0
    assert words in capsys.readouterr().err


def test_text_options_of_a_parquet_file_say_that_they_have_no_effect(folder: Path, capsys) -> None:
    pd.read_csv(folder / "S.csv").to_parquet(folder / "S.parquet")
    argv = command("direct", folder, {})
    argv[1] = str(folder / "S.parquet")
    assert main([*argv, "--delimiter", ";"]) == 0
    assert "--delimiter has no effect for files that are no text" in capsys.readouterr().err
