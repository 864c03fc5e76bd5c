"""The draw that leaves the house: exact noise, a provable price, nothing else written."""

from __future__ import annotations

import csv
import json
import math
import sys

import numpy as np
import pytest
from oracles import plrv_oracle as oracle
from plrv.plrv_problems import problem
from scipy import stats

from fhjax.cli.main import build_parser, main
from fhjax.errors import InputError
from fhjax.model.fit import area_data, given
from fhjax.model.posterior import posterior as posterior_of
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.guarantee import guarantees
from fhjax.release import lattice
from fhjax.release.publish import noisy_integers, publish

pytest.importorskip("opendp")


def dense(data, s2):
    return oracle.posterior(np.asarray(data.y), np.asarray(data.sampling_variance), s2, np.asarray(data.X))


@pytest.mark.parametrize("s2", [0.4, 1e-9, 0.0])
@pytest.mark.parametrize("release", ["independent", "correlated"])
def test_the_whitening_is_a_root_of_the_covariance_of_the_draw(release: str, s2: float) -> None:
    data, _, posterior, _ = problem(model_variance=s2)
    _, S = dense(data, s2)
    S = S if release == "correlated" else np.diag(np.diag(S))
    root = lattice.whitening(posterior, release)
    R = root.apply(np.eye(root.num_coordinates)).T
    np.testing.assert_allclose(R @ R.T, S, rtol=1e-9, atol=1e-12 * S.max())
    w = np.arange(root.num_coordinates) - 2.0
    np.testing.assert_allclose(root.solve(root.apply(w[None])[0]), w, rtol=1e-6, atol=1e-6)
    if release == "correlated" and s2 == 0.0:
        assert root.num_coordinates == 2


@pytest.mark.parametrize("s2", [0.4, 0.0])
@pytest.mark.parametrize("release", ["independent", "correlated"])
def test_the_exact_divergence_of_neighbouring_releases_is_under_the_claim(release: str, s2: float) -> None:
    """Integers of both data sets as the code makes them, on a coarse lattice; Rényi divergences summed to 50 digits."""
    data, _, posterior, claim = problem(model_variance=s2)
    steps = 4
    root = lattice.whitening(posterior, release)
    guarantee = getattr(claim, f"joint_{release}")
    price = lattice.lattice_price(float(guarantee.rho), steps, root.num_coordinates, 0.0)
    k, y = int(guarantee.worst_area), np.asarray(data.y)
    rng = np.random.default_rng(2)
    worst, moved = {2.0: 0.0, 5.0: 0.0, 20.0: 0.0}, 0
    for _ in range(25):
        base = y + rng.normal(size=len(y))  # where the lattice falls depends on the data
        other = base.copy()
        other[k] += float(claim.sensitivity[k])
        pair = []
        for values in (base, other):
            own = area_data(values, data.sampling_variance, X=data.X, intercept=False)
            pair.append(lattice.to_lattice(root, np.asarray(posterior_of(own, given(own, s2)).mean), steps))
        shift = pair[1] - pair[0]
        moved += int(np.any(shift != 0))
        for alpha in worst:
            exact = math.fsum(oracle.discrete_renyi(steps, abs(int(s)), alpha) for s in shift if s)
            worst[alpha] = max(worst[alpha], exact)
    assert moved > 0
    for alpha, exact in worst.items():
        assert exact <= alpha * price.rho
    # The planted fault: without the spacing the claim is false, on so coarse a lattice.
    assert any(exact > alpha * float(guarantee.rho) for alpha, exact in worst.items())


def test_one_area_costs_its_ceiling() -> None:
    for steps, effect, sd in ((8, 0.3, 1.0), (8, 0.25, 1.0), (16, 0.01, 2.0)):
        price = lattice.area_price(effect, sd, steps)
        shift = math.ceil(steps * effect / sd)
        for alpha in (1.5, 3.0, 10.0):
            assert oracle.discrete_renyi(steps, shift, alpha) <= alpha * price
        assert price >= (effect / sd) ** 2 / 2
    assert lattice.area_price(0.3, 1.0, 2**30) == pytest.approx(0.045, rel=1e-8)


def test_the_bound_of_the_joint_price_is_above_the_exact_one_and_tight() -> None:
    data, fitted, _, claim = problem()
    C = coefficients(data.sampling_variance, fitted.model_variance, data.X)
    real = float(claim.joint_independent.rho)
    for steps, close in ((4, 40.0), (2**10, 1.05), (2**24, 1 + 1e-5)):
        exact = lattice.exact_joint_price(C, np.asarray(claim.sensitivity), steps, block=7)
        bound = lattice.lattice_price(real, steps, 12, 0.0).rho
        assert real <= exact * (1 + 1e-12)
        assert exact <= bound <= close * real


