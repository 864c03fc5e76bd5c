"""What the files of ``check`` and ``audit`` hold, as plain values for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from fhjax.plrv import tail, theory
from fhjax.plrv.check import ORDERS
from fhjax.plrv.fit_tests import variance_test_power


def check_values(result) -> dict[str, Any]:
    """A check as plain values."""

    values: dict[str, Any] = {
        "refuted": result.refuted,
        "reasons": [finding.name for finding in result.reasons],
        "level": result.level,
        "draws_per_area_and_direction": result.num_draws,
        "first_run_refuted_by": [finding.name for finding in result.first_reasons],
        "power_one_area_sd_1_percent_off": float(variance_test_power(0.99**2, result.num_draws)),
        "findings": [vars(finding) for finding in result.findings],
        "releases": {},
    }
    for each in result.passes:
        if each.joint is None or not each.name.endswith("D to D'"):
            continue
        rho = result.joint_rho[each.release]
        estimate, feasible = tail.renyi_estimate(each.summary.joint_loss, rho, ORDERS)
        n = int(each.summary.joint.count)
        standard = float(each.summary.joint.total[0]) / n
        values["releases"][each.release] = {
            "rho_claimed": rho,
            "mean_loss": rho + standard * np.sqrt(2.0 * rho),
            "variance_loss": 2.0 * rho * float(each.summary.joint.square_total[0]) / n,
            "renyi": [
                {"order": a, "estimate": v, "claimed": c, "feasible": bool(f)}
                for a, v, c, f in zip(ORDERS, estimate.value, theory.renyi_of(rho, ORDERS), feasible, strict=True)
            ],
        }
    for name, estimate in result.tail.items():
        rho = float(result.areas_rho[result.worst_area]) if name == "area" else result.joint_rho[name]
        curve = [
            {"epsilon": e, "estimate": v, "low": low, "high": high, "claimed": c}
            for e, v, low, high, c in zip(
                result.epsilons[name], estimate.value, estimate.low, estimate.high,
                theory.delta_of(rho, result.epsilons[name]), strict=True,
            )
        ]  # fmt: skip
        values["releases"].setdefault(name, {"rho_claimed": rho})["delta"] = curve
    return values


def audit_values(result) -> dict[str, Any]:
    """An audit as plain values."""
    return {
        "refuted": result.refuted,
        "reasons": [finding.name for finding in result.reasons],
        "level": result.level,
        "draws": result.num_draws,
        "autocorrelated": result.autocorrelated,
        "structure": result.structure,
        "structure_p_values": result.structure_p_values,
        "findings": [vars(finding) for finding in result.findings],
        "rho_claimed": result.rho_claimed,
        "rho_of_all_draws": {name: result.num_draws * rho for name, rho in result.rho_claimed.items()},
        "rho_compatible": result.rho_compatible,
        "unseen": list(result.unseen),
        "areas": [
            {
                "area": label,
                "effective_draws": size,
                "mean_shift_sd": shift,
                "variance_ratio": ratio,
                "variance_ratio_low": low,
                "variance_ratio_high": high,
            }
            for label, size, shift, ratio, low, high in zip(
                result.labels, result.effective_draws, result.mean_shift, result.variance_ratio,
                result.variance_low, result.variance_high, strict=True,
            )
        ],
    }  # fmt: skip
