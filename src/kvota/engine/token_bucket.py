"""Kafka's token bucket (KIP-599)."""

from math import isfinite

from kvota.engine.arithmetic import UNLIMITED, bucket_throttle, burst_tokens, refill, spend
from kvota.model.quota_window import QuotaWindow


class TokenBucket:
    """Tokens that come back at the limit, at most a whole window of them; debt is allowed.

    Source: Kafka ``TokenBucket``. Born with 0 tokens at time 0, so it is full at the first touch
    only because Unix milliseconds are huge. Without a limit it goes on against 2**63-1, as Kafka's
    managers do, and the first touch fills it.

    >>> bucket = TokenBucket(QuotaWindow(10, 1000), 10.0)
    >>> bucket.take(180, 1_700_000_000_000), bucket.throttle_ms(1_700_000_000_000)
    (100.0, 8000)
    """

    __slots__ = ("_burst", "_finite", "_last_ms", "_limit", "_tokens", "_window")

    def __init__(self, window: QuotaWindow, limit: float | None = None) -> None:
        self._tokens = 0.0
        self._last_ms = 0
        self.configure(window, limit)

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit; tokens stay until the next touch, which counts at the new."""
        self._window = window
        self._limit = UNLIMITED if limit is None else float(limit)
        self._burst = burst_tokens(window.samples, window.sample_ms, self._limit)
        self._finite = isfinite(self._limit)

    @property
    def window(self) -> QuotaWindow:
        """The window in force."""
        return self._window

    def is_full(self, now_ms: int) -> bool:
        """True when it holds at ``now_ms`` what a new one would; changes nothing."""
        return refill(self._tokens, self._last_ms, now_ms, self._limit, self._burst) == self._burst

    def measure(self, now_ms: int) -> float:
        """Tokens at ``now_ms``; below 0 is a violation (Kafka's ``measure``: it refills)."""
        self._tokens = refill(self._tokens, self._last_ms, now_ms, self._limit, self._burst)
        self._last_ms = now_ms
        return self._tokens

    def peek(self, now_ms: int) -> float:
        """The tokens that ``pay`` of nothing would see at ``now_ms``; changes nothing."""
        tokens = refill(self._tokens, self._last_ms, now_ms, self._limit, self._burst)
        tokens = spend(tokens, 0.0, self._burst)
        # As in ``pay``: only an infinite limit shows the second refill.
        return tokens if self._finite else refill(tokens, 0, 0, self._limit, self._burst)

    def record(self, value: float, now_ms: int) -> None:
        """Spend without a check (Kafka's ``record``); a negative value gives back."""
        tokens = refill(self._tokens, self._last_ms, now_ms, self._limit, self._burst)
        self._tokens = spend(tokens, value, self._burst)
        self._last_ms = now_ms

    def take(self, value: float, now_ms: int) -> float:
        """Strict: check, then spend if not in debt. Returns the tokens the check saw."""
        tokens = refill(self._tokens, self._last_ms, now_ms, self._limit, self._burst)
        self._last_ms = now_ms
        if tokens < 0.0:
            self._tokens = tokens
            return tokens
        # Kafka refills again here, for a time of 0: with an infinite limit that is 0 * inf.
        again = tokens if self._finite else refill(tokens, 0, 0, self._limit, self._burst)
        self._tokens = spend(again, value, self._burst)
        return tokens

    def pay(self, value: float, now_ms: int) -> float:
        """Permissive: spend, then check. Returns the tokens the check saw."""
        self.record(value, now_ms)
        return self._tokens if self._finite else self.measure(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Milliseconds until the debt is paid, 0 without debt; narrowed as Kafka does."""
        tokens = self.measure(now_ms)
        return bucket_throttle(tokens, self._limit) if tokens < 0.0 else 0
