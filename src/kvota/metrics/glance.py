"""What a gateway shows whoever looks at it from outside its event loop."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kvota.engine.reading import Reading
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.model.quota_type import QuotaType


@dataclass(slots=True)
class Use:
    """The connections whose last request was charged on one counter.

    Attributes:
        connections: how many.
        muted: how many of them are muted on its behalf.
        mute_left_ms: how long the longest of these mutes still lasts.
    """

    connections: int = 0
    muted: int = 0
    mute_left_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Memory that connections share: what is in use, and how much that may be (None: per broker)."""

    used_bytes: int
    limit_bytes: int


class InitsOfUser(NamedTuple):
    """How often a user has asked for a producer id.

    Attributes:
        user: whose requests they are.
        idempotent: for an id of their own.
        transactional: with a transactional id.
        per_s: of the former, per second over 30 to 60 s.
    """

    user: str
    idempotent: int
    transactional: int
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdGlance:
    """What is known of producer ids.

    Attributes:
        users: of whom any is known.
        distinct_ids: of users that are shown: how many have produced within the window.
        distinct_ids_in_all: of all users; None: it was not asked for.
        window_ms: that window.
        filter_bytes: what the filters take.
        refused_partitions: of producers of which a refused batch has to come again.
        untracked: ids that passed uncounted.
        overfilled: ids that were put into a filter without room for them.
        connections_closed: how many, because no more refusals are remembered.
        inits: requests for producer ids, of users that are shown, who asks most first.
        other_inits: of all others.
    """

    users: int
    distinct_ids: Mapping[str, int]
    distinct_ids_in_all: int | None
    window_ms: int
    filter_bytes: int
    refused_partitions: int
    untracked: int
    overfilled: int
    connections_closed: int
    inits: tuple[InitsOfUser, ...]
    other_inits: InitsOfUser


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayGlance:
    """A gateway within some ms of one moment.

    Attributes:
        at_ms: when, Unix time.
        peeks: for each counter that was asked for, one after the other, what ``engine.reading.PEEKED`` names; all of it NaN:
            there is no such counter. Empty where it was asked who uses which: then there are readings.
        readings: of the counters that were asked for, where they are.
        put_away: those of them that are kept, but idle among very many.
        uses: connections by counter.
        connections: how many there are.
        connections_max: how many there may be.
        paused: how many do not take their next request, by reason.
        muted: how many are muted, by the quota type on whose behalf.
        counts: since the gateway began to run.
        requests: how many were taken, by API; but for Produce, which has rows.
        request_bytes: their sizes.
        budgets: memory that connections share, by what it is for.
        counters: how many there are.
        counters_lost: how many were forgotten although they still counted.
        exempt_ns: what requests took for which no time is charged.
        exempt_percent: the same over the last 30 to 60 s, in percent of the gateway's thread.
        quotas_version: how often configured quotas have been put in force.
        entities: how many have quotas.
        enforced: quota types that are in force; others are in shadow mode.
        cluster_is_old: the gateway looks at topics and leaders, and nobody has answered for a while, or ever.
        callback_faults: what went wrong in the quota callback in force, by method.
        producer_ids: what is known of them.
        is_draining: it takes no new connections any more.
        unreachable: bootstrap servers and brokers that could not be reached last.
        reaches_brokers: false: none of them could be.
    """

    at_ms: int
    peeks: "array[float]"
    readings: Mapping[CounterKey, Reading]
    put_away: frozenset[CounterKey]
    uses: Mapping[CounterKey, Use]
    connections: int
    connections_max: int
    paused: Mapping[str, int]
    muted: Mapping[QuotaType, int]
    counts: GatewayCounts
    requests: Mapping[str, int]
    request_bytes: Mapping[str, int]
    budgets: Mapping[str, Budget]
    counters: int
    counters_lost: int
    exempt_ns: int
    exempt_percent: float
    quotas_version: int
    entities: int
    enforced: frozenset[QuotaType]
    cluster_is_old: bool
    callback_faults: Mapping[str, int]
    producer_ids: ProducerIdGlance
    is_draining: bool
    unreachable: tuple[str, ...]
    reaches_brokers: bool
