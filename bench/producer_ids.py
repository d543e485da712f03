"""What the quota on producer ids costs: time and memory for an id, beside a set of Python and ``rbloom``.

    ./run bench producer_ids [--many 1000000]

Time: ``ProducerIds.admit`` of known, new and refused ids; ``in`` and ``add`` of a set and of rbloom, which
keep no time and no quota. CPU ns, medians of interleaved rounds. Memory: the bits of the filters for an
id when every id comes once in its window, and when every id comes in every layer's time, each with the
false positives measured; then all that Python has allocated for 5,000 users of 100 ids; and what a user
takes who sends ``--many`` new ids under a quota of 100, and without any. Last, how many ids of a crash
loop pass uncounted, with other hash keys.
"""

import argparse
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from rbloom import Bloom

from kvota.engine.bloom import mixed
from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import KNOWN, ProducerIds

HERE = Path(__file__).parent
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COUNTS = (100, 10_000, 1_000_000)
ROUNDS, LOOKS = 5, 20_000
PROBES = 100_000
# Kafka gives ids out in blocks of so many for each broker: here every producer is on another broker.
BLOCK = 1_000
KNOWN_MAX_US, NEW_MAX_US, BYTES_MAX, CONFUSED_MAX = 3.0, 6.0, 6.2, 0.01
USERS, IDS_OF_USER = 5_000, 100
# A new id so often for an hour, under this quota, once with each hash key.
CRASH_MS, CRASH_QUOTA, CRASH_KEYS = 100, 100.0, 20


def id_of(number: int) -> int:
    return number * BLOCK


