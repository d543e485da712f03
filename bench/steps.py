"""How long one message holds the loop: each hostile message of tests/unit/steps, the longest of its steps.

    ./run bench steps [--message NAME[,NAME]]

A step is what the event loop calls: all others wait for it. Times are CPU time of the gateway's own code, sockets
played; ``x plain`` compares with what no gateway avoids in the same run: a read of 256,000 bytes full of the smallest
requests there are, passed on as they are. Then quotas are altered in both stores, 500 and 10,000 in one request. Exits
with 1 where a step takes more than 50 ms.
"""

import argparse
import gc
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the messages are the tests'

from tests.unit.steps.quota_messages import ALL_ATTACKS as ATTACKS
from tests.unit.steps.quota_messages import ENTITIES, MANY
from tests.unit.steps.stand import Measure
from tests.unit.steps.stores import STORES, alter_in_store

from relay import commit

RESULT = Path(__file__).parent / "results" / "steps.json"
PLAIN = "many_heartbeats"
STEP_MS_MAX = 50.0
ROUNDS = 3


class Times(Measure):
    """Takes the CPU time of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.ms_of_steps: list[float] = []
        self.what = ""

    def take(self, what: str, step: Callable[[], object]) -> None:
        begin = time.thread_time()
        step()
        took_ms = (time.thread_time() - begin) * 1000
        if took_ms > max(self.ms_of_steps, default=0.0):
            self.what = what
        self.ms_of_steps.append(took_ms)


def measured(name: str) -> Times:
    """The best of some rounds: other work on the machine only ever adds."""
    rounds = []
    for _ in range(ROUNDS):
        times = Times()
        ATTACKS[name](times)
        rounds.append(times)
    return min(rounds, key=lambda times: max(times.ms_of_steps))


def main() -> int:
    options = argparse.ArgumentParser(description="how long one message holds the loop")
    options.add_argument(
        "--message",
        help="of those in tests/unit/steps/hostile.py and quota_messages.py; with commas",
    )
    args = options.parse_args()
    names = args.message.split(",") if args.message else list(ATTACKS)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        options.error(f"there is no message {unknown[0]}; known are {', '.join(ATTACKS)}")
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # as the gateway does
    plain_ms = max(measured(PLAIN).ms_of_steps)
    print(
        f"{'message':<46}{'longest step':>13}{'x plain':>9}{'steps':>8}{'all of them':>13}  where"
    )
    worst_ms = 0.0
    kept: dict[str, Any] = {"command": "./run bench steps", "commit": commit(), "messages": {}}
    for name in names:
        times = measured(name)
        longest_ms = max(times.ms_of_steps)
        worst_ms = max(worst_ms, longest_ms)
        print(
            f"{name:<46}{longest_ms:>10.1f} ms{longest_ms / plain_ms:>9.2f}{len(times.ms_of_steps):>8}"
            f"{sum(times.ms_of_steps):>10.0f} ms  {times.what}",
            flush=True,
        )
        kept["messages"][name] = {"longest step, ms": round(longest_ms, 1), "where": times.what}
    if args.message is None:
        kept["alterations of quotas"] = alterations()
        kept["the longest, ms"] = round(worst_ms, 1)
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"the longest of all: {worst_ms:.1f} ms, {worst_ms / plain_ms:.2f} x plain")
    return int(worst_ms > STEP_MS_MAX)


def alterations() -> dict[str, dict[str, float]]:
    """Of so many quotas in one request, from its first byte to its answer, while 5,000 clients are counted."""
    found = {}
    for source in STORES:
        for count in (MANY, ENTITIES):
            of_message = measured("alter_500_quotas" if count == MANY else "alter_10_000_quotas")
            with tempfile.TemporaryDirectory(prefix="kvota-steps-") as folder:
                of_store = Times()
                alter_in_store(of_store, source, Path(folder) / "quotas.json", count=count)
            steps = of_message.ms_of_steps + of_store.ms_of_steps
            name = f"{count} in a {source}"
            found[name] = {
                "longest step, ms": round(max(steps), 1),
                "all steps, ms": round(sum(steps), 1),
                "steps": len(steps),
            }
            print(
                f"{'alter quotas, ' + name:<46}{max(steps):>10.1f} ms{'':>9}{len(steps):>8}{sum(steps):>10.0f} ms"
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