def test_opendp_noise_is_the_exact_discrete_gaussian(carried) -> None:
    table: dict[float, dict[int, float]] = {}
    with open(carried / "privacy/discrete_gaussian.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["quantity"] == "pmf":
                table.setdefault(float(row["sigma2"]), {})[int(row["arg"])] = float(row["value"])
    compared = 0
    for sigma2 in (0.25, 1.0, 2.5, 10.0, 100.0):
        n = 40_000
        noise = np.abs(noisy_integers(np.zeros(n, dtype=np.int64), math.sqrt(sigma2)))
        # |noise| at the tabled values that are expected at least 10 times, and all the rest together.
        cells = {k: p if k == 0 else 2 * p for k, p in table[sigma2].items() if n * p >= 10}
        seen = np.array([np.sum(noise == k) for k in cells] + [np.sum(~np.isin(noise, list(cells)))])
        rest = 1.0 - sum(cells.values())
        expected = n * np.array([*cells.values(), rest])
        keep = expected > 5
        compared += int(keep.sum())
        chi2 = np.sum((seen[keep] - expected[keep]) ** 2 / expected[keep])
        assert stats.chi2.sf(chi2, keep.sum() - 1) > 1e-7
        if sigma2 >= 1.0:  # the planted fault: a rounded continuous Gaussian of another variance
            wrong = np.abs(np.rint(np.random.default_rng(1).normal(size=n) * math.sqrt(1.15 * sigma2)))
            seen = np.array([np.sum(wrong == k) for k in cells] + [np.sum(~np.isin(wrong, list(cells)))])
            chi2 = np.sum((seen[keep] - expected[keep]) ** 2 / expected[keep])
            assert stats.chi2.sf(chi2, keep.sum() - 1) < 1e-7
    assert compared >= 20


@pytest.mark.parametrize(("release", "s2"), [("independent", 0.4), ("correlated", 0.4), ("correlated", 0.0)])
def test_published_draws_have_the_posterior_law(release: str, s2: float) -> None:
    data, _, posterior, claim = problem(model_variance=s2)
    mean, S = dense(data, s2)
    S = S if release == "correlated" else np.diag(np.diag(S))
    n = 4000
    made = publish(data, posterior, claim, release=release, num_draws=n, decimals=6)
    r = made.values - mean
    sd = np.sqrt(np.diag(S))
    assert np.abs(r.mean(axis=0) / sd).max() < 6 / np.sqrt(n)
    assert (np.abs(r.T @ r / n - S) < 6 * np.sqrt((np.outer(sd, sd) ** 2 + S**2) / n)).all()
    again = publish(data, posterior, claim, release=release, num_draws=2)
    assert not np.array_equal(again.values[0], again.values[1])


def test_the_price_is_stated_beside_the_real_number_one() -> None:
    data, _, posterior, claim = problem()
    for release in ("independent", "correlated"):
        real = float(getattr(claim, f"joint_{release}").rho)
        one = publish(data, posterior, claim, release=release)
        assert one.price.rho_real == real
        assert real < float(one.guarantee.rho) < real * (1 + 1e-5)
        three = publish(data, posterior, claim, release=release, num_draws=3)
        assert float(three.guarantee.rho) == pytest.approx(3 * float(one.guarantee.rho))
        assert three.values.shape == (3, 12)
        assert one.guarantee.gaussian_pair is False
        coarse = publish(data, posterior, claim, release=release, steps=2**10)
        assert float(coarse.guarantee.rho) > float(one.guarantee.rho)
    assert "noise" in publish(data, posterior, claim, release="independent", kind="noisy-means").guarantee.release


def test_published_values_are_rounded_off_the_lattice() -> None:
    data, _, posterior, claim = problem()
    made = publish(data, posterior, claim)
    assert np.array_equal(np.round(made.values, made.decimals), made.values)
    assert 10.0**-made.decimals <= np.sqrt(np.asarray(posterior.variance)).min() / 100
    clipped = publish(data, posterior, claim, clip=(-0.5, 0.5))
    assert np.abs(clipped.values).max() <= 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"release": "both"}, ["both"]),
        ({"kind": "noisy-means"}, ["independent"]),
        ({"kind": "mean"}, ["noisy-means"]),
        ({"num_draws": 0}, ["one draw"]),
        ({"steps": 1000}, ["power of two"]),
        ({"steps": 2**40}, ["rounding errors"]),
        ({"clip": (1.0, 0.0)}, ["lower"]),
    ],
)
def test_refusals(options: dict, words: list[str]) -> None:
    data, _, posterior, claim = problem()
    with pytest.raises(InputError) as stop:
        publish(data, posterior, claim, **options)
    for word in words:
        assert word in str(stop.value)


def test_no_seed_can_be_given_and_no_key() -> None:
    data, _, posterior, claim = problem()
    for name in ("key", "seed"):
        with pytest.raises(TypeError):
            publish(data, posterior, claim, **{name: 1})
    verbs = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    options = verbs["release"]._option_string_actions  # type: ignore[index]
    assert not any("seed" in name or "key" in name for name in options)