def filled(count: int, layering: Layering | None = None, *, again: bool = False) -> ProducerIds:
    """A user with so many ids, evenly over the window; ``again``: all of them in each layer's time.

    The quota is what the ids need: so many new ones in a window.
    """
    ids = ProducerIds(layering)
    if not again:
        for number in range(count):
            ids.learn("u", count, id_of(number), NOW_MS + number * HOUR_MS // count)
        return ids
    # The first layers are as small as the quota tells; few ids go on until all are of one size.
    for layer in range(9 if count <= 10_000 else 5):
        for number in range(count):
            ids.learn("u", count, id_of(number), NOW_MS + layer * HOUR_MS // 4)
    return ids


def confused(ids: ProducerIds, count: int) -> float:
    of_user = ids.users["u"]
    words = (mixed(id_of(count + number), ids.hash_key) for number in range(PROBES))
    return sum(any(layer.holds_word(word) for layer in of_user.layers) for word in words) / PROBES


# ------------------------------------------------------------------ time


def taken_us(look: Callable[[int], object], first: int) -> float:
    start = time.thread_time()
    for number in range(first, first + LOOKS):
        look(number)
    return (time.thread_time() - start) / LOOKS * 1e6


class Subjects:
    """What is timed; each takes a running number."""

    def __init__(self, count: int) -> None:
        self.rate = float(count)
        self.ids, self.over = filled(count), filled(count)
        self.now_ms = NOW_MS + (count - 1) * HOUR_MS // count
        # Those that a producer's next batch would find in the newest layer.
        self.newest = [id_of(count - 1 - number % max(1, count // 5)) for number in range(LOOKS)]
        self.set = {id_of(number) for number in range(count)}
        self.bloom = Bloom(count, 0.01)
        self.bloom.update(self.set)
        number = 0
        while self.over.admit("u", self.rate, id_of(10**9 + number), self.now_ms) <= 0:
            number += 1

    def known(self, number: int) -> None:
        assert self.ids.admit("u", self.rate, self.newest[number % LOOKS], self.now_ms) == KNOWN

    def refused(self, number: int) -> None:
        self.over.admit("u", self.rate, id_of(10**8 + number), self.now_ms)

    def set_known(self, number: int) -> bool:
        return self.newest[number % LOOKS] in self.set

    def set_new(self, number: int) -> None:
        self.set.add(id_of(10**7 + number))

    def rbloom_known(self, number: int) -> bool:
        return self.newest[number % LOOKS] in self.bloom

    def rbloom_new(self, number: int) -> None:
        self.bloom.add(id_of(10**7 + number))


class NewIds:
    """New ids as a quota lets them through: users whose window is full, and as many in the next one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.users = max(1, LOOKS // count)
        self.ids = ProducerIds()
        for user in range(self.users):
            for number in range(count):
                now_ms = NOW_MS + number * HOUR_MS // count
                self.ids.learn(str(user), count, id_of(number), now_ms)
        self.names = [str(user) for user in range(self.users)]

    def new(self, number: int) -> None:
        turn, user = divmod(number, self.users)
        now_ms = NOW_MS + HOUR_MS + turn * HOUR_MS // self.count
        self.ids.admit(self.names[user], self.count, id_of(self.count + turn), now_ms)


def times_us(count: int) -> dict[str, float]:
    """Medians in µs for each subject, with so many ids known."""
    subjects, of_new = Subjects(count), NewIds(count)
    looks = {
        "known": subjects.known,
        "new": of_new.new,
        "refused": subjects.refused,
        "set, known": subjects.set_known,
        "set, new": subjects.set_new,
        "rbloom, known": subjects.rbloom_known,
        "rbloom, new": subjects.rbloom_new,
    }
    found: dict[str, list[float]] = {}
    for round_number in range(ROUNDS):
        for name, look in looks.items():
            found.setdefault(name, []).append(taken_us(look, round_number * LOOKS))
    assert of_new.ids.refused == 0
    return {name: statistics.median(values) for name, values in found.items()}


# ------------------------------------------------------------------ memory


def allocated(make: Callable[[], object]) -> int:
    """Bytes that Python has allocated for what is made."""
    tracemalloc.start()
    made = make()
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made is not None
    return held


def memory_of(count: int) -> dict[str, dict[str, float]]:
    """Bytes for an id, and the part of new ids that look known."""
    of_set = sys.getsizeof(set(map(id_of, range(count)))) + count * sys.getsizeof(id_of(count - 1))
    bloom = Bloom(count, 0.01)
    bloom.update(map(id_of, range(count)))
    in_bloom = sum(id_of(count + number) in bloom for number in range(PROBES)) / PROBES
    found = {
        "set": {"bytes": of_set / count, "false_positives": 0.0},
        "rbloom, no window": {"bytes": bloom.size_in_bits / 8 / count, "false_positives": in_bloom},
    }
    for name, asked, again in (
        ("each id once, as it is by default", Layering().false_positive_rate, False),
        ("each id in every layer, by default", Layering().false_positive_rate, True),
        ("each id once", 0.01, False),
        ("each id in every layer", 0.01, True),
        ("each id in every layer, 3.5 % asked", 0.035, True),
    ):
        ids = filled(count, Layering(false_positive_rate=asked), again=again)
        found[name] = {
            "bytes": ids.memory.used_bytes / count,
            "false_positives": confused(ids, count),
        }
    return found


def crowd() -> ProducerIds:
    ids = ProducerIds()
    for number in range(IDS_OF_USER):
        for user in range(USERS):
            now_ms = NOW_MS + number * HOUR_MS // IDS_OF_USER
            ids.admit(f"user-{user}", float(IDS_OF_USER), id_of(number) + user % BLOCK, now_ms)
    return ids


def crowd_of_sets() -> dict[str, set[int]]:
    return {
        f"user-{user}": {id_of(number) + user % BLOCK for number in range(IDS_OF_USER)}
        for user in range(USERS)
    }


def of_one_user(many: int, *, quota: float | None) -> ProducerIds:
    ids = ProducerIds()
    for number in range(many):
        if quota is None:
            ids.learn("u", None, id_of(number), NOW_MS)
        else:
            ids.admit("u", quota, id_of(number), NOW_MS)
    return ids


def uncounted(asked: float) -> list[int]:
    """How many ids of a crash loop are taken for known ones, with each hash key, the least first."""
    found = []
    for key in range(CRASH_KEYS):
        ids = ProducerIds(Layering(false_positive_rate=asked), hash_key=mixed(key, 0))
        found.append(
            sum(
                ids.admit("u", CRASH_QUOTA, number, NOW_MS + number * CRASH_MS) == KNOWN
                for number in range(HOUR_MS // CRASH_MS)
            )
        )
    return sorted(found)


def missed_bars(times: dict[int, dict[str, float]], memory: dict[int, dict]) -> list[str]:
    missed = []
    for count in COUNTS:
        for name, most in (("known", KNOWN_MAX_US), ("new", NEW_MAX_US)):
            if times[count][name] > most:
                missed.append(
                    f"{count:,} ids: {name} {times[count][name]:.2f} µs; the bar is {most}"
                )
        # The best that holds 1 % when every id is in all layers: the least favourable case.
        in_all = [v for name, v in memory[count].items() if name.startswith("each id in every")]
        held = [v["bytes"] for v in in_all if v["false_positives"] <= CONFUSED_MAX]
        if not held or min(held) > BYTES_MAX:
            missed.append(f"{count:,} ids: {held} bytes an id at 1 %; the bar is {BYTES_MAX}")
        if memory[count]["each id once"]["false_positives"] > CONFUSED_MAX:
            missed.append(f"{count:,} ids: over 1 % are confused")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description="cost of the quota on producer ids")
    parser.add_argument("--many", type=int, default=1_000_000, help="ids of one user (1000000)")
    many = parser.parse_args().many
    times = {count: times_us(count) for count in COUNTS}
    print(f"{'CPU µs an id':<38}" + "".join(f"{count:>12,}" for count in COUNTS))
    for name in times[COUNTS[0]]:
        print(f"{name:<38}" + "".join(f"{times[count][name]:>12.2f}" for count in COUNTS))
    memory = {count: memory_of(count) for count in COUNTS}
    print(f"{'bytes an id (false positives)':<38}" + "".join(f"{count:>16,}" for count in COUNTS))
    for name in memory[COUNTS[0]]:
        cells = [memory[count][name] for count in COUNTS]
        shown = (f"{v['bytes']:.2f} ({v['false_positives']:.2%})" for v in cells)
        print(f"{name:<38}" + "".join(f"{cell:>16}" for cell in shown))
    users = {
        "kvota": allocated(crowd) / USERS,
        "dict of sets": allocated(crowd_of_sets) / USERS,
    }
    print(f"{USERS:,} users of {IDS_OF_USER} ids, all of Python's bytes for a user: {users}")
    with_quota, without = of_one_user(many, quota=100.0), of_one_user(many, quota=None)
    one = {
        "filter bytes under a quota of 100": with_quota.memory.used_bytes,
        "new ids admitted": with_quota.admitted,
        "filter bytes without a quota": without.memory.used_bytes,
        "put in without room": without.memory.overfilled,
    }
    print(f"one user, {many:,} ids at once: {one}")
    crashed = {str(asked): uncounted(asked) for asked in (Layering().false_positive_rate, 0.01)}
    print(f"uncounted of {HOUR_MS // CRASH_MS:,} ids of a crash loop, by rate asked: {crashed}")
    missed = missed_bars(times, memory)
    results = {
        "command": "./run bench producer_ids",
        "python": sys.version.split()[0],
        "us": times,
        "memory": memory,
        "bytes_of_a_user_with_100_ids": users,
        "one_user": {"ids": many, **one},
        "uncounted_of_a_crash_loop": crashed,
    }
    text = json.dumps(results, indent=1, default=float) + "\n"
    (HERE / "results" / "producer_ids.json").write_text(text)
    print("\n".join(missed) or "all bars hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
