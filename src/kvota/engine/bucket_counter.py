"""A token bucket with its limit and its life: what one counter of mutations is."""

from kvota.engine.arithmetic import (
    COUNTER_EXPIRES_MS,
    UNLIMITED,
    bucket_throttle,
    saturate_to_int32,
)
from kvota.engine.decision import Decision
from kvota.engine.token_bucket import TokenBucket
from kvota.model.event import Outcome
from kvota.model.quota_window import QuotaWindow


class BucketCounter:
    """The bucket, the limit it is held against, and the last record that keeps it alive.

    A rejected charge is no record, as in Kafka: a counter that only rejects for over 3600 s is
    forgotten, debt included.

    >>> counter = BucketCounter(QuotaWindow(10, 1000), 10.0, born_ms=1_700_000_000_000)
    >>> [counter.charge(90, 1_700_000_000_000) for _ in range(3)]
    [0, 8000, 17000]
    """

    __slots__ = ("_bucket", "_outdated", "_window", "admitted", "bound", "last_ms", "limit")

    def __init__(self, window: QuotaWindow, limit: float | None, *, born_ms: int) -> None:
        self.last_ms = born_ms
        self._bucket = TokenBucket(window, limit)
        self.configure(window, limit)

    @property
    def window_ms(self) -> int:
        """The time whose tokens a full bucket holds."""
        return self._window.samples * self._window.sample_ms

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit. Tokens stay; under another window the bucket starts anew."""
        self._window = window
        self.limit = limit
        self.bound = UNLIMITED if limit is None else limit
        self.admitted = Decision(Outcome.ADMITTED, 0, limit)  # made once: the usual answer
        self._outdated = self._bucket.window != window
        if not self._outdated:
            self._bucket.configure(window, limit)

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from ``now_ms`` on would differ from that of a new counter."""
        return self._outdated or self._bucket.is_full(now_ms)

    def bucket_at(self, now_ms: int) -> TokenBucket:
        """The bucket to charge; a new one after an hour without a record.

        Whoever charges it sets ``last_ms``, unless it refused: that is no record.
        """
        if self._outdated or now_ms - self.last_ms > COUNTER_EXPIRES_MS:
            self._bucket = TokenBucket(self._window, self.limit)
            self._outdated = False
        return self._bucket

    def pay(self, value: float, now_ms: int) -> float:
        """Permissive: spend, then check. Returns the tokens the check saw."""
        tokens = self.bucket_at(now_ms).pay(value, now_ms)
        self.last_ms = now_ms
        return tokens

    def record(self, value: float, now_ms: int) -> None:
        """Spend without a check; a negative value gives back."""
        self.bucket_at(now_ms).record(value, now_ms)
        self.last_ms = now_ms

    def charge(self, value: float, now_ms: int, /) -> int:
        """Permissive: the throttle in ms that pays the debt, narrowed as Kafka does; 0 without debt."""
        return self._throttle_ms(self.pay(value, now_ms))

    # Nobody waits for a turn.
    admit = charge

    def refuse(self, value: float, now_ms: int, /) -> int:
        """The throttle of a charge that is taken back at once."""
        throttle_ms = self.charge(value, now_ms)
        self.record(-value, now_ms)
        return throttle_ms

    def allowance(self, now_ms: int, /) -> int:
        """Whole tokens a charge may spend without debt, 0 to 2**31-1; changes nothing."""
        return max(saturate_to_int32(self._foreseen(now_ms).peek(now_ms)), 0)

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told at ``now_ms``; changes nothing."""
        return self._throttle_ms(self._foreseen(now_ms).peek(now_ms))

    def peek_tokens(self, now_ms: int) -> float:
        """The tokens there are at ``now_ms``, below 0 a debt; changes nothing."""
        return self._foreseen(now_ms).peek(now_ms)

    def _throttle_ms(self, tokens: float) -> int:
        return bucket_throttle(tokens, self.bound) if tokens < 0.0 else 0

    def _foreseen(self, now_ms: int) -> TokenBucket:
        """The bucket that a charge at ``now_ms`` would find."""
        if self._outdated or now_ms - self.last_ms > COUNTER_EXPIRES_MS:
            return TokenBucket(self._window, self.limit)
        return self._bucket
