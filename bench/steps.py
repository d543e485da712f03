"""How long one message holds the loop: each hostile message of tests/unit/steps, the longest of its steps.

    ./run bench steps [--part messages|alterations] [--message NAME[,NAME]]

A step is what the event loop calls: all others wait for it. Times are CPU time of the gateway's own code, sockets
played; ``x plain`` compares with what no gateway avoids in the same run: a read of 256,000 bytes full of the smallest
requests there are, passed on as they are. Then quotas are altered in both stores, 500 and 10,000 in one request; there
the time of the garbage collector is said apart. Exits with 1 where a step of a message, or one of altering 10,000
quotas, takes more than 50 ms; or one of altering 500 more than 10 ms without the collector, or all of these 100 ms.
"""

import argparse
import gc
import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the messages are the tests'

from tests.unit.steps.quota_messages import ALL_ATTACKS as ATTACKS
from tests.unit.steps.quota_messages import ENTITIES, MANY
from tests.unit.steps.stand import Measure
from tests.unit.steps.stores import STORES, alter_in_store

from relay import commit

RESULT = Path(__file__).parent / "results" / "steps.json"
Figures = dict[str, dict[str, Any]]
PLAIN = "many_heartbeats"
STEP_MS_MAX = 50.0
# Of altering MANY quotas in one request: a step without the garbage collector, and all of its steps with it.
ALTERATION_STEP_MS_MAX, ALTERATION_MS_MAX = 10.0, 100.0
ROUNDS = 3


class Times(Measure):
    """Takes the CPU time of each step, and how much of it was the garbage collector's."""

    def __init__(self) -> None:
        super().__init__()
        self.ms_of_steps: list[float] = []
        self.gc_ms_of_steps: list[float] = []
        self.what = ""

    @property
    def ms_without_gc(self) -> list[float]:
        return [ms - gc_ms for ms, gc_ms in zip(self.ms_of_steps, self.gc_ms_of_steps, strict=True)]

    def take(self, what: str, step: Callable[[], object]) -> None:
        gc_before_s, begin = COLLECTING.took_s, time.thread_time()
        step()
        self.gc_ms_of_steps.append((COLLECTING.took_s - gc_before_s) * 1000)
        took_ms = (time.thread_time() - begin) * 1000
        if took_ms > max(self.ms_of_steps, default=0.0):
            self.what = what
        self.ms_of_steps.append(took_ms)


class _Collecting:
    """The CPU time that the garbage collector has taken on the loop's thread."""

    def __init__(self) -> None:
        self.took_s = 0.0
        self._begin_s = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self._begin_s = time.thread_time()
        else:
            self.took_s += time.thread_time() - self._begin_s


COLLECTING = _Collecting()


def measured(name: str) -> Times:
    return best_of(ATTACKS[name])


def best_of(play: Callable[[Times], object]) -> Times:
    """The best of some rounds: other work on the machine only ever adds."""
    rounds = []
    for _ in range(ROUNDS):
        times = Times()
        play(times)
        rounds.append(times)
    return min(rounds, key=lambda times: max(times.ms_of_steps))


def main() -> int:
    options = argparse.ArgumentParser(description="how long one message holds the loop")
    options.add_argument(
        "--message",
        help="of those in tests/unit/steps/hostile.py and quota_messages.py; with commas; nothing is kept then",
    )
    options.add_argument("--part", help=f"of {', '.join(PARTS)}; else all")
    args = options.parse_args()
    names = args.message.split(",") if args.message else list(ATTACKS)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        options.error(f"there is no message {unknown[0]}; known are {', '.join(ATTACKS)}")
    if args.part not in (None, *PARTS):
        options.error(f"there is no part {args.part}; known are {', '.join(PARTS)}")
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # as the gateway does
    gc.callbacks.append(COLLECTING)
    if args.message:
        _, missed = messages(names)
    else:
        missed = []
        for part in [args.part] if args.part else PARTS:
            figures, missed_here = PARTS[part]()
            keep(part, figures, missed_here)
            missed += missed_here
    print("\n".join(missed) or "all within their bounds")
    return int(bool(missed))


def keep(part: str, figures: Figures, missed: list[str]) -> None:
    """Beside what is kept of the other part."""
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    kept[part] = {
        "command": f"./run bench steps --part {part}",
        "commit": commit(),
        "figures": figures,
        "missed": missed,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def messages(names: Iterable[str] = ATTACKS) -> tuple[Figures, list[str]]:
    """The longest step of each message, and what is too long."""
    plain_ms = max(measured(PLAIN).ms_of_steps)
    print(
        f"{'message':<46}{'longest step':>13}{'x plain':>9}{'steps':>8}{'all of them':>13}  where"
    )
    worst_ms = 0.0
    found: Figures = {}
    for name in names:
        times = measured(name)
        longest_ms = max(times.ms_of_steps)
        worst_ms = max(worst_ms, longest_ms)
        print(
            f"{name:<46}{longest_ms:>10.1f} ms{longest_ms / plain_ms:>9.2f}{len(times.ms_of_steps):>8}"
            f"{sum(times.ms_of_steps):>10.0f} ms  {times.what}",
            flush=True,
        )
        found[name] = {"longest step, ms": round(longest_ms, 1), "where": times.what}
    print(f"the longest of all: {worst_ms:.1f} ms, {worst_ms / plain_ms:.2f} x plain")
    missed = [
        f"{name}: {figures['longest step, ms']} ms; {STEP_MS_MAX:g} are the most"
        for name, figures in found.items()
        if figures["longest step, ms"] > STEP_MS_MAX
    ]
    return found, missed


def alterations() -> tuple[Figures, list[str]]:
    """Of so many quotas in one request, from its first byte to its answer, while 5,000 clients are counted; and what is too long."""
    found: Figures = {}
    missed = []
    for source in STORES:
        for count in (MANY, ENTITIES):
            of_message = measured("alter_500_quotas" if count == MANY else "alter_10_000_quotas")
            of_store = best_of(partial(_alter, source, count))
            both = (of_message, of_store)
            steps = [ms for times in both for ms in times.ms_of_steps]
            without_gc = max(ms for times in both for ms in times.ms_without_gc)
            of_gc = max(ms for times in both for ms in times.gc_ms_of_steps)
            name = f"{count} in a {source}"
            found[name] = {
                "longest step, ms": round(max(steps), 1),
                "longest step without the garbage collector, ms": round(without_gc, 1),
                "longest of the garbage collector, ms": round(of_gc, 1),
                "all steps, ms": round(sum(steps), 1),
                "steps": len(steps),
            }
            print(
                f"{'alter quotas, ' + name:<46}{max(steps):>10.1f} ms{'':>9}{len(steps):>8}{sum(steps):>10.0f} ms"
                f"  {without_gc:.1f} ms without the garbage collector, which took {of_gc:.1f} ms at a time",
                flush=True,
            )
            if count == MANY:
                bounds = ((without_gc, ALTERATION_STEP_MS_MAX), (sum(steps), ALTERATION_MS_MAX))
            else:
                bounds = ((max(steps), STEP_MS_MAX),)
            missed += [
                f"alter quotas, {name}: {took_ms:.1f} ms; {most_ms:g} are the most"
                for took_ms, most_ms in bounds
                if took_ms > most_ms
            ]
    return found, missed


def _alter(source: str, count: int, times: Times) -> None:
    with tempfile.TemporaryDirectory(prefix="kvota-steps-") as folder:
        alter_in_store(times, source, Path(folder) / "quotas.json", count=count)


PARTS = {"messages": messages, "alterations": alterations}

if __name__ == "__main__":
    sys.exit(main())
