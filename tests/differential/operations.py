"""Seeded random operations for the subjects; the same seed gives the same operations anywhere."""

import random
from collections.abc import Callable

from kvota.model.quota_type import FACTS, QuotaType

Operation = list[str]

_SAMPLES = (1, 2, 3, 11)
_SAMPLES_MS = (1000, 1000, 1000, 100, 7, 1, 30_000, 4_000_000)
_LIMITS = (1.0, 5.0, 10.0, 0.015, 100.0, 1000.0, 1234.5, 1e6, 5e7)
_ODD_LIMITS = (0.0, 1e-300, 1e300, 2.0**53 + 2, 2.0**63, 1e18, float("inf"))
_ODD_VALUES = (
    *("0", "0.0", "-0.0", "1e300", "-1e300", "9007199254740993", "9007199254740991", "inf"),
    *("4503599627370496", "4503599627370497", "-4503599627370497", "9223372036854775807"),
    *("1e-300", "0.1", "0.3333333333333333", "1e16", "-9007199254740993", "nan"),
)
_HOUR_MS = 3_600_000
_MUTATION_FLOOR = FACTS[QuotaType.CONTROLLER_MUTATION].floor


class Agenda:
    """A clock that mostly runs, sometimes jumps, and sometimes goes back."""

    def __init__(self, rng: random.Random, sample_ms: int) -> None:
        self._rng = rng
        self._sample_ms = sample_ms
        # Small times too: a bucket is full at first only where milliseconds are huge.
        self.now_ms = rng.choice((1_700_000_000_000, 1_700_000_000_123, 0, 5, 20_000))
        self.jumped = False

    def tick(self) -> str:
        rng, sample_ms = self._rng, self._sample_ms
        self.jumped = rng.random() < 0.02
        if self.jumped:
            self.now_ms += rng.choice((_HOUR_MS, _HOUR_MS + 1, 5000 * 1000, -60_000, -2 * _HOUR_MS))
            self.now_ms = max(self.now_ms, 0)
            return str(self.now_ms)
        step = rng.random()
        if step < 0.35:
            pass
        elif step < 0.60:
            self.now_ms += rng.randrange(50)
        elif step < 0.75:
            self.now_ms += rng.randrange(2 * sample_ms)
        elif step < 0.87:
            self.now_ms += sample_ms * rng.randrange(1, 14) + rng.choice((-1, 0, 0, 1))
        elif step < 0.93:
            self.now_ms += rng.randrange(30_000)
        else:
            self.now_ms = max(self.now_ms - rng.randrange(1, 100 + 3 * sample_ms), 0)
        return str(self.now_ms)


def _value(rng: random.Random, scale: float, *, odd: float = 0.01) -> str:
    """Mostly whole numbers around the scale; fractions, give-backs and odd ones among them."""
    kind = rng.random()
    if kind < odd:
        return rng.choice(_ODD_VALUES)
    if kind < 0.80:
        return str(rng.randrange(max(int(2 * scale), 2)))
    if kind < 0.90:
        return repr(rng.uniform(0, 2 * scale))
    if kind < 0.95:
        return str(-rng.randrange(max(int(scale), 2)))
    return "0"


def _limit(rng: random.Random) -> float:
    return rng.choice(_ODD_LIMITS) if rng.random() < 0.08 else rng.choice(_LIMITS)


def _scale(rng: random.Random, limit: float, samples: int, sample_ms: int) -> float:
    """A size of charge that keeps a counter near its limit at a few charges per sample."""
    whole = min(limit * samples * sample_ms / 1000, 1e12)
    return max(whole / rng.choice((3, 10, 40)), 0.01)


