"""A plan made from a run in shadow mode, applied, and met by the same tenants: a real Kafka, real gateways.

    ./run bench live_plan [--seconds 60] [--gateways 3]

Seven tenants whose demand is known (the seed's): *steady*, *diurnal*, *bursty*, *quiet*, *newcomer* (at one broker only), and two
*greedy* ones with the weights 1 and 2, which want about three times their share. They come through three gateways to two
brokers of 1.2 MB/s, days of 12 s. First they are recorded in shadow mode. Then ``kvota recommend`` plans, ``kvota quotas apply``
brings the plan into force through one gateway (they share a topic), and the same demand comes once more to gateways that
enforce it by ``token_bucket``. Bars, from the record of that run: of those who behave less than 0.1 % is throttled; each broker
lets in at most its capacity in 99.9 % of the seconds, behind the first three; the greedy ones have their parts by weight of
what the others leave, 5 % more or less, worked out from the capacity and the demand alone. What replay said of each tenant
stands beside what happened.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the tenants are the tests'

from tests.integration.live_plan.circle import (  # noqa: E402
    MB,
    USERS,
    Said,
    Trial,
    judged,
    make_topic,
    recommended,
    recorded,
)
from tests.integration.live_plan.demand import Demand  # noqa: E402

import verdict  # noqa: E402
from kvota.localkafka import LocalKafka  # noqa: E402

RESULT = HERE / "results" / "live_plan.json"
CAPACITY = 1_200_000
DAY_S = 12.0
BROKERS = 2


def kvota(*words: str) -> Said:
    """The command itself, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default: 60)")
    parser.add_argument("--gateways", type=int, default=3, help="(default: 3)")
    options = parser.parse_args()
    demand = Demand(seconds=options.seconds, day_s=DAY_S, gateways=options.gateways)
    trial = Trial(demand=demand, capacity=CAPACITY)
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kvota-live-plan-") as name,
        LocalKafka(nodes=BROKERS, host="127.0.0.2", users=USERS) as kafka,
    ):
        folder = Path(name)
        make_topic(kafka)
        shadow = recorded(trial, kafka, folder / "shadow")
        plan = folder / "plan.yaml"
        recommended(trial, ["--events", *map(str, shadow.records)], plan, kvota)
        found = judged(trial, kafka, folder / "enforced", plan, kvota)
    for name, rows in found.figures.items():
        print(f"{name}:")
        for row, figures in dict(rows).items():
            print("  ", row, json.dumps(figures))
    kept = {
        "seconds": options.seconds,
        "gateways": options.gateways,
        "capacity_mb_per_s": CAPACITY / MB,
        "options": " ".join(trial.options),
        "took_s": round(time.monotonic() - began_s),
        **found.figures,
    }
    return verdict.judged(RESULT, kept, found.missed)


if __name__ == "__main__":
    sys.exit(main())
