"""The report folder: every promised file, column and key, for ordinary, tiny, infinite and hostile input."""

from __future__ import annotations

import csv
import dataclasses
import html as html_text
import json
import math
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from report_stand_in import assessment_of, cholesterol, made_up
from scipy.stats import norm

from fhjax.errors import InputError
from fhjax.records import FLAGS
from fhjax.report import write_report
from fhjax.report.areas import COLUMNS
from fhjax.report.assumptions import assumptions
from fhjax.report.figures import draw_all
from fhjax.report.numbers import format_up

SUMMARY_KEYS = {
    "num_areas", "num_excluded", "num_records", "num_missing_outcome", "num_filtered", "model_variance",
    "model_variance_se", "beta", "method", "status", "log_likelihood", "aic", "bic", "shrinkage_median", "rho_median",
    "rho_max", "rho_max_area", "rho_joint_independent", "rho_joint_correlated", "rho_sequential", "sequential_factor",
    "conservative_ratio_median", "equal_weight_factor_median", "largest_off_diagonal_ratio", "other_areas_share_max",
    "epsilon_median", "epsilon_max", "epsilon_joint", "epsilon_joint_correlated", "epsilon_sequential", "delta",
    "epsilon_method", "neighbours", "assumptions", "drivers", "model_variance_changes", "releases",
}  # fmt: skip
HOSTILE = ['<script>alert("x")</script>', "a & b, 'c'", "$x^2$", "=SUM(A1)", "0012"]


