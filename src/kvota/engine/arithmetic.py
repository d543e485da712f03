"""Kafka's quota arithmetic as scalar functions: the one set of formulas of kvota.

The engine calls them plain; the pipeline compiles the same functions with Numba. To keep that
possible they take and give plain ``int``, ``float`` and ``bool`` only, raise nothing, use no
library but ``math``, and call only functions defined *above* them. So a second instance of this
module can be turned into compiled functions by replacing its functions one by one, in the order of
definition, with ``numba.njit(function)``: Numba looks names up when it compiles.

Python integers grow without bound, Numba's and the JVM's are 64 bits wide. Every function that
could leave that range saturates or narrows first, so plain and compiled forms agree
(``tests/properties/test_compiled_arithmetic.py``). Times are milliseconds within int64; the
difference of two times has to be within int64 as well.

One charge of a **token bucket** (mutations; Kafka ``TokenBucket``), state ``tokens = 0.0`` and
``last_ms = 0`` when new::

    burst = burst_tokens(samples, sample_ms, limit)
    tokens = refill(tokens, last_ms, now_ms, limit, burst); last_ms = now_ms
    strict:      reject with bucket_throttle(tokens, limit) if tokens < 0, else tokens = spend(...)
    permissive:  tokens = spend(tokens, value, burst), then throttled if tokens < 0

One charge of a **sampled rate** (bandwidth; Kafka ``Rate`` over ``SampledStat``), state: a list of
at most ``samples + 1`` samples (start_ms, last_ms, total), index ``current``. A new counter has one
empty sample starting and last used now, ``current = 0``::

    1  if sample_complete(start[current], now_ms, sample_ms):
           current = next_slot(current, samples); that slot (new or old) starts at now_ms, total 0
    2  total[current] += value; last[current] = now_ms
    3  every slot with sample_expired(last, now_ms, ...): start = last = now_ms, total = 0
    4  sum the totals in slot order 0, 1, 2, … (the order matters for fractions), oldest = min(start)
    5  window_ms = rate_window_ms(oldest, now_ms, samples, sample_ms)
    6  throttle_ms = rate_throttle(sum, limit, window_ms)

Where ``is_blocked(limit, floor)`` the counter moves all the same, and what is told is
``BLOCKED_THROTTLE_MS`` instead; a strict charge is rejected with it and touches nothing. (That is not
Kafka's: it takes such limits and its throttle wraps to -1, so that nobody is held back.)

One charge of a **debt bucket** (bandwidth under ``token_bucket``; kvota's own), state: ``debt_ms``,
``last_ms``; a new counter has a full bucket, ``debt_ms = -burst_ms``::

    1  debt_ms = debt_at(debt_ms, last_ms, now_ms, burst_ms); last_ms = now_ms
    2  debt_ms = debt_with(debt_ms, value, unit_ms(limit), burst_ms)
    3  throttle_ms = debt_throttle(debt_ms)

A rejected PRODUCE is steps 1 and 3 only (of a sampled rate: where a factor of 0 lets nothing pass, a charge that is taken
back at once); a rejected FETCH shows what step 3 would say after step 2, and
keeps what step 1 left. Debt is time, not bytes, so another limit keeps it; another burst does, too.

Without a limit the first two are charged against ``UNLIMITED``. A counter starts anew when
``counter_expired(last record, now_ms)`` or when its window (samples, sample_ms) is another one.
A record is a charge that was not rejected, or a give-back.
"""

from math import ceil, copysign, floor, inf, nan

INT64_MAX = 9223372036854775807
INT64_MIN = -9223372036854775808
INT32_MAX = 2147483647

# Kafka's Long.MAX_VALUE as a double: the bound of a counter whose tags have no limit.
UNLIMITED = 9223372036854775808.0

# Kafka's INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS in ms.
COUNTER_EXPIRES_MS = 3_600_000

# What every charge is told while a limit is below the floor of its quota type. Bounded, because a
# limit that is raised again must not leave clients asleep for hours.
BLOCKED_THROTTLE_MS = 30_000


