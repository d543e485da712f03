"""How long a report takes from its tables, and how large it is.

    ./run bench report [--lines 5000] [--plots 10]

Made-up lines with names that want to be markup. Bars for 5,000 lines: below 3 s, what draws being loaded among them, and
below 15 MB. The machine must have a core to spare: it is time of one thread, and the CPU time stands beside it.
"""

import argparse
import sys
import time
from pathlib import Path

from verdict import judged

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.unit.app.report.made_up import content  # noqa: E402

RESULT = Path(__file__).parent / "results" / "report.json"
SECONDS_MAX, BYTES_MAX = 3.0, 15_000_000


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=5_000)
    parser.add_argument("--plots", type=int, default=10)
    args = parser.parse_args()
    made = content(lines=args.lines, plots=args.plots)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    from kvota.app.report.page import page  # noqa: PLC0415  (loading it is measured)

    loaded_s = time.perf_counter() - began_s
    html = page(made).encode()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    print(
        f"{args.lines:,} lines, {args.plots} with plots: {took_s:.2f} s ({cpu_s:.2f} s CPU), {loaded_s:.2f} s of it to load "
        f"what draws; {len(html) / 1e6:.1f} MB"
    )
    missed = []
    if min(took_s, cpu_s) > SECONDS_MAX:
        missed.append(f"it takes {took_s:.2f} s ({cpu_s:.2f} s CPU), more than {SECONDS_MAX} s")
    if len(html) > BYTES_MAX:
        missed.append(f"it has {len(html):,} bytes, more than {BYTES_MAX:,}")
    kept = {
        "lines": args.lines,
        "plots": args.plots,
        "seconds": round(took_s, 2),
        "cpu_s": round(cpu_s, 2),
        "load_s": round(loaded_s, 2),
        "bytes": len(html),
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    raise SystemExit(main())