def strict(path: Path):
    def refuse(word: str):
        raise AssertionError(f"{path.name} holds {word}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


class Page(HTMLParser):
    """What a page consists of: tags with attributes, and whether they are balanced."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.text.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    assessment = cholesterol()
    return assessment, write_report(assessment, tmp_path_factory.mktemp("ordinary") / "new" / "report", pdf=True)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two areas without sampling variance, hostile labels, an excluded area, no conservative bound."""
    labels = HOSTILE + [f"area {i}" for i in range(15)]
    assessment = made_up(20, infinite=2, labels=labels, excluded=[("<b>gone</b>", "no observed outcome")])
    none = dataclasses.replace(
        assessment.guarantees,
        conservative_code=jnp.asarray(0),
        conservative_bound=jnp.full(20, jnp.inf),
        num_moved_by_others=jnp.asarray(3),
    )
    assessment = dataclasses.replace(assessment, guarantees=none)
    return assessment, write_report(assessment, tmp_path_factory.mktemp("planted"), title="R & D <report>")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Three areas of which only estimates, variances and sensitivities are known."""
    assessment = assessment_of(
        ["A", "B", "C"], [0.1, 0.2, 0.3], [1e-3, 2e-3, 5e-4], sensitivity=[0.01, 0.02, 0.01], etas=()
    )
    return assessment, write_report(assessment, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(params=["ordinary", "planted", "tiny"])
def any_report(request):
    return request.getfixturevalue(request.param)


def test_every_promised_file_is_there(any_report) -> None:
    assessment, files = any_report
    for path in (files.page, files.areas, files.summary, files.run, *files.figures):
        assert path.is_file()
        assert path.is_relative_to(files.folder)
    assert (files.excluded is not None) == bool(assessment.direct.excluded)
    assert (files.folder / "excluded.csv").exists() == bool(assessment.direct.excluded)


def test_areas_csv_has_every_column_and_area(any_report) -> None:
    assessment, files = any_report
    with files.areas.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    place = COLUMNS.index("epsilon") + 1
    assert tuple(rows[0]) == (*COLUMNS[:place], "epsilon_tight", "epsilon_exact", *COLUMNS[place:])
    assert [row["area"] for row in rows] == list(assessment.direct.labels)
    assert not any(cell.lower() in ("nan", "<na>", "none") for row in rows for cell in row.values())
    for row, rho, y in zip(rows, assessment.guarantees.per_area_rho, assessment.direct.y, strict=True):
        assert float(row["rho"]) == float(rho)  # full precision, infinity included
        assert float(row["y"]) == float(y)
        assert math.isinf(float(row["epsilon"])) == math.isinf(float(rho))


def test_summary_has_every_key_and_is_strict_json(any_report) -> None:
    assessment, files = any_report
    summary = strict(files.summary)
    assert SUMMARY_KEYS - summary.keys() == set()
    assert "NaN" not in files.summary.read_text(encoding="utf-8")
    assert summary["num_areas"] == len(assessment.direct.labels)
    assert float(summary["rho_joint_correlated"]) == float(assessment.guarantees.joint_correlated.rho)
    assert len(summary["assumptions"]) == len(assumptions(assessment))
    assert summary["releases"].keys() == {"joint_correlated", "joint_independent", "sequential"}


def test_summary_agrees_with_the_areas(ordinary) -> None:
    assessment, files = ordinary
    summary, table = strict(files.summary), pd.read_csv(files.areas)
    assert summary["rho_median"] == pytest.approx(np.median(table["rho"]), rel=1e-15)
    assert summary["rho_max"] == table["rho"].max()
    assert summary["rho_max_area"] == table["area"][table["rho"].argmax()]
    assert summary["epsilon_max"] == table["epsilon"].max()
    rho, delta = summary["rho_joint_independent"], summary["delta"]
    assert summary["epsilon_joint"] == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-12)
    assert summary["sequential_factor"] == pytest.approx(table["rho"].sum() / rho, rel=1e-12)
    factor = np.median(table["rho"] / table["rho_equal_weight"])
    assert summary["equal_weight_factor_median"] == pytest.approx(factor, rel=1e-12)
    assert len(summary["model_variance_changes"]) == 4
    change = np.asarray(assessment.model_variance_changes[0.1])
    row = next(row for row in summary["model_variance_changes"] if row["eta"] == 0.1)
    assert (row["min"], row["max"]) == (change.min(), change.max())


def test_page_stands_alone_and_is_well_formed(any_report) -> None:
    _, files = any_report
    text = files.page.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert not page.attributes("script")
    assert not page.attributes("link")
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text), re.IGNORECASE)
    assert not re.search(r"url\(|@import", text)
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", " ".join(page.text))
    for image in page.attributes("img"):
        assert (image["src"] or "").startswith("data:image/png;base64,")
        assert len(image["alt"] or "") > 20
    assert all(head.get("scope") in ("row", "col") for head in page.attributes("th"))
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for link in page.attributes("a"):
        assert (link["href"] or "").removeprefix("#") in identifiers


def test_page_shows_every_area_assumption_and_flag(any_report) -> None:
    assessment, files = any_report
    text = files.page.read_text(encoding="utf-8")
    page = Page(text)
    areas = text[text.index('id="table-areas"') :]
    for label in assessment.direct.labels:
        assert html_text.escape(label, quote=False).replace("'", "&#39;").replace('"', "&#34;") in areas
    listed = re.search(r'<ol class="assumptions">(.*?)</ol>', text, re.DOTALL)
    assert listed is not None
    assert listed.group(1).count("<li>") == len(assumptions(assessment))
    words = " ".join(page.text)
    for name, marked in assessment.direct.flags.items():
        assert (FLAGS[name].capitalize() in words) == bool(np.any(marked))
    assert "Internal document." in words
    assert "carry no privacy guarantee of their own" in words


def test_labels_and_title_are_escaped(planted) -> None:
    _, files = planted
    text = files.page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>gone" not in text
    assert "&lt;script&gt;alert(" in text
    assert "R &amp; D &lt;report&gt;" in text


def test_infinite_areas_are_named_with_the_reason(planted) -> None:
    _, files = planted
    summary = strict(files.summary)
    assert summary["rho_max"] == summary["rho_joint_correlated"] == summary["epsilon_joint"] == "Infinity"
    assert summary["num_infinite_rho"] == 2
    assert summary["sequential_factor"] is None
    words = " ".join(Page(files.page.read_text(encoding="utf-8")).text)
    assert "No guarantee can be stated for 2 areas" in words
    assert "the sampling variance is 0" in words
    assert all(label in words for label in HOSTILE[:2])


def test_conservative_is_shown_only_where_it_is_a_bound(ordinary, planted) -> None:
    for (assessment, files), expected in ((ordinary, True), (planted, False)):
        text = files.page.read_text(encoding="utf-8")
        assert ("ρ, conservative" in text) == expected
        assert ("figureS1_conservative" in text) == expected
        assert assessment.guarantees.conservative_note in html_text.unescape(text)
        assert bool(pd.read_csv(files.areas)["rho_conservative"].notna().any()) == expected


def test_figures_are_large_enough_to_print(any_report, ordinary) -> None:
    _, files = any_report
    pictures = [path for path in files.figures if path.suffix == ".png"]
    prints = [path for path in files.figures if path.suffix == ".pdf"]
    assert [path.stem for path in prints] == ([path.stem for path in pictures] if files is ordinary[1] else [])
    assert {"figure1_rho_distribution", "figureS3_model_variance"} & {path.stem for path in pictures}
    for path in pictures:
        content = path.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert width >= 1500
        assert height >= 400
        assert len(content) > 15_000
    for path in prints:
        assert path.read_bytes().startswith(b"%PDF")


def test_the_page_names_the_figures_that_are_there(any_report) -> None:
    _, files = any_report
    named = re.findall(r"figures/([\w.]+\w)", " ".join(Page(files.page.read_text(encoding="utf-8")).text))
    assert sorted(named) == sorted(path.name for path in files.figures)


def test_figures_for_print_are_made_where_they_are_asked_for(ordinary, tiny) -> None:
    assert any(path.suffix == ".pdf" for path in ordinary[1].figures)
    assert not any(path.suffix == ".pdf" for path in tiny[1].figures)


def test_all_five_figures_are_made_where_the_numbers_are_there(ordinary) -> None:
    _, files = ordinary
    names = [path.stem.split("_")[0] for path in files.figures if path.suffix == ".png"]
    assert names == ["figure1", "figure2", "figureS1", "figureS2", "figureS3"]


def test_excluded_areas_are_listed(planted) -> None:
    _, files = planted
    assert files.excluded.read_text(encoding="utf-8") == "area,reason\n<b>gone</b>,no observed outcome\n"


def test_a_second_report_leaves_nothing_of_the_first(planted, tmp_path) -> None:
    first = write_report(planted[0], tmp_path)
    (tmp_path / "mine.txt").write_text("keep")
    small = assessment_of(["A", "B", "C"], [0.1, 0.2, 0.3], [1e-3, 2e-3, 5e-4], sensitivity=[0.01] * 3, etas=())
    second = write_report(small, tmp_path)
    assert not first.excluded.exists()
    assert {path for path in (tmp_path / "figures").iterdir()} == set(second.figures)
    assert (tmp_path / "mine.txt").exists()


def test_the_same_assessment_gives_the_same_files(tiny, tmp_path) -> None:
    assessment, files = tiny
    again = write_report(assessment, tmp_path, provenance=strict(files.run))
    for name in ("areas.csv", "summary.json", "figures/figure1_rho_distribution.png"):
        assert (files.folder / name).read_bytes() == (again.folder / name).read_bytes()


def test_bad_places_and_methods_are_refused(tiny, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write_report(tiny[0], tmp_path / "file")
    with pytest.raises(InputError, match="Unknown epsilon method 'exakt'"):
        write_report(tiny[0], tmp_path / "x", epsilon_methods=("exakt",))
    assert not (tmp_path / "x").exists()


def test_a_thousand_areas_show_the_worst_first_and_point_to_the_file() -> None:
    from fhjax.report.areas import area_table
    from fhjax.report.tables import AREAS_SHOWN, areas_table, exposed_table

    assessment = made_up(1000)
    table = area_table(assessment)
    shown = areas_table(table)
    order = np.argsort(-np.asarray(assessment.guarantees.per_area_rho))
    assert len(shown.rows) == AREAS_SHOWN
    assert [row[0] for row in shown.rows] == [assessment.direct.labels[i] for i in order[:AREAS_SHOWN]]
    assert "areas.csv has all 1,000 areas" in shown.note
    assert exposed_table(table).rows[0][1] == format_up(float(np.max(assessment.guarantees.per_area_rho)))


@pytest.mark.parametrize("case", ["one area", "all infinite", "equal rho", "zero model variance", "long labels"])
def test_figures_survive_odd_cases(case: str) -> None:
    from fhjax.report.areas import area_table
    from fhjax.report.summary import summarise

    options = {"sensitivity": [0.01] * 4}
    assessment = {
        "one area": lambda: assessment_of(["A"], [0.1], [1e-3], sensitivity=[0.01]),
        "all infinite": lambda: assessment_of(list("ABCD"), [0.1] * 4, [0.0] * 4, **options),
        "equal rho": lambda: assessment_of(list("ABCD"), [0.1] * 4, [1e-3] * 4, **options),
        "zero model variance": lambda: made_up(30, model_variance=0.0),
        "long labels": lambda: made_up(30, labels=[f"{'very ' * 30}long {i}" for i in range(30)]),
    }[case]()
    table = area_table(assessment)
    drawings = draw_all(assessment, table, summarise(assessment, table=table))
    assert len(drawings) >= 2
    for drawing in drawings:
        drawing.figure.canvas.draw()  # pyright: ignore[reportAttributeAccessIssue]
        assert drawing.title
        assert "nan" not in drawing.title.lower().split()


def test_further_epsilon_methods_get_their_columns(tmp_path) -> None:
    assessment = made_up(13, infinite=1)
    files = write_report(assessment, tmp_path, epsilon_methods=("exact", "tight"))
    table, summary = pd.read_csv(files.areas), strict(files.summary)
    place = list(COLUMNS).index("epsilon") + 1
    assert list(table) == [*COLUMNS[:place], "epsilon_exact", "epsilon_tight", *COLUMNS[place:]]
    finite = np.isfinite(table["rho"])
    assert int(finite.sum()) == 12
    assert (table["epsilon_exact"][finite] < table["epsilon_tight"][finite]).all()
    assert (table["epsilon_tight"][finite] < table["epsilon"][finite]).all()
    assert (table.loc[~finite, ["epsilon", "epsilon_exact", "epsilon_tight"]] == math.inf).all(axis=None)
    # the exact curve: delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) with mu = sqrt(2 rho)
    mu, epsilon = np.sqrt(2 * table["rho"][finite]), table["epsilon_exact"][finite]
    delta = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert np.allclose(delta, assessment.delta, rtol=1e-6)
    assert summary["epsilon_exact"]["max"] == "Infinity"
    words = " ".join(Page(files.page.read_text(encoding="utf-8")).text)
    assert "ε exact is the exact privacy curve" in words


def test_exact_is_withheld_where_the_release_is_no_gaussian_pair() -> None:
    from fhjax.report.summary import summarise

    assessment = made_up(5)
    release = dataclasses.replace(assessment.guarantees.joint_independent, gaussian_pair=False)
    guarantees = dataclasses.replace(assessment.guarantees, joint_independent=release)
    summary = summarise(dataclasses.replace(assessment, guarantees=guarantees), epsilon_methods=("exact",))
    assert math.isnan(summary["epsilon_exact"]["joint"])
    assert summary["epsilon_exact"]["joint_correlated"] < summary["epsilon_joint_correlated"]


def test_rows_that_only_pad_are_left_out() -> None:
    from fhjax.report.areas import area_table
    from fhjax.report.summary import summarise

    assessment = made_up(6)
    pad = np.concatenate([np.ones(6, bool), np.zeros(2, bool)])

    def padded(record, skip=()):
        changes = {
            field.name: np.concatenate([np.asarray(value), [777.0, 777.0]])
            for field in dataclasses.fields(record)
            if field.name not in skip and np.shape(value := getattr(record, field.name)) == (6,)
            and not isinstance(value, tuple)
        }  # fmt: skip
        assert len(changes) >= 2
        return dataclasses.replace(record, **changes)

    wide = dataclasses.replace(
        assessment,
        area_data=dataclasses.replace(padded(assessment.area_data), mask=pad),
        posterior=padded(assessment.posterior),
        guarantees=padded(assessment.guarantees, skip=("labels",)),
        equal_weight_rho=np.concatenate([assessment.equal_weight_rho, [777.0, 777.0]]),
        model_variance_changes={
            eta: np.concatenate([change, [777.0, 777.0]]) for eta, change in assessment.model_variance_changes.items()
        },
    )
    pd.testing.assert_frame_equal(area_table(wide), area_table(assessment))
    assert summarise(wide) == summarise(assessment)


def test_assumptions_already_stated_are_not_said_twice() -> None:
    assessment = cholesterol()
    sentences = assumptions(assessment)
    stated = assessment.guarantees.assumptions
    assert sentences[: len(stated)] == stated
    # the Gaussian prior, neighbours, real numbers, excluded areas, missing outcomes
    assert len(sentences) == len(stated) + 5
    plain = made_up(5)
    releases = {
        name: dataclasses.replace(getattr(plain.guarantees, name), assumptions=())
        for name in ("joint_correlated", "joint_independent", "sequential")
    }
    bare = dataclasses.replace(plain, guarantees=dataclasses.replace(plain.guarantees, assumptions=(), **releases))
    assert len(assumptions(bare)) == 7
    for word in ("neighbours", "universe", "weights", "covariates", "one area", "real numbers", "invariants"):
        assert sum(word in sentence for sentence in assumptions(bare)) >= 1


def test_risk_to_one_unit_is_that_of_two_normals(any_report) -> None:
    """The best guess between N(0, 1) and N(mu, 1) is right with probability Phi(mu / 2), mu = sqrt(2 rho)."""
    assessment, files = any_report
    summary = json.loads(files.summary.read_text(encoding="utf-8"))
    risk = summary["risk_to_one_unit"]
    rho = float(assessment.guarantees.joint_correlated.rho)
    right = 0.5 * (1.0 + math.erf(math.sqrt(2.0 * rho) / 2.0 / math.sqrt(2.0)))
    assert risk["joint_correlated"]["best_guess"] == pytest.approx(right, rel=1e-9)
    assert risk["joint_correlated"]["advantage"] == pytest.approx(2.0 * right - 1.0, rel=1e-9, abs=1e-12)
    for name in ("median_area", "most_exposed_area", "joint_correlated"):
        assert 0.5 <= risk[name]["best_guess"] <= risk[name]["largest_posterior"] <= 1.0
    assert "What it means for one person" in files.page.read_text(encoding="utf-8")