def java_round(x: float) -> int:
    """``Math.round`` of the JVM: floor(x + 1/2) on the exact number, NaN is 0, ends saturate.

    >>> [java_round(x) for x in (2.5, -2.5, 0.49999999999999994, float("inf"))]
    [3, -2, 0, 9223372036854775807]
    """
    if -UNLIMITED < x < UNLIMITED:
        below = floor(x)
        if x - below >= 0.5:
            return below + 1
        return below
    if x > 0.0:
        return INT64_MAX
    if x < 0.0:
        return INT64_MIN
    return 0


def narrow_to_int32(x: int) -> int:
    """Java's cast of a long to an int: the low 32 bits, so it wraps.

    >>> [narrow_to_int32(x) for x in (99_990_000_000, 9223372036854775807, -2147483649)]
    [1205752192, -1, 2147483647]
    """
    low = x & 0xFFFFFFFF
    if low >= 0x80000000:
        return low - 0x100000000
    return low


def saturate_to_int32(x: float) -> int:
    """Java's cast of a double to an int: toward zero, ends saturate, NaN is 0.

    >>> [saturate_to_int32(x) for x in (1e300, -1e300, -1.5, float("nan"))]
    [2147483647, -2147483648, -1, 0]
    """
    if x != x:  # noqa: PLR0124  (the cheapest NaN test, also for Numba)
        return 0
    if x >= 2147483647.0:
        return INT32_MAX
    if x <= -2147483648.0:
        return -2147483648
    if x < 0.0:
        return ceil(x)
    return floor(x)