def token_bucket(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    operations: list[Operation] = []
    while len(operations) < count:
        samples, sample_ms, limit = rng.choice(_SAMPLES), rng.choice(_SAMPLES_MS), _limit(rng)
        agenda, scale = Agenda(rng, sample_ms), _scale(rng, limit, samples, sample_ms)
        operations.append(["new", str(samples), str(sample_ms), repr(limit)])
        for _ in range(rng.randrange(20, 120)):
            step = rng.random()
            if step < 0.06:
                limit = _limit(rng)
                samples = rng.choice(_SAMPLES)
                text = "none" if rng.random() < 0.3 else repr(limit)
                operations.append(["configure", str(samples), str(sample_ms), text])
            elif step < 0.60:
                operations.append(["record", _value(rng, scale), agenda.tick()])
            else:
                operations.append(["measure", agenda.tick()])
    return operations


def rate(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    operations: list[Operation] = []
    while len(operations) < count:
        samples, sample_ms = rng.choice(_SAMPLES), rng.choice(_SAMPLES_MS)
        agenda, scale = Agenda(rng, sample_ms), rng.choice((0.7, 50.0, 5000.0, 1e6))
        operations.append(["new", str(samples), str(sample_ms)])
        for _ in range(rng.randrange(20, 150)):
            if rng.random() < 0.6:
                operations.append(["record", _value(rng, scale), agenda.tick()])
            else:
                operations.append(["measure", agenda.tick()])
    return operations


def sensor(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    operations: list[Operation] = []
    while len(operations) < count:
        kind = rng.choice(("rate", "rate", "bucket"))
        samples, sample_ms, limit = rng.choice(_SAMPLES), rng.choice(_SAMPLES_MS), _limit(rng)
        agenda, scale = Agenda(rng, sample_ms), _scale(rng, limit, samples, sample_ms)
        odd = rng.choice((0.0, 0.0, 0.01))
        operations.append(["new", kind, str(samples), str(sample_ms), repr(limit)])
        for _ in range(rng.randrange(50, 250)):
            step = rng.random()
            if step < 0.03:
                operations.append(["limit", "none" if rng.random() < 0.3 else repr(_limit(rng))])
                continue
            word = "record" if step < 0.08 else "charge"
            if kind == "bucket" and step > 0.5:
                word = "take"
            operations.append([word, _value(rng, scale, odd=odd), agenda.tick()])
    return operations


_USERS = ("alice", "bob", "CN=carol, O=x *~", "<default>", "")
_CLIENTS = ("app", "batch job/1", "<default>", "é", "")


def _quota(rng: random.Random, chosen: list[tuple[str, str]], floor: float) -> Operation:
    """Set or remove the quota of an entity of any of the eight levels.

    Below the floor of its type a limit blocks, where Kafka's throttle wraps: nothing to compare.
    """
    if chosen and rng.random() < 0.5:
        user, client = rng.choice(chosen)
    else:
        user = rng.choice(("-", "*", f"={rng.choice(_USERS[:4])}"))
        client = rng.choice(("-", "*", f"={rng.choice(_CLIENTS[:4])}"))
        if user == client == "-":
            user = "*"
    if rng.random() < 0.5:
        if (user, client) in chosen:
            chosen.remove((user, client))
        return ["quota", user, client, "none"]
    chosen.append((user, client))
    return ["quota", user, client, repr(rng.choice((1.0, 10.0, 100.5, 1000.0, 1e6, floor)))]


def client_quota_manager(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    operations: list[Operation] = []
    while len(operations) < count:
        samples, sample_s = rng.choice(_SAMPLES), rng.choice((1, 1, 2, 4000))
        agenda, scale = Agenda(rng, sample_s * 1000), rng.choice((2.0, 30.0, 3000.0))
        chosen: list[tuple[str, str]] = []
        operations.append(["new", str(samples), str(sample_s)])
        for _ in range(rng.randrange(100, 500)):
            step = rng.random()
            if step < 0.10:
                operations.append(_quota(rng, chosen, FACTS[QuotaType.PRODUCE].floor))
            elif step < 0.11:
                operations.append(["purge", agenda.tick()])
            else:
                who = [rng.choice(_USERS), rng.choice(_CLIENTS)]
                how = "refuse" if step > 0.85 else "charge"
                operations.append([how, *who, _value(rng, scale, odd=0.002), agenda.tick()])
    return operations


def controller_mutation_quota_manager(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    operations: list[Operation] = []
    while len(operations) < count:
        samples, sample_s = rng.choice(_SAMPLES), rng.choice((1, 1, 2))
        agenda, scale = Agenda(rng, sample_s * 1000), rng.choice((2.0, 10.0, 300.0))
        chosen: list[tuple[str, str]] = []
        operations.append(["new", str(samples), str(sample_s)])
        for number in range(rng.randrange(50, 200)):
            if rng.random() < 0.25:
                operations.append(_quota(rng, chosen, _MUTATION_FLOOR))
            operations += _mutation_request(rng, agenda, scale, str(number), chosen)
    return operations


def _mutation_request(
    rng: random.Random, agenda: Agenda, scale: float, number: str, chosen: list[tuple[str, str]]
) -> list[Operation]:
    """One request: a quota object and some topics.

    All within moments, and at one instant after a jump: a broker takes an expired sensor away when
    the request begins, kvota when it is charged, so no sensor may expire in between.
    """
    who = [rng.choice(_USERS), rng.choice(_CLIENTS)]
    now = agenda.tick()
    if rng.random() < 0.1:
        return [["plain", *who, _value(rng, scale, odd=0.002), now]]
    if rng.random() < 0.02:
        return [["purge", now]]
    steps_ms = (0,) if agenda.jumped else (0, 0, 0, 1, 20, -1)
    operations = [["open", number, rng.choice(("strict", "strict", "permissive")), *who, now]]
    for _ in range(rng.randrange(1, 7)):
        step = rng.random()
        now = str(int(now) + rng.choice(steps_ms))
        if step < 0.70:
            operations.append(["charge", number, _value(rng, scale, odd=0.002), now])
        elif step < 0.82:
            operations.append(["back", number, _value(rng, scale / 2, odd=0.0), now])
        elif step < 0.87:
            operations.append(_quota(rng, chosen, _MUTATION_FLOOR))
        else:
            later = rng.choice((0, 1, 500, 10_000, -300))
            operations.append(["left", number, str(int(now) + later)])
    return operations


GENERATORS: dict[str, Callable[[int, int], list[Operation]]] = {
    "token_bucket": token_bucket,
    "rate": rate,
    "sensor": sensor,
    "client_quota_manager": client_quota_manager,
    "controller_mutation_quota_manager": controller_mutation_quota_manager,
}
