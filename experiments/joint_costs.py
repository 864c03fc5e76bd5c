"""What three ways of publishing every area cost, on real files.

    python -m experiments.joint_costs DATA_FOLDER

DATA_FOLDER holds acs2024_us_persons.parquet and brfss2016_wa_scd.csv.gz (ACS 2024 PUMS and BRFSS 2016, Washington).
Writes experiments/results/joint_costs.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import fhjax

RESULT = Path(__file__).parent / "results" / "joint_costs.csv"

ACS = {
    "file": "acs2024_us_persons.parquet",
    "area": "area",
    "weight": "PWGTP",
    "outcome": "poor",
    "where": "poor IS NOT NULL",
    "strata": "area",
    "psu": "hh",
}
BRFSS = {
    "file": "brfss2016_wa_scd.csv.gz",
    "area": "stratum_geo",
    "weight": "LLCPWT",
    "outcome": "scd",
    "where": "scd IS NOT NULL",
    "strata": "STSTR",
    "psu": "SEQNO",
}
RUNS = [
    ("ACS 2024, poverty, persons", ACS, {}),
    ("ACS 2024, poverty, households", ACS, {"unit": "hh"}),
    ("BRFSS 2016 Washington, cognitive decline, 53 strata", BRFSS, {}),
]


def main(folder: str) -> None:
    rows = []
    for name, roles, more in RUNS:
        options = {key: value for key, value in (roles | more).items() if key != "file"}
        survey = fhjax.open_survey(Path(folder) / roles["file"], **options)
        variance = fhjax.Taylor(single_psu="certainty")
        assessment = fhjax.assess(fhjax.direct_estimates(survey, variance=variance))
        cost = assessment.guarantees
        rows.append(
            {
                "release": name,
                "areas": assessment.area_data.num_areas,
                "median_area": float(np.median(cost.per_area_rho)),
                "one_joint_draw": float(cost.joint_correlated.rho),
                "drawn_independently": float(cost.joint_independent.rho),
                "one_after_the_other": float(cost.sequential.rho),
            }
        )
        print(rows[-1], flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(RESULT, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
