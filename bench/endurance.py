"""What held goes on to hold: clients under kills, reloads, slow readers and a full disk, for minutes.

    ./run bench endurance [--part NAME[,NAME]] [--algorithm sampled_rate,token_bucket]

The parts are those of tests/endurance, with longer plans, on a real Kafka: each says what it counts and what must hold.
It exits 1 where something does not. The figures of a part are kept beside those of the others.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the parts are the tests'

from tests.endurance.findings import Findings  # noqa: E402
from tests.endurance.gated_kafka import HOST  # noqa: E402
from tests.endurance.kills import Kills, run_kills  # noqa: E402

from kvota.localkafka import LocalKafka  # noqa: E402
from kvota.model.quota_type import Algorithm  # noqa: E402

RESULT = HERE / "results" / "endurance.json"
KILLS = Kills(
    of_broker=6,
    of_gateway=3,
    between_s=6.0,
    producers=5,
    records_per_s=2_500,
    limit=60_000,
    with_console=True,
)


def kills(folder: Path, algorithm: Algorithm) -> Findings:
    """Six kills of the broker and three of the gateway; idempotent producers, transactions, a copy in transactions."""
    with LocalKafka(host=HOST) as kafka:
        return run_kills(kafka, folder, algorithm, KILLS)


PARTS: Mapping[str, Callable[[Path, Algorithm], Findings]] = {"kills": kills}


def print_figures(figures: Mapping[str, object], indent: str = "  ") -> None:
    for name, figure in figures.items():
        if isinstance(figure, Mapping):
            print(f"{indent}{name}")
            print_figures(figure, indent + "  ")
        else:
            shown = f"{figure:,}" if isinstance(figure, int | float) else figure
            print(f"{indent}{name:<32}{shown}")


def keep(part: str, algorithm: Algorithm, found: Findings, seconds: float) -> None:
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    kept.setdefault(part, {})[algorithm.value] = {
        "command": f"./run bench endurance --part {part} --algorithm {algorithm.value}",
        "seconds": round(seconds),
        "figures": found.figures,
        "missed": found.missed,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    options = argparse.ArgumentParser(description="what held goes on to hold")
    options.add_argument("--part", help=f"of {', '.join(PARTS)}; several with commas")
    options.add_argument("--algorithm", help=f"of {', '.join(Algorithm)}; with commas; else both")
    args = options.parse_args()
    names = args.part.split(",") if args.part else list(PARTS)
    for name in names:
        if name not in PARTS:
            options.error(f"there is no part {name}; known are {', '.join(PARTS)}")
    try:
        wanted = args.algorithm.split(",") if args.algorithm else list(Algorithm)
        algorithms = [Algorithm(name) for name in wanted]
    except ValueError as error:
        options.error(f"{error}; known are {', '.join(Algorithm)}")
    missed = []
    for name in names:
        for algorithm in algorithms:
            print(f"{name}, {algorithm}: {PARTS[name].__doc__}", flush=True)
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="kvota-endurance-") as folder:
                found = PARTS[name](Path(folder), algorithm)
            print_figures(found.figures)
            keep(name, algorithm, found, time.monotonic() - begin)
            missed += [f"{name}, {algorithm}: {text}" for text in found.missed]
    print("\n".join(missed) or "all of it holds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
