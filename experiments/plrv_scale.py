"""One large privacy-loss check, timed: 10^5 draws an area at the ACS's size here, 10^10 draws in all on a GPU.

    python -m experiments.plrv_scale                       # 2.5 x 10^8 draws of the areas in each direction
    python -m experiments.plrv_scale --total 1e10 --gpu    # one call of a few minutes on one GPU

Prints one line of JSON: draws, seconds, draws a second, device, peak memory, and whether the claim was refuted.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import jax

import fhjax  # noqa: F401  (float64)
from benchmarks.cases_plrv import problem
from fhjax.plrv.check import check
from fhjax.privacy.guarantee import guarantees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--areas", type=int, default=2_462)
    parser.add_argument("--total", type=float, default=2.5e8, help="draws x areas of each of the two area passes")
    parser.add_argument("--joint-share", type=float, default=0.2, help="draws of each joint pass, relative to --total")
    parser.add_argument("--gpu", action="store_true", help="larger chunks")
    args = parser.parse_args()
    data, fitted, sensitivity = problem(args.areas, 1)
    claim = guarantees(data, fitted, sensitivity)
    # A round number of draws has divisors near any chunk, so one loop is compiled and not two.
    draws = max(1000, round(args.total / args.areas / 1000) * 1000)
    joint = max(1000, round(args.joint_share * draws / 1000) * 1000)
    options = {"joint_draws": joint, "chunk_values": 2**26 if args.gpu else 2**20}
    begun, cpu = time.perf_counter(), time.process_time()
    result = check(data, fitted, claim, key=jax.random.key(1), num_draws=draws, **options)
    seconds = time.perf_counter() - begun
    made = args.areas * (2 * draws + 3 * joint)
    print(
        json.dumps(
            {
                "areas": args.areas,
                "draws_an_area_and_direction": draws,
                "draws_in_all": made,
                "seconds_with_compilation": round(seconds, 1),
                "processor_seconds": round(time.process_time() - cpu, 1),
                "draws_a_second": round(made / seconds),
                "device": jax.devices()[0].device_kind,
                "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "refuted": result.refuted,
                "findings": len(result.findings),
            }
        )
    )


if __name__ == "__main__":
    main()
