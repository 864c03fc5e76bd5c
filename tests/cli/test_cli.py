"""The command line: exit codes, help, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fhjax.cli.main import build_parser, main
from fhjax.cli.progress import Steps


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def survey(tmp_path: Path) -> str:
    rows = [f"{a},{h},{1 + h % 3},{(a + h) % 2},1,2,3,2" for a in (1, 2, 3, 4) for h in range(20)]
    return write(tmp_path / "survey.csv", "area,hh,w,poor,w1,w2,w3,w4\n" + "\n".join(rows) + "\n")


def test_doctor_says_float64(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "float64: yes" in out
    assert "jax" in out


def test_no_verb_and_unknown_options_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["report"], ["report", "x.csv", "--area", "a", "--out", "o", "--method", "bayes"]):
        with pytest.raises(SystemExit) as stop:
            main(argv)
        assert stop.value.code == 2
    assert "fhjax" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--weight", "w"], ["--outcome", "--area-level"]),
        (["--weight", "w", "--outcome", "por"], ["por", "poor"]),
        (["--weight", "w", "--outcome", "poor = 1", "--replicates", "w*"], ["--replicate-method", "sdr"]),
        (["--weight", "w", "--outcome", "poor = 1", "--replicate-method", "sdr"], ["--replicates"]),
        (["--weight", "w", "--outcome", "poor = 1", "--estimator", "ht"], ["--population"]),
        (["--weight", "w", "--outcome", "poor = 1", "--population", "p.csv"], ["--estimator ht"]),
        (["--weight", "w", "--outcome", "poor = 1", "--x", "a"], ["--covariates"]),
        (["--weight", "w", "--outcome", "poor = 1", "--delta", "1.5"], ["delta", "1.5"]),
    ],
)
def test_bad_input_exits_with_2_and_says_the_way_out(
    options: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["report", survey(tmp_path), "--area", "area", *options, "--out", str(tmp_path / "out"), "--quiet"]
    assert main(argv) == 2
    err = capsys.readouterr().err
    for word in words:
        assert word in err
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_fit_of_other_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    five = "area,y,sampling_variance,sensitivity\n" + "\n".join(f"a{i},{i / 10},0.01,0.02" for i in range(5))
    four = "\n".join(five.splitlines()[:-1])
    fit = str(tmp_path / "fit.json")
    assert main(["fit", write(tmp_path / "five.csv", five), "--out", fit]) == 0
    argv = [
        "guarantee",
        write(tmp_path / "four.csv", four),
        "--fit",
        fit,
        "--delta",
        "1e-5",
        "--out",
        str(tmp_path / "g.csv"),
    ]
    assert main(argv) == 2
    assert "5 areas" in capsys.readouterr().err


def test_progress_goes_to_stderr_and_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with Steps(1, quiet=quiet).step("counting"):
            pass
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("[1/1] counting ..." in captured.err) is not quiet


def test_every_verb_has_help() -> None:
    actions = build_parser()._subparsers._group_actions[0]  # type: ignore[union-attr]
    assert set(actions.choices) == {
        "report",
        "direct",
        "fit",
        "guarantee",
        "trim",
        "check",
        "audit",
        "release",
        "doctor",
    }  # type: ignore[arg-type]
    for parser in actions.choices.values():  # type: ignore[union-attr]
        assert parser.description
