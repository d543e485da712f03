"""Quota on topic and partition mutations (KIP-599): a token bucket, asked per request."""

from kvota.engine.arithmetic import (
    COUNTER_EXPIRES_MS,
    UNLIMITED,
    bucket_throttle_long,
    narrow_to_int32,
    remaining_throttle,
)
from kvota.engine.decision import Decision
from kvota.engine.token_bucket import TokenBucket
from kvota.model.event import Outcome
from kvota.model.quota_window import QuotaWindow

_FREE = Decision(Outcome.ADMITTED, 0, None)


class MutationCounter:
    """The bucket of one counter, its limit, and the last record that keeps it alive.

    A rejected charge is no record, as in Kafka: a counter that only rejects for over 3600 s is
    forgotten, debt included.
    """

    __slots__ = ("_outdated", "_window", "admitted", "bound", "bucket", "last_ms", "limit", "tags")

    def __init__(
        self, tags: str, window: QuotaWindow, limit: float | None, *, born_ms: int
    ) -> None:
        self.tags = tags
        self.last_ms = born_ms
        self.bucket = TokenBucket(window, limit)
        self.configure(window, limit)

    @property
    def window(self) -> QuotaWindow:
        """The window in force."""
        return self._window

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit. Tokens stay; under another window the bucket starts anew."""
        self._window = window
        self.limit = limit
        self.bound = UNLIMITED if limit is None else limit
        self.admitted = Decision(Outcome.ADMITTED, 0, limit)  # made once: the usual answer
        self._outdated = self.bucket.window != window
        if not self._outdated:
            self.bucket.configure(window, limit)

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from ``now_ms`` on would differ from that of a new counter."""
        return self._outdated or self.bucket.is_full(now_ms)

    def bucket_at(self, now_ms: int) -> TokenBucket:
        """The bucket to charge; a new one after an hour without a record."""
        if self._outdated or now_ms - self.last_ms > COUNTER_EXPIRES_MS:
            self.bucket = TokenBucket(self._window, self.limit)
            self._outdated = False
        return self.bucket


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

    @property
    def is_exceeded(self) -> bool:
        """True after a rejection with a throttle."""
        return False

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

    __slots__ = ("_counter", "_throttle", "_throttled_at_ms")

    def __init__(self, counter: MutationCounter) -> None:
        self.tags = counter.tags
        self._counter = counter
        self._throttle = 0  # Kafka's long; narrowed only when told
        self._throttled_at_ms = 0

    @property
    def limit(self) -> float | None:
        return self._counter.limit

    @property
    def samples(self) -> int:
        return self._counter.window.samples

    @property
    def sample_ms(self) -> int:
        return self._counter.window.sample_ms

    def give_back(self, partitions: float, now_ms: int) -> None:
        self._counter.bucket_at(now_ms).record(-partitions, now_ms)
        self._counter.last_ms = now_ms

    def throttle_ms(self, now_ms: int) -> int:
        return remaining_throttle(self._throttle, now_ms - self._throttled_at_ms)

    def _violated(self, tokens: float, now_ms: int) -> int:
        self._throttle = bucket_throttle_long(tokens, self._counter.bound)
        self._throttled_at_ms = now_ms
        return narrow_to_int32(self._throttle)


class StrictQuota(_CountedQuota):
    """Check, then record: a charge that finds the bucket in debt is rejected and not recorded.

    Source: Kafka ``StrictControllerMutationQuota``.
    """

    __slots__ = ()

    @property
    def is_exceeded(self) -> bool:
        """True after a rejection with a throttle, until the request ends."""
        return self._throttle > 0

    def charge(self, partitions: float, now_ms: int) -> Decision:
        """Admitted, or rejected with the throttle that pays the debt."""
        counter = self._counter
        tokens = counter.bucket_at(now_ms).take(partitions, now_ms)
        if tokens < 0.0:
            throttle_ms = self._violated(tokens, now_ms)
            return Decision(Outcome.REJECTED, throttle_ms, counter.limit)
        counter.last_ms = now_ms
        return counter.admitted


class PermissiveQuota(_CountedQuota):
    """Record, then check: nothing is rejected, and the quota is never exceeded.

    Source: Kafka ``PermissiveControllerMutationQuota``.
    """

    __slots__ = ()

    def charge(self, partitions: float, now_ms: int) -> Decision:
        """Admitted, or throttled for the debt it leaves behind."""
        counter = self._counter
        tokens = counter.bucket_at(now_ms).pay(partitions, now_ms)
        counter.last_ms = now_ms
        if tokens < 0.0:
            throttle_ms = self._violated(tokens, now_ms)
            outcome = Outcome.THROTTLED if throttle_ms > 0 else Outcome.ADMITTED
            return Decision(outcome, throttle_ms, counter.limit)
        return counter.admitted
