"""Who holds a record for delivered whose batch, the first of its producer, was refused while the second one passed?

    ./run bench first_sequence [--producers 5] [--where WHERE ...] [--library LIBRARY ...]

A tap refuses the first batch of each producer with error 6 or 19, in the place of a broker, and lets all others pass: before
a broker without a gateway, and behind a gateway. Beside it the gateway's own refusals, by the quota on new producer ids, which end when the quota
is raised. Each producer is a new one, in a partition of its own, with ten records in ten batches, and one or five requests in flight. What it says is compared
with what is in the log. It exits 1 where a record was lost, or is there twice, under the gateway's own refusals.
"""

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.endurance.first_sequences import (  # noqa: E402
    LIBRARIES,
    PIPELINING,
    PLAIN,
    QUOTA,
    THROUGH,
    Beginnings,
    run_beginnings,
    tapped_kafka,
)

from relay import commit  # noqa: E402
from verdict import judged  # noqa: E402

RESULT = HERE / "results" / "first_sequence.json"
ERRORS = (6, 19)
PLACES = {"plain": PLAIN, "through": THROUGH, "quota": QUOTA}


def plans(producers: int, where: list[str], libraries: list[str]) -> list[Beginnings]:
    return [
        Beginnings(
            library=library, where=PLACES[place], in_flight=number, error=error, producers=producers
        )
        for place in where
        for error in (ERRORS if PLACES[place] != QUOTA else ERRORS[-1:])
        for library in libraries
        for number in ((1, 5) if library in PIPELINING else (1,))
    ]


def main() -> int:
    options = argparse.ArgumentParser(description="first batches that are refused")
    options.add_argument("--producers", type=int, default=5)
    options.add_argument("--where", nargs="+", choices=PLACES, default=list(PLACES))
    options.add_argument("--library", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    args = options.parse_args()
    rows, missed = [], []
    with tempfile.TemporaryDirectory(prefix="kvota-bench-") as folder, tapped_kafka() as kafka:
        for number, plan in enumerate(plans(args.producers, args.where, args.library)):
            outcome = run_beginnings(kafka, Path(folder) / f"round-{number}", plan)
            name = f"{plan.where}, {plan.library}, {plan.in_flight} in flight, error {plan.error}"
            figures = asdict(outcome)
            print(f"{name}: " + ", ".join(f"{what} {figure}" for what, figure in figures.items()))
            rows.append({"round": name, **figures})
            if plan.where == QUOTA and (outcome.lost or outcome.twice):
                missed.append(f"{name}: {outcome.lost} lost, {outcome.twice} twice")
    command = f"./run bench first_sequence --producers {args.producers}"
    return judged(RESULT, {"command": command, "commit": commit(), "rounds": rows}, missed)


if __name__ == "__main__":
    sys.exit(main())