def test_an_area_without_variance_is_refused() -> None:
    data = area_data([1.0, 2.0, 3.0, 4.0], [0.5, 0.0, 0.5, 0.5], labels=list("abcd"), allow_zero_variance=True)
    fitted = given(data, 1.0)
    posterior = posterior_of(data, fitted)
    with pytest.raises(InputError, match="infinite"):
        publish(data, posterior, guarantees(data, fitted, 0.1))
    with pytest.raises(InputError, match="'b'"):
        lattice.whitening(posterior, "independent", data.labels)


def test_without_opendp_the_way_out_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(InputError, match=r"fhjax\[release\]"):
        noisy_integers(np.zeros(3, dtype=np.int64), 4.0)


def test_through_the_command_line(tmp_path, capsys) -> None:
    data, _, _, claim = problem()
    areas = tmp_path / "areas.csv"
    rows = zip(np.asarray(data.y), np.asarray(data.sampling_variance), np.asarray(claim.sensitivity), strict=True)
    text = "".join(f"{i:03d},{float(y)!r},{float(v)!r},{float(s)!r}\n" for i, (y, v, s) in enumerate(rows))
    areas.write_text("area,y,sampling_variance,sensitivity\n" + text, encoding="utf-8")
    out, price = tmp_path / "draw.csv", tmp_path / "price.json"
    argv = [
        "release",
        str(areas),
        "--model-variance",
        "0.4",
        "--delta",
        "1e-5",
        "--out",
        str(out),
        "--guarantee",
        str(price),
    ]
    assert main(argv) == 0
    said = capsys.readouterr()
    lines = out.read_text().splitlines()
    assert lines[0] == "area,value"
    assert [line.split(",")[0] for line in lines[1:]] == [f"{i:03d}" for i in range(12)]
    values = json.loads(price.read_text())
    assert values["rho"] > values["rho_real_numbers"] > 0
    assert values["epsilon_method"] == "tight"
    assert len(values["assumptions"]) > 3
    # Neither the posterior mean nor the noise is anywhere.
    intercept_only = area_data(data.y, data.sampling_variance)
    mean = np.asarray(posterior_of(intercept_only, given(intercept_only, 0.4)).mean)
    draw = np.array([float(line.split(",")[1]) for line in lines[1:]])
    everything = out.read_text() + price.read_text() + said.out + said.err
    for number in np.concatenate([mean, draw - mean]):
        assert f"{number:.6f}" not in everything
    assert sorted(path.name for path in tmp_path.iterdir()) == ["areas.csv", "draw.csv", "price.json"]
    # A second call must not overwrite: it would be a second release.
    assert main(argv) == 2
    assert "cost its rho again" in capsys.readouterr().err
    argv[argv.index(str(out))], argv[argv.index(str(price))] = str(tmp_path / "b.csv"), str(tmp_path / "b.json")
    assert main([*argv, "--release", "independent", "--as", "noisy-means", "--draws", "2"]) == 0
    assert (tmp_path / "b.csv").read_text().splitlines()[0] == "area,draw_1,draw_2"
    assert (tmp_path / "b.csv").read_text() != out.read_text()


def test_many_published_draws_pass_the_audit_as_they_are_written(tmp_path) -> None:
    """`fhjax release` writes areas as rows; `fhjax audit` reads that as well as draws as rows."""
    data, _, _, claim = problem()
    areas, out = tmp_path / "areas.csv", tmp_path / "draws.csv"
    rows = zip(np.asarray(data.y), np.asarray(data.sampling_variance), np.asarray(claim.sensitivity), strict=True)
    text = "".join(f"{i:03d},{float(y)!r},{float(v)!r},{float(s)!r}\n" for i, (y, v, s) in enumerate(rows))
    areas.write_text("area,y,sampling_variance,sensitivity\n" + text, encoding="utf-8")
    made = ["release", str(areas), "--model-variance", "0.4", "--delta", "1e-5", "--draws", "400", "--out", str(out),
            "--guarantee", str(tmp_path / "price.json")]  # fmt: skip
    assert main(made) == 0
    audit = ["audit", str(out), "--area-level", str(areas), "--model-variance", "0.4", "--level", "1e-9"]
    assert main(audit) == 0
    wrong = ["audit", str(out), "--area-level", str(areas), "--model-variance", "0.04", "--level", "1e-9"]
    assert main(wrong) == 1  # the draws are not of that posterior


def test_the_rounding_does_not_depend_on_the_data() -> None:
    """Only the declared range of an outcome decides how many digits are published."""
    found = set()
    for scale in (1.0, 0.1, 0.01):
        data, fitted, _, claim = problem()
        data = area_data(data.y * scale, data.sampling_variance * scale**2, X=data.X, intercept=False)
        fitted = given(data, float(fitted.model_variance) * scale**2)
        claim = guarantees(data, fitted, claim.sensitivity * scale)
        found.add(publish(data, posterior_of(data, fitted), claim, outcome_bounds=(-50.0, 50.0)).decimals)
    assert len(found) == 1
