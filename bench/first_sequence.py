"""Who holds a record for delivered whose batch, the first of its producer, was refused while the second one passed?

    ./run bench first_sequence [--producers 5] [--restarts 3] [--where WHERE ...] [--library LIBRARY ...]

A tap refuses the first batch of each producer with error 6 or 19, in the place of a broker, and lets all others pass: before
a broker without a gateway, and behind a gateway. Beside it the gateway's own refusals, by the quota on new producer ids, which end when the quota
is raised. Each producer is a new one, in a partition of its own, with ten records in ten batches, and one or five requests in flight. What it says is compared
with what is in the log. Last (``--where restart``) nothing plays a broker: librdkafka's producers write to a partition for the first time when a broker of 400 partitions that was
killed comes back. It exits 1 where a record was lost, or is there twice, under the gateway's own refusals.
"""

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.endurance.first_after_restart import Restarts, run_restarts  # noqa: E402
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
RESTART = "restart"


def plans(producers: int, where: list[str], libraries: list[str]) -> list[Beginnings]:
    return [
        Beginnings(
            library=library, where=PLACES[place], in_flight=number, error=error, producers=producers
        )
        for place in where
        if place != RESTART
        for error in (ERRORS if PLACES[place] != QUOTA else ERRORS[-1:])
        for library in libraries
        for number in ((1, 5) if library in PIPELINING else (1,))
    ]


def said(name: str, figures: dict) -> dict:
    print(f"{name}: " + ", ".join(f"{what} {figure}" for what, figure in figures.items()))
    return {"round": name, **figures}


def tapped_rounds(folder: Path, of_them: list[Beginnings], missed: list[str]) -> list[dict]:
    rows = []
    with tapped_kafka() as kafka:
        for number, plan in enumerate(of_them):
            outcome = run_beginnings(kafka, folder / f"round-{number}", plan)
            refused = "" if plan.where == QUOTA else f", error {plan.error}"
            name = f"{plan.where}, {plan.library}, {plan.in_flight} in flight{refused}"
            rows.append(said(name, asdict(outcome)))
            if plan.where == QUOTA and (outcome.lost or outcome.twice):
                missed.append(f"{name}: {outcome.lost} lost, {outcome.twice} twice")
    return rows


def restarted_rounds(folder: Path, restarts: int) -> list[dict]:
    rows = []
    for through_gateway in (False, True):
        for in_flight in (1, 5):
            plan = Restarts(restarts=restarts, in_flight=in_flight, through_gateway=through_gateway)
            name = f"{restarts} restarts, {THROUGH if through_gateway else PLAIN}, librdkafka, {in_flight} in flight"
            rows.append(said(name, run_restarts(folder / f"restarts-{len(rows)}", plan)))
    return rows


def main() -> int:
    places = [*PLACES, RESTART]
    options = argparse.ArgumentParser(description="first batches that are refused")
    options.add_argument("--producers", type=int, default=5)
    options.add_argument("--restarts", type=int, default=3)
    options.add_argument("--where", nargs="+", choices=places, default=places)
    options.add_argument("--library", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    args = options.parse_args()
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kvota-bench-") as name:
        folder = Path(name)
        rows = tapped_rounds(folder, plans(args.producers, args.where, args.library), missed)
        if RESTART in args.where:
            rows += restarted_rounds(folder, args.restarts)
    command = " ".join(["./run bench first_sequence", *sys.argv[1:]])
    return judged(RESULT, {"command": command, "commit": commit(), "rounds": rows}, missed)


if __name__ == "__main__":
    sys.exit(main())
