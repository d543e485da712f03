"""What goes wrong in a world from outside: quotas change, clocks are set, brokers die."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.simulation.brokers import BrokerEnd
from tests.simulation.request_time import RequestTimes
from tests.simulation.timeline import Timeline

from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import CONFIGURABLE_TYPES, QuotaType
from kvota.testing.stage import Cluster

Entries = dict[QuotaEntity, dict[QuotaType, float]]

_ENTITIES = (
    QuotaEntity(user=DEFAULT),
    QuotaEntity(user="alice"),
    QuotaEntity(client_id=DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity(user="bob", client_id="app"),
)
# From always too little to hardly ever.
_LIMITS: dict[QuotaType, tuple[float, ...]] = {
    QuotaType.PRODUCE: (0.5, 300.0, 1_000.0, 5_000.0, 20_000.0, 1e9),
    QuotaType.FETCH: (300.0, 2_000.0, 10_000.0, 60_000.0, 1e9),
    QuotaType.CONTROLLER_MUTATION: (0.1, 1.0, 2.5, 10.0, 1e6),
}
_BANDWIDTH = (QuotaType.PRODUCE, QuotaType.FETCH)
_FACTORS = (0.0, 0.1, 0.5, 1.0, 1.0, 3.0)
_STEPS_MS = (-3_600_000, -30_000, -1_000, -1, 1, 999, 40_000, 3_700_000)
_FIRST_MS = 60_000
_LIFTED_US = 3_600_000_000


def drawn_quotas(rng: Random) -> Entries:
    """Quotas of one kind, of several kinds, or none; each limit is another number than ever before."""
    entries: Entries = {}
    for entity in rng.sample(_ENTITIES, rng.choice((0, 1, 1, 1, 2, 3))):
        limits = {
            quota_type: round(rng.choice(limits) * rng.uniform(0.9, 1.1), 6)
            for quota_type, limits in _LIMITS.items()
            if rng.random() < 0.8
        }
        if limits:
            entries[entity] = limits
    return entries


def drawn_bucket(rng: Random) -> BucketSettings:
    return BucketSettings(
        burst_ms=rng.choice((1, 1_000, 10_000)), debt_max_ms=rng.choice((0, 2_000, 15_000))
    )


class Limits(NamedTuple):
    """Limits in force of each type, from a tick, and a monotonic ms, on."""

    tick: int
    at_ms: int
    of_type: dict[QuotaType, set[float]]


@dataclass
class Faults:
    """Draws what goes wrong and when, and keeps what the checks must know of it.

    Attributes:
        excuses_ms: when the wall clock was set forward or what is in force changed, monotonic: a mute may
            end early.
        limits: of each table that was in force, with the tick and the monotonic ms at which it came.
        modes: what was enforced, and what counted by ``token_bucket``, with the tick at which it came.
        times: what the world has of REQUEST; its mode stays as it is.
        lifted: quota types that were enforced and then not: what was charged may be told to nobody.
        lowered: quota types that have had a factor below 1: clients are told less then.
        buckets: quota types that have counted by ``token_bucket`` at some time.
        stepped_back_ms: by how much the wall clock was set back in all; so much longer is what is left
            of a mutation's throttle, which is reckoned on it.
    """

    cluster: Cluster
    timeline: Timeline
    rng: Random
    tick: Callable[[], int]
    times: RequestTimes | None = None
    excuses_ms: list[int] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    modes: list[tuple[int, frozenset[QuotaType], frozenset[QuotaType]]] = field(
        default_factory=list
    )
    lifted: set[QuotaType] = field(default_factory=set)
    lowered: set[QuotaType] = field(default_factory=set)
    buckets: set[QuotaType] = field(default_factory=set)
    stepped_back_ms: int = 0
    _entries: Entries = field(default_factory=dict)
    _factors: dict[QuotaType, float] = field(default_factory=dict)

    def begin(
        self,
        ends: Callable[[], list[BrokerEnd]],
        *,
        drain: Callable[[], None],
        look_again: Callable[[], None],
        of_brokers_only: bool = False,
    ) -> None:
        """Schedule them all.

        Args:
            ends: lists the brokers' ends of connections at that time.
            drain: stops all connections of that time.
            look_again: tells all connections that quotas have changed.
            of_brokers_only: neither quotas nor clocks change: a bound is reckoned on both.
        """
        rng = self.rng
        if not of_brokers_only:
            for _ in range(rng.choice((0, 0, 0, 1, 2, 4))):
                self._sometime(lambda: self._change(look_again))
            for _ in range(rng.choice((0, 0, 0, 1, 3))):
                self._sometime(self._set_clock)
        for _ in range(rng.choice((0, 0, 0, 1))):
            self._sometime(lambda: self._kill(ends()))
        if rng.random() < 0.3:
            self._sometime(self.cluster.purge_counters)
        if rng.random() < 0.1:
            self._sometime(drain)

    def _sometime(self, action: Callable[[], object]) -> None:
        latest_ms = self.rng.choice((300, 4_000, _FIRST_MS))
        self.timeline.after_us(self.rng.randrange(latest_ms * 1000), action)  # type: ignore[arg-type]

    def note_limits(self, entries: Entries) -> None:
        """These are in force from now on, each with the factor of its type."""
        self._entries = entries
        of_type: dict[QuotaType, set[float]] = {one: set() for one in CONFIGURABLE_TYPES}
        for limits in entries.values():
            for quota_type, limit in limits.items():
                of_type[quota_type].add(limit * self._factors.get(quota_type, 1.0))
        self.limits.append(Limits(self.tick(), self.cluster.clock.monotonic_ms(), of_type))

    def note_modes(self, enforced: Collection[QuotaType], buckets: Collection[QuotaType]) -> None:
        """These are in force from now on."""
        if self.modes:
            self.lifted |= self.modes[-1][1] - set(enforced)
        self.modes.append((self.tick(), frozenset(enforced), frozenset(buckets)))
        self.buckets |= set(buckets)

    def lift_in_the_end(self, look_again: Callable[[], None]) -> None:
        """An hour later there are no quotas: who waits behind a blocked counter may go on."""
        self.timeline.after_us(_LIFTED_US, lambda: self._put_in_force({}, look_again))

    def _change(self, look_again: Callable[[], None]) -> None:
        """The operator, or what watches the cluster, puts something else in force."""
        rng = self.rng
        what = rng.choice(("quotas", "quotas", "factor", "enforce", "counting"))
        if what == "quotas":
            entries = drawn_quotas(rng)
            self._put_in_force(self.times.added_to(entries) if self.times else entries, look_again)
            return
        if what == "factor":
            quota_type = rng.choice(list(_LIMITS))
            self._factors[quota_type] = rng.choice(_FACTORS)
            if self._factors[quota_type] < 1:
                self.lowered.add(quota_type)
            self.cluster.engine.set_factor(quota_type, self._factors[quota_type])
            self.note_limits(self._entries)
        elif what == "enforce":
            enforced = frozenset(one for one in _LIMITS if rng.random() < 0.7)
            enforced |= self.times.enforced if self.times else frozenset()
            self.cluster.enforce(enforced)
            self.note_modes(enforced, self.modes[-1][2])
        else:
            buckets = {one: drawn_bucket(rng) for one in _BANDWIDTH if rng.random() < 0.5}
            self.cluster.engine.replace_countings({}, buckets)
            self.note_modes(self.modes[-1][1], buckets)
        self._in_force(look_again)

    def _put_in_force(self, entries: Entries, look_again: Callable[[], None]) -> None:
        self.cluster.replace_quotas(ConfiguredQuotas(entries))
        self.note_limits(entries)
        self._in_force(look_again)

    def noted(self, look_again: Callable[[], None]) -> None:
        """Something else has been put in force elsewhere."""
        self._in_force(look_again)

    def _in_force(self, look_again: Callable[[], None]) -> None:
        self.excuses_ms.append(self.cluster.clock.monotonic_ms())
        look_again()

    def _set_clock(self) -> None:
        step_ms = self.rng.choice(_STEPS_MS)
        self.cluster.clock.step_wall(step_ms)
        self.stepped_back_ms += max(0, -step_ms)
        if step_ms > 0:
            self.excuses_ms.append(self.cluster.clock.monotonic_ms())

    def _kill(self, ends: list[BrokerEnd]) -> None:
        """All connections of one broker break; it is back at once."""
        if not ends:
            return
        node_id = self.rng.choice(ends).node_id
        for end in ends:
            if end.node_id == node_id:
                end.die()
