"""Quota on topic and partition mutations (KIP-599): a token bucket, asked per request."""

from kvota.engine.arithmetic import (
    BLOCKED_THROTTLE_MS,
    bucket_throttle_long,
    narrow_to_int32,
    remaining_throttle,
)
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.decision import Decision
from kvota.engine.lane import Lane
from kvota.model.event import Outcome

_FREE = Decision(Outcome.ADMITTED, 0, None)


class MutationQuota:
    """The mutation quota of one request; make one per request, charge it topic by topic.

    This one is *unbounded*: what there is while no mutation quota exists. The others are *strict*
    and *permissive*, chosen by the request's version.
    Source: Kafka ``ControllerMutationQuota`` (KIP-599).
    """

    __slots__ = ("tags",)

    def __init__(self, tags: str) -> None:
        self.tags = tags

    @property
    def lane(self) -> Lane | None:
        """The way to the counter; None while no mutation quota exists."""
        return None

    @property
    def limit(self) -> float | None:
        """Partitions per second now in force; None: unlimited."""
        return None

    @property
    def samples(self) -> int:
        """Samples of the window now in force; 0: no mutation quota existed, nothing is recorded."""
        return 0

    @property
    def sample_ms(self) -> int:
        """Length of one sample; 0 where samples is 0."""
        return 0

    def charge(self, partitions: float, now_ms: int) -> Decision:  # noqa: ARG002
        """Decide one topic's partitions; the throttle of a violation replaces the one before."""
        return _FREE

    def give_back(self, partitions: float, now_ms: int) -> None:
        """Take back what was charged and then refused by the broker; checks nothing."""

    def throttle_ms(self, now_ms: int) -> int:  # noqa: ARG002
        """What is left of the last throttle, >= 0; time spent since then is deducted."""
        return 0


class _CountedQuota(MutationQuota):
    """A quota with a counter; subclasses say in which order to check and to record."""

    __slots__ = ("_counter", "_lane", "_throttle", "_throttled_at_ms")

    def __init__(self, lane: Lane) -> None:
        counter = lane.counter
        assert isinstance(counter, BucketCounter), lane.quota_type
        self.tags = lane.tags
        self._lane = lane
        self._counter = counter
        self._throttle = 0  # Kafka's long; narrowed only when told
        self._throttled_at_ms = 0

    @property
    def lane(self) -> Lane | None:
        return self._lane

    @property
    def limit(self) -> float | None:
        return self._lane.limit

    @property
    def samples(self) -> int:
        return self._lane.samples

    @property
    def sample_ms(self) -> int:
        return self._lane.sample_ms

    def give_back(self, partitions: float, now_ms: int) -> None:
        self._counter.record(-partitions, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        return remaining_throttle(self._throttle, now_ms - self._throttled_at_ms)

    def _in_debt(self, tokens: float, now_ms: int) -> int:
        return self._violated(bucket_throttle_long(tokens, self._counter.bound), now_ms)

    def _violated(self, throttle: int, now_ms: int) -> int:
        self._throttle = throttle
        self._throttled_at_ms = now_ms
        return narrow_to_int32(throttle)


class StrictQuota(_CountedQuota):
    """Check, then record: a charge that finds the bucket in debt is rejected and not recorded.

    Under a blocked limit every charge is rejected.
    Source: Kafka ``StrictControllerMutationQuota``.
    """

    __slots__ = ()

    def charge(self, partitions: float, now_ms: int) -> Decision:
        """Admitted, or rejected with the throttle that pays the debt."""
        counter = self._counter
        if self._lane.is_blocked:
            throttle_ms = self._violated(BLOCKED_THROTTLE_MS, now_ms)
            return Decision(Outcome.REJECTED, throttle_ms, counter.limit)
        tokens = counter.bucket_at(now_ms).take(partitions, now_ms)
        if tokens < 0.0:
            return Decision(Outcome.REJECTED, self._in_debt(tokens, now_ms), counter.limit)
        counter.last_ms = now_ms
        return counter.admitted


class PermissiveQuota(_CountedQuota):
    """Record, then check: nothing is rejected, so the quota is never exceeded.

    Under a blocked limit every charge is throttled.
    Source: Kafka ``PermissiveControllerMutationQuota``.
    """

    __slots__ = ()

    def charge(self, partitions: float, now_ms: int) -> Decision:
        """Admitted, or throttled for the debt it leaves behind."""
        counter = self._counter
        tokens = counter.pay(partitions, now_ms)
        if self._lane.is_blocked:
            throttle_ms = self._violated(BLOCKED_THROTTLE_MS, now_ms)
        elif tokens < 0.0:
            throttle_ms = self._in_debt(tokens, now_ms)
        else:
            return counter.admitted
        outcome = Outcome.THROTTLED if throttle_ms > 0 else Outcome.ADMITTED
        return Decision(outcome, throttle_ms, counter.limit)
