"""What seeded tenants want of each broker, through each gateway: when each request comes, and how large it is."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

KB = 1_000
# Of a bursty tenant's day so much, from noon on, is a burst, in which it does ten times its usual.
BURST_AT, BURST_PART, BURST_TIMES = 0.5, 0.1, 10
SWING = 0.5
# A request, and the time to the next one, are so much smaller or larger than usual, at most.
SPREAD = 0.5


class Wanted(NamedTuple):
    """One request, ``at_s`` after the beginning."""

    at_s: float
    value_bytes: int


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One tenant's demand.

    Attributes:
        name: of the user.
        rate: bytes per second, of one broker, through all gateways; the mean of a day.
        request_bytes: about; ``SPREAD`` says how far from it one may be.
        weight: in the plan.
        is_greedy: it wants more than its share; else it behaves.
        from_part: of the time; before, it is not there.
        on_every_broker: False: on the last one only.
    """

    name: str
    rate: float
    request_bytes: int
    weight: float = 1.0
    is_greedy: bool = False
    from_part: float = 0.0
    on_every_broker: bool = True

    @property
    def largest_bytes(self) -> float:
        """Of a request."""
        return self.request_bytes * (1 + SPREAD)

    def times_usual(self, part_of_day: float) -> float:
        """How much of its mean it does at that time of a day."""
        if self.name == "diurnal":
            return 1 + SWING * math.sin(2 * math.pi * part_of_day)
        if self.name == "bursty":
            usual = 1 / (1 + BURST_PART * (BURST_TIMES - 1))
            is_burst = BURST_AT <= part_of_day < BURST_AT + BURST_PART
            return usual * (BURST_TIMES if is_burst else 1)
        return 1.0


TENANTS = (
    Tenant(name="steady", rate=120 * KB, request_bytes=8 * KB),
    Tenant(name="diurnal", rate=100 * KB, request_bytes=5 * KB),
    Tenant(name="bursty", rate=20 * KB, request_bytes=2 * KB),
    Tenant(name="quiet", rate=2 * KB, request_bytes=1 * KB),
    Tenant(
        name="newcomer",
        rate=120 * KB,
        request_bytes=8 * KB,
        from_part=0.2,
        on_every_broker=False,
    ),
    Tenant(name="greedy-1", rate=400 * KB, request_bytes=10 * KB, is_greedy=True),
    Tenant(name="greedy-2", rate=800 * KB, request_bytes=20 * KB, is_greedy=True, weight=2.0),
)
# What a broker can take: the greedy ones want about three times what the others leave.
CAPACITY = 1_000 * KB


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What all of them want; the same seed wants the same.

    Attributes:
        seconds: how long they want it.
        day_s: how long a day is: so often a tenant's habits come again.
        gateways: each has its part of the demand.
        seed: of times and sizes.
        tenants: who.
    """

    seconds: float
    day_s: float
    gateways: int
    seed: int = 16
    tenants: tuple[Tenant, ...] = field(default=TENANTS)

    def of(self, tenant: Tenant, gateway: int, broker: int) -> Iterator[Wanted]:
        """Yield the requests of one tenant to one broker through one gateway, in their order."""
        rng = random.Random(f"{self.seed} {tenant.name} {gateway} {broker}")
        rate = tenant.rate / self.gateways
        at_s = self.seconds * tenant.from_part
        while True:
            now = tenant.times_usual(at_s / self.day_s % 1)
            at_s += tenant.request_bytes / (rate * now) * rng.uniform(1 - SPREAD, 1 + SPREAD)
            if at_s >= self.seconds:
                return
            yield Wanted(at_s, round(tenant.request_bytes * rng.uniform(1 - SPREAD, 1 + SPREAD)))
