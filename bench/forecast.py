"""How good a forecast of volumes is, on synthetic ones whose end is known, beside a straight line.

    ./run bench forecast [--volumes 200]

Volumes of four kinds, 28 days of history, 72 hours ahead (`kvota.testing.synthetic_volumes`). Bars: the 80 % interval
covers 70 to 90 % of those of all kinds without a clean-up inside the horizon, and the mean error is below that of a straight line
fitted to the last seven days, of each kind and of all together.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from kvota.testing.synthetic_volumes import KINDS, Kind, synthetic_volume
from kvota.volumes.forecast import forecast_volume
from verdict import judged

RESULT = Path(__file__).parent / "results" / "forecast.json"
HORIZON_H = 72
LINE_H = 168
GB = 1e9


def measured(kind: Kind, volumes: int) -> dict[str, float]:
    """Coverage, errors and time of one kind."""
    covered, ours, lines = [], [], []
    began = time.process_time()
    for seed in range(volumes):
        volume = synthetic_volume(kind, seed, later_h=HORIZON_H)
        found = forecast_volume(volume.ts_us, volume.used_bytes, horizon_h=HORIZON_H)
        assert found is not None
        low, middle, high = (float(found.quantile(share)[-1]) for share in (0.1, 0.5, 0.9))
        came = float(volume.later_bytes[-1])
        slope = np.polyfit(np.arange(LINE_H), volume.used_bytes[-LINE_H:], 1)[0]
        if not volume.is_cleaned_later:
            covered.append(low <= came <= high)
        ours.append(abs(middle - came) / GB)
        lines.append(abs(volume.used_bytes[-1] + slope * HORIZON_H - came) / GB)
    return {
        "coverage": float(np.mean(covered)),
        "mean_error_gb": float(np.mean(ours)),
        "line_mean_error_gb": float(np.mean(lines)),
        "median_error_gb": float(np.median(ours)),
        "line_median_error_gb": float(np.median(lines)),
        "cpu_ms": (time.process_time() - began) / volumes * 1000,
    }


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=200, help="of each kind")
    args = parser.parse_args()
    results = {kind: measured(kind, args.volumes) for kind in KINDS}
    for kind, found in results.items():
        print(
            f"{kind:10}  covered {found['coverage']:.2f}   mean error {found['mean_error_gb']:6.1f} GB, a line "
            f"{found['line_mean_error_gb']:6.1f} GB   median {found['median_error_gb']:5.1f} and "
            f"{found['line_median_error_gb']:5.1f} GB   {found['cpu_ms']:.0f} ms CPU"
        )
    coverage = float(np.mean([found["coverage"] for found in results.values()]))
    ratio = sum(found["mean_error_gb"] for found in results.values()) / sum(
        found["line_mean_error_gb"] for found in results.values()
    )
    worst = max(found["mean_error_gb"] / found["line_mean_error_gb"] for found in results.values())
    missed = []
    if not 0.7 <= coverage <= 0.9:
        missed.append(f"the 80 % interval covers {coverage:.2f} of all, not 0.70 to 0.90")
    if ratio >= 1:
        missed.append(f"its error is {ratio:.2f} of a straight line's")
    if worst >= 1:
        missed.append(f"of the worst kind its error is {worst:.2f} of a straight line's")
    print(
        f"in all: covered {coverage:.2f}; {ratio:.2f} of a straight line's error, {worst:.2f} of the worst kind"
    )
    return judged(RESULT, {"volumes_of_each_kind": args.volumes, "kinds": results}, missed)


if __name__ == "__main__":
    raise SystemExit(main())