def ieee_divide(a: float, b: float) -> float:
    """A double divided by a double as the JVM does: by zero gives an infinity or NaN."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a:  # noqa: PLR0124
        return nan
    return copysign(inf, a) * copysign(1.0, b)


def truncated_quotient(a: int, b: int) -> int:
    """Java's division of longs, toward zero; ``b`` is positive."""
    if a < 0:
        return -(-a // b)
    return a // b


def burst_tokens(samples: int, sample_ms: int, limit: float) -> float:
    """The most tokens a bucket holds: its limit times the whole window (Kafka ``TokenBucket``)."""
    return samples * (sample_ms / 1000.0) * limit


def refill(tokens: float, last_ms: int, now_ms: int, limit: float, burst: float) -> float:
    """Tokens after the time since the last touch; fewer if the clock went back, as in Kafka.

    >>> refill(-50.0, 1000, 3000, 10.0, 100.0)
    -30.0
    """
    filled = tokens + limit * ((now_ms - last_ms) / 1000.0)
    if filled < burst or filled != filled:  # noqa: PLR0124  (Math.min: NaN if either is)
        return filled
    return burst


def spend(tokens: float, value: float, burst: float) -> float:
    """Tokens after a charge; a negative value gives back, never above the burst."""
    left = tokens - value
    if left < burst or left != left:  # noqa: PLR0124
        return left
    return burst


def bucket_throttle_long(tokens: float, limit: float) -> int:
    """Milliseconds until a bucket in debt is back at zero, as a long.

    Source: Kafka ``ControllerMutationQuotaManager.throttleTimeMs``.
    """
    return java_round(ieee_divide(-tokens, limit) * 1000.0)


def bucket_throttle(tokens: float, limit: float) -> int:
    """``bucket_throttle_long`` narrowed as Kafka narrows it; <= 0 does not throttle.

    >>> bucket_throttle(-80.0, 10.0)
    8000
    """
    return narrow_to_int32(bucket_throttle_long(tokens, limit))


def remaining_throttle(throttle_long: int, elapsed_ms: int) -> int:
    """What is left of a mutation throttle, >= 0 (Kafka ``AbstractControllerMutationQuota``)."""
    if throttle_long == 0:
        return 0
    left = narrow_to_int32(throttle_long - elapsed_ms)
    if left < 0:
        return 0
    return left


def sample_complete(start_ms: int, now_ms: int, sample_ms: int) -> bool:
    """True when a record at ``now_ms`` belongs to the next sample."""
    return now_ms - start_ms >= sample_ms


def sample_expired(last_ms: int, now_ms: int, samples: int, sample_ms: int) -> bool:
    """True when a sample's last event is a whole window ago; it then starts anew at ``now_ms``."""
    return now_ms - last_ms >= samples * sample_ms


def next_slot(current: int, samples: int) -> int:
    """Where the next sample goes; one slot more than samples, for the overlapping one."""
    return (current + 1) % (samples + 1)


def rate_window_ms(oldest_ms: int, now_ms: int, samples: int, sample_ms: int) -> int:
    """The time a sampled rate is divided by, >= 1 ms (Kafka ``Rate.windowSize``).

    At least ``samples - 1`` whole samples; call it after expired samples were started anew.

    >>> [rate_window_ms(0, now_ms, 11, 1000) for now_ms in (0, 500, 10_999, -1)]
    [10000, 10500, 10999, 9999]
    """
    elapsed_ms = now_ms - oldest_ms
    if 0 <= elapsed_ms < INT32_MAX:  # the usual case, without a call: nothing to cut or narrow
        least_ms = (samples - 1) * sample_ms
        if elapsed_ms < least_ms:
            return least_ms + elapsed_ms % sample_ms
        return elapsed_ms if elapsed_ms > 0 else 1
    full = narrow_to_int32(truncated_quotient(elapsed_ms, sample_ms))
    if full < samples - 1:
        elapsed_ms += narrow_to_int32(samples - 1 - full) * sample_ms
    if elapsed_ms < 1:
        return 1
    return elapsed_ms


def rate_per_s(total: float, window_ms: int) -> float:
    """The sampled rate (Kafka ``Rate.measure``)."""
    return total / (window_ms / 1000.0)


def rate_throttle(total: float, limit: float, window_ms: int) -> int:
    """0 within the limit, else the throttle narrowed as Kafka narrows it; <= 0 does not throttle.

    >>> rate_throttle(20_000.0, 1000.0, 10_000)
    10000
    """
    rate = total / (window_ms / 1000.0)
    if rate <= limit:
        return 0
    if limit > 0.0:  # always, as Kafka refuses others; saves a call where every call counts
        wait = java_round((rate - limit) / limit * window_ms)
    else:
        wait = java_round(ieee_divide(rate - limit, limit) * window_ms)
    if 0 <= wait <= INT32_MAX:
        return wait
    return narrow_to_int32(wait)


def request_throttle(total: float, limit: float, window_ms: int, sample_ms: int) -> int:
    """As ``rate_throttle``, but one sample at most, and so never narrowed.

    Source: Kafka ``ClientRequestQuotaManager.throttleTime``, ``QuotaUtils.boundedThrottleTime``.

    >>> request_throttle(510.0, 1.0, 10_000, 1000), request_throttle(10.25, 1.0, 10_000, 1000)
    (1000, 250)
    """
    rate = total / (window_ms / 1000.0)
    if rate <= limit:
        return 0
    wait = java_round(ieee_divide(rate - limit, limit) * window_ms)
    if wait > sample_ms:
        return sample_ms
    return wait


def is_blocked(limit: float, floor: float) -> bool:
    """True when a limit is too small to be a rate: nothing passes freely (``QuotaFacts.floor``).

    >>> is_blocked(0.0, 1.0), is_blocked(1.0, 1.0), is_blocked(UNLIMITED, 1.0)
    (True, False, False)
    """
    return limit < floor


def unit_ms(limit: float) -> float:
    """What one unit (a byte) costs under a limit per second, in ms of quota; nothing without a limit."""
    if limit >= UNLIMITED:
        return 0.0
    return ieee_divide(1000.0, limit)


def debt_at(debt_ms: float, last_ms: int, now_ms: int, burst_ms: float) -> float:
    """The debt after the time since the last touch, at least minus the burst (a full bucket).

    A clock that went back pays nothing and adds nothing.

    >>> debt_at(5000.0, 1000, 3000, 1000.0), debt_at(5000.0, 1000, 0, 1000.0)
    (3000.0, 5000.0)
    >>> debt_at(5000.0, 0, 9000, 1000.0)
    -1000.0
    """
    if now_ms > last_ms:
        debt_ms -= now_ms - last_ms
    if debt_ms < -burst_ms:  # at once, where the burst is another one now
        return -burst_ms
    return debt_ms


def debt_with(debt_ms: float, value: float, unit_ms: float, burst_ms: float) -> float:
    """The debt after a charge; a negative value gives back.

    >>> debt_with(0.0, 3, 0.5, 1000.0), debt_with(-1000.0, -3, 0.5, 1000.0)
    (1.5, -1000.0)
    """
    debt_ms += value * unit_ms
    if debt_ms < -burst_ms:
        return -burst_ms
    return debt_ms


def debt_under(debt_ms: float, worth: float, limit: float) -> float:
    """What is owed as soon as ``limit`` is in force: as many bytes where it is a higher one, else as much time.

    ``worth`` is the limit under which the debt was charged. Without a limit nothing is owed.

    >>> (
    ...     debt_under(8000.0, 10.0, 40.0),
    ...     debt_under(8000.0, 10.0, 5.0),
    ...     debt_under(-1000.0, 10.0, 40.0),
    ... )
    (2000.0, 8000.0, -1000.0)
    >>> debt_under(8000.0, 10.0, UNLIMITED)
    0.0
    """
    if not debt_ms > 0.0 or not limit > worth:
        return debt_ms
    if limit >= UNLIMITED:
        return 0.0
    return debt_ms * ieee_divide(worth, limit)


def worth_with(debt_ms: float, worth: float, value: float, limit: float, after_ms: float) -> float:
    """The limit at which a debt would be as many bytes as are owed, after a charge that made it ``after_ms``.

    It is the limit in force, or a higher one where a part was charged before the limit fell: that is paid as time,
    like the rest, and stays what it is in bytes, so that a limit that falls and rises again lets nobody off.

    Args:
        debt_ms: what was owed before, by ``debt_under``.
        worth: of that.
        value: that was charged; below 0: given back.
        limit: in force.
        after_ms: what is owed now.

    >>> worth_with(2000.0, 100.0, 10, 10.0, 3000.0), worth_with(2000.0, 100.0, 10, 100.0, 2100.0)
    (70.0, 100.0)
    """
    if not debt_ms > 0.0 or not after_ms > 0.0 or not worth > limit:
        return limit
    if after_ms == debt_ms:
        return worth
    mixed = (debt_ms * worth + value * 1000.0) / after_ms
    return max(limit, mixed)


def debt_throttle(debt_ms: float) -> int:
    """Whole ms until the debt is paid, rounded up; 0 without debt; saturates at 2**31-1.

    >>> debt_throttle(-5.0), debt_throttle(0.25), debt_throttle(2.0), debt_throttle(9e15)
    (0, 1, 2, 2147483647)
    """
    if not debt_ms > 0.0:  # NaN neither
        return 0
    if debt_ms >= 2147483647.0:
        return INT32_MAX
    return ceil(debt_ms)


def id_burst_ms(window_ms: int, token_ms: float) -> int:
    """The time whose new producer ids may come at once: the window's, and one at least; saturates at 2**62.

    >>> id_burst_ms(1000, 100.0), id_burst_ms(1000, 1500.5)
    (1000, 1501)
    """
    if not token_ms > window_ms:  # NaN neither
        return window_ms
    if token_ms >= 4611686018427387904.0:
        return 4611686018427387904
    return ceil(token_ms)


def id_gate_ms(token_ms: float) -> float:
    """The debt above which a new producer id is refused: there must be a token.

    What doubles lose must not refuse an id that has waited as long as it was told, so a token counts as
    back a microsecond of quota early, never more than a thousandth of it.

    >>> id_gate_ms(100.0), id_gate_ms(0.5)
    (-99.999, -0.4995)
    """
    return min(1e-3, token_ms / 1000.0) - token_ms


def counter_expired(last_ms: int, now_ms: int) -> bool:
    """True when a counter was idle for more than 3600 s and is forgotten (Kafka ``Sensor``)."""
    return now_ms - last_ms > COUNTER_EXPIRES_MS
