"""Kafka's sampled rate and token bucket by the letter, from ``engine.arithmetic`` alone.

The recipe of that module's docstring, without any of the engine's short cuts: what the engine and
a compiled kernel are held against. State is flat (lists or arrays), so Numba compiles the same
functions; ``numbers`` is the plain or the compiled arithmetic.
"""

from collections.abc import Callable, MutableSequence
from types import ModuleType

NEVER = -1  # index of the current sample while there is none

RateStep = Callable[..., tuple[int, int, int]]
BucketStep = Callable[..., tuple[float, int, int]]


def rate_step(numbers: ModuleType) -> RateStep:
    """One charge: returns (current, count, throttle_ms); the three sequences hold the samples."""
    sample_complete, sample_expired = numbers.sample_complete, numbers.sample_expired
    next_slot, rate_window_ms = numbers.next_slot, numbers.rate_window_ms
    rate_throttle = numbers.rate_throttle

    def step(  # noqa: PLR0917  (Numba takes no keywords)
        starts: MutableSequence[int],
        lasts: MutableSequence[int],
        values: MutableSequence[float],
        current: int,
        count: int,
        value: float,
        now_ms: int,
        limit: float,
        samples: int,
        sample_ms: int,
    ) -> tuple[int, int, int]:
        fresh = current == -1
        if fresh:
            current = 0
        elif sample_complete(starts[current], now_ms, sample_ms):
            current = next_slot(current, samples)
            fresh = True
        if fresh:
            starts[current] = now_ms
            values[current] = 0.0
            count = max(count, current + 1)
        values[current] += value
        lasts[current] = now_ms
        total = 0.0
        oldest_ms = now_ms
        for slot in range(count):
            if sample_expired(lasts[slot], now_ms, samples, sample_ms):
                starts[slot] = now_ms
                lasts[slot] = now_ms
                values[slot] = 0.0
            total += values[slot]
            if slot == 0 or starts[slot] < oldest_ms:
                oldest_ms = starts[slot]
        window_ms = rate_window_ms(oldest_ms, now_ms, samples, sample_ms)
        return current, count, rate_throttle(total, limit, window_ms)

    return step


def bucket_step(numbers: ModuleType) -> BucketStep:
    """One charge: returns (tokens, rejected 0 or 1, throttle_ms); the caller keeps last_ms."""
    burst_tokens, refill, spend = numbers.burst_tokens, numbers.refill, numbers.spend
    bucket_throttle = numbers.bucket_throttle

    def step(  # noqa: PLR0917  (Numba takes no keywords)
        tokens: float,
        last_ms: int,
        value: float,
        now_ms: int,
        limit: float,
        samples: int,
        sample_ms: int,
        strict: bool,
    ) -> tuple[float, int, int]:
        burst = burst_tokens(samples, sample_ms, limit)
        tokens = refill(tokens, last_ms, now_ms, limit, burst)
        if strict and tokens < 0.0:
            return tokens, 1, bucket_throttle(tokens, limit)
        tokens = spend(tokens, value, burst)
        if not strict and tokens < 0.0:
            return tokens, 0, bucket_throttle(tokens, limit)
        return tokens, 0, 0

    return step


class LetterRate:
    """``rate_step`` with its state, for tests that charge one by one."""

    def __init__(self, numbers: ModuleType, samples: int, sample_ms: int) -> None:
        self._step = rate_step(numbers)
        self._samples, self._sample_ms = samples, sample_ms
        self._slots: tuple[list[int], list[int], list[float]] = (
            [0] * (samples + 1),
            [0] * (samples + 1),
            [0.0] * (samples + 1),
        )
        self._current, self._count = NEVER, 0

    def charge(self, value: float, now_ms: int, limit: float) -> int:
        """Record, then check, as Kafka does."""
        self._current, self._count, throttle_ms = self._step(
            *self._slots,
            self._current,
            self._count,
            float(value),
            now_ms,
            limit,
            self._samples,
            self._sample_ms,
        )
        return throttle_ms
