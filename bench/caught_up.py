"""When is a new record with consumers that have read all there is, under a quota with plenty of room?

    ./run bench caught_up [--consumers 100] [--limit 100000000] [--record-bytes 200,20000] [--parts 5] [--records 40]

The consumers of tests/endurance/caught_up, on each way as many at the same time: straight to the broker, through a gateway
without a quota, through one with a quota by each algorithm; one of them waits for an hour, the others for 500 ms. First
with gateways that have run for a while, then in parts that each begin right behind a restart of all of them. Latency is from when a
record is produced until it is with a consumer; of p50 and p99 the median of the parts. It exits 1 where a record is missing,
or p99 under a quota is more than 10 ms above that without one, or above the broker's.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the consumers are the tests'

from tests.endurance.caught_up import (  # noqa: E402
    ALGORITHMS,
    BROKER,
    UNLIMITED,
    Plan,
    Seen,
    run_caught_up,
)
from tests.endurance.gated_kafka import HOST  # noqa: E402

from kvota.localkafka import LocalKafka  # noqa: E402
from verdict import judged  # noqa: E402

RESULT = HERE / "results" / "caught_up.json"
MORE_MS_MAX = 10.0


def figures(parts: list[Seen]) -> dict[str, float]:
    """Of one way in one phase."""

    def median(share: float) -> float:
        return statistics.median(part.quantile(share) for part in parts)

    patient = sorted(ms for part in parts for ms in part.patient_ms)
    return {
        "p50_ms": median(0.5),
        "p99_ms": median(0.99),
        "worst_ms": max(part.latencies_ms[-1] for part in parts),
        "patient_p99_ms": patient[int(len(patient) * 0.99)],
        "missing": sum(part.missing for part in parts),
        "twice": sum(part.twice for part in parts),
    }


def missed_bars(phase: str, found: dict[str, dict[str, float]]) -> list[str]:
    missed = [
        f"{phase}, {way}: {values[name]} {name}"
        for way, values in found.items()
        for name in ("missing", "twice")
        if values[name]
    ]
    for algorithm in ALGORITHMS:
        for other in (UNLIMITED, BROKER):
            more_ms = found[algorithm]["p99_ms"] - found[other]["p99_ms"]
            if more_ms > MORE_MS_MAX:
                missed.append(f"{phase}: p99 by {algorithm} is {more_ms:.1f} ms above {other}'s")
    return missed


def main() -> int:
    options = argparse.ArgumentParser(description="consumers that have read all there is")
    options.add_argument("--consumers", type=int, default=100)
    options.add_argument("--limit", type=float, default=1e8, help="bytes/s of all of a way")
    options.add_argument("--record-bytes", default="200,20000", help="sizes, with commas")
    options.add_argument("--parts", type=int, default=5, help="of each size, and as many restarts")
    options.add_argument("--records", type=int, default=40, help="of each part, on each way")
    args = options.parse_args()
    plan = Plan(
        consumers=args.consumers,
        limit=args.limit,
        record_bytes=[int(size) for size in args.record_bytes.split(",")],
        parts=args.parts,
        records=args.records,
        pause_s=0.03,
        settle_s=2.0,
    )
    with (
        tempfile.TemporaryDirectory(prefix="kvota-caught-up-") as folder,
        LocalKafka(host=HOST) as kafka,
    ):
        seen, missed = run_caught_up(kafka, Path(folder), plan)
    phases = {
        phase: {way: figures(one) for way, one in ways.items()} for phase, ways in seen.items()
    }
    for phase, found in phases.items():
        print(phase)
        for way, values in found.items():
            print(
                f"  {way:<14}p50 {values['p50_ms']:>6.2f} ms  p99 {values['p99_ms']:>6.1f} ms  worst "
                f"{values['worst_ms']:>6.1f} ms; waits for an hour: p99 {values['patient_p99_ms']:>6.1f} ms"
            )
        missed += missed_bars(phase, found)
    kept = {
        "command": f"./run bench caught_up {' '.join(sys.argv[1:])}".rstrip(),
        "consumers": plan.consumers,
        "limit_bytes_per_s": plan.limit,
        "parts": plan.parts,
        "records": plan.records,
        "load": os.getloadavg()[0],
        "phases": phases,
        "missed": missed,
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
