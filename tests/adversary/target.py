"""What an attack is, what it is given, and what it brings back."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
from tests.adversary.cluster_log import CarriedOut
from tests.adversary.good_client import GoodLoad, Waits

from kvota.gateway.settings import GatewayLimits

_PLACES = "connections_max"


class Way(Enum):
    """How the clients of an attack reach the broker, and what holds them there."""

    BROKER = "broker"  # straight to it, under the broker's own quota
    SAMPLED_RATE = "sampled_rate"
    TOKEN_BUCKET = "token_bucket"


class Entity(Enum):
    """Whose the quota of an attack is."""

    CLIENT_ID = "client_id"  # that of ``Target.client_id``
    EVERY_CLIENT_ID = "client_id_default"  # each its own counter
    USER = "user"  # that of ``Target.user``, who logs in
    SHARED_CLIENT_ID = "shared_client_id"  # as the first, and brokers ask for logins

    @property
    def logs_in(self) -> bool:
        """True where all clients, the good one, too, must log in."""
        return self in {Entity.USER, Entity.SHARED_CLIENT_ID}


@dataclass(frozen=True)
class Target:
    """One way to the broker for one run of an attack; its counters are new.

    Attributes:
        address: where clients bootstrap.
        nodes: the address of each broker; through a gateway nobody has asked for them yet.
        client_id: under the quota if it is on client ids; it may log in under any other.
        user, secret: who logs in, if the attack does.
        logs_in: whether its clients must.
        topic: has one partition, and batches of 1,000,000 bytes to read.
        limits: the quotas by Kafka's names.
        places: for so many connections at once, where there are so many at the most.
        gateway_pid: of its process, None straight to the broker.
    """

    way: Way
    address: tuple[str, int]
    nodes: tuple[tuple[str, int], ...]
    client_id: str
    user: str
    secret: str
    logs_in: bool
    topic: str
    limits: Mapping[str, float]
    places: int
    gateway_pid: int | None


@dataclass
class Got:
    """What an attacker was given; attacks add to it while they run.

    Attributes:
        used: in the quota's unit: bytes acknowledged or received, partitions created.
        answers: whole answers with something in them.
        closed: connections that ended although the attacker wanted them.
        notes: further figures of one attack, by name.
    """

    used: float = 0.0
    answers: int = 0
    connections: int = 0
    closed: int = 0
    notes: dict[str, float] = field(default_factory=dict)

    def count(self, used: float) -> None:
        """One more answer."""
        self.used += used
        self.answers += 1

    def note(self, name: str) -> None:
        """One more of these."""
        self.notes[name] = self.notes.get(name, 0) + 1


@dataclass(frozen=True)
class Attack:
    """One row of the table.

    Attributes:
        run: does it for so many seconds and counts what it is given; it returns in time even where
            nobody answers.
        quotas: by Kafka's names, on ``entity``; none for an attack that wants memory or places.
        unit: of ``Got.used``.
        broker_nodes: of the cluster it needs.
        limits: settings of ``[limits]`` in gateway.toml that differ from the defaults.
        broker_connections_max: ``max.connections`` of the listener with logins, straight to the broker; None: as
            it is.
        good: what the client beside it sends.
    """

    name: str
    run: Callable[[Target, float, Got], Awaitable[None]]
    unit: str = "bytes"
    quotas: Mapping[str, float] = field(default_factory=dict)
    entity: Entity = Entity.CLIENT_ID
    broker_nodes: int = 1
    limits: Mapping[str, int | str] = field(default_factory=dict)
    broker_connections_max: int | None = None
    good: GoodLoad = field(default_factory=GoodLoad)

    @property
    def quota(self) -> float | None:
        """The one that its ``used`` is held against."""
        return next(iter(self.quotas.values()), None)

    @property
    def places(self) -> int:
        """For so many connections at once; by default as the gateway has them."""
        return int(self.limits.get(_PLACES, GatewayLimits().connections_max))

    def with_places(self, places: int) -> Self:
        """The same with so many, if it is an attack on places."""
        if _PLACES not in self.limits:
            return self
        straight = places if self.broker_connections_max is not None else None
        limits = {**self.limits, _PLACES: places}
        return replace(self, limits=limits, broker_connections_max=straight)


@dataclass(frozen=True)
class Finding:
    """What came of one attack on one way.

    Attributes:
        growth_mib: by how much the gateway's resident memory rose at its peak; None of a broker.
        record: the gateway's, whole; None of a broker.
        carried_out: topic mutations through a gateway, by the cluster's own log.
        straight: of a second good client, straight at the broker beside an attack through a gateway; what it
            waits is the broker's and the machine's doing.
        cores: what each of the processes took of the machine's, e.g. 0.5.
    """

    attack: Attack
    way: Way
    seconds: float
    got: Got
    good: Waits
    growth_mib: float | None
    record: Path | None
    carried_out: CarriedOut | None = None
    straight: Waits | None = None
    cores: Mapping[str, float] = field(default_factory=dict)

    @property
    def x_quota(self) -> float | None:
        """What was given per second, as a multiple of the quota."""
        quota = self.attack.quota
        return self.got.used / self.seconds / quota if quota else None

    @property
    def kept_waiting_ms(self) -> float:
        """By how much the good client's longest wait exceeds that of the one straight at the broker, meanwhile.

        What the machine and the broker have to do with it, both have waited for.
        """
        assert self.straight is not None, "nobody was at the broker beside the gateway"
        return self.good.worst_ms - self.straight.worst_ms

    def charged(self) -> dict[str, float]:
        """Of each user, by the record: bytes or partitions that were admitted; what was given back counts less."""
        assert self.record is not None, "a broker keeps no record"
        sums: dict[str, float] = {}
        for path in sorted(self.record.glob("*.parquet")):
            columns = pq.read_table(path, columns=["user", "value", "outcome"]).to_pydict()
            for user, value, outcome in zip(*columns.values(), strict=True):
                if outcome != "rejected":
                    sums[user] = sums.get(user, 0.0) + value
        return sums
