"""Replays recorded charges with their recorded limits, in order, to the throttle time of each.

It follows ``kvota.engine.arithmetic``. State is carried in arrays, so a counter may span any number
of batches.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np
import numpy.typing as npt

from kvota.model.decision_sink import ADMITTED, REJECTED, THROTTLED
from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.kernels.counter_steps import (
    UNSTEADY_MS,
    Doubles,
    Flags,
    Int64s,
    begin_rate,
    measure_rate,
    record_rate,
    steady_rate,
    sum_from,
)

Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]

# Places in the state.
_EXISTS, _TOUCHED_MS, _RECORD_MS, _CURRENT, _SLOTS, _SAMPLES, _SAMPLE_MS, _KNOWN_MS, _IS_DEBT = (
    range(9)
)
STATE_SIZE = 9

# From when on the contents of a counter are known: never, or always.
_NEVER_MS = 2**62
_ALWAYS_MS = -(2**62)

_UNLIMITED = compiled.UNLIMITED
_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_burst_tokens = compiled.burst_tokens
_refill = compiled.refill
_spend = compiled.spend
_bucket_throttle = compiled.bucket_throttle
_rate_throttle = compiled.rate_throttle
_rate_window_ms = compiled.rate_window_ms
_sample_complete = compiled.sample_complete
_request_throttle = compiled.request_throttle
_counter_expired = compiled.counter_expired
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle
_debt_under = compiled.debt_under
_worth_with = compiled.worth_with

# Places in ``tokens``: those of a bucket, or what a debt bucket owes; and under which limit that was charged.
_TOKENS, _WORTH = range(2)
TOKENS_SIZE = 2


@step
def _debt_row(
    debt_ms: float,
    value: float,
    limit: float,
    burst_ms: float,
    blocked: bool,
    refused: bool,
    queues: bool,
) -> tuple[float, int]:
    """Return the debt after a row, of which ``debt_ms`` is step 1, and the throttle that was told."""
    cost_ms = 0.0 if blocked or not limit > 0 else _unit_ms(limit)
    owed_ms = debt_ms if refused and queues else _debt_with(debt_ms, value, cost_ms, burst_ms)
    if value < 0:  # what is given back is recorded without a check
        return owed_ms, 0
    throttle_ms = _BLOCKED_THROTTLE_MS if blocked else _debt_throttle(owed_ms)
    return debt_ms if refused else owed_ms, throttle_ms


@kernel
def law_rows(  # noqa: C901, PLR0912, PLR0915  (one pass over columns, in the order of the steps)
    first: Flags,  # the row begins another counter
    complete: Flags,  # the run's first rows are in the record, so a new counter is really new
    bucket: Flags,  # the token bucket of mutations
    brief: Flags,  # a sampled rate of which no throttle is longer than a sample
    debt: Flags,  # the token bucket of bandwidth; neither: a sampled rate
    strict: Flags,
    queues: Flags,  # a Produce: a refused one was not charged at all
    refused: Flags,  # of bandwidth: it had to wait, and what was charged was taken back
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,  # NaN: none
    floor: Doubles,  # a limit below it blocks
    samples: Int64s,
    sample_ms: Int64s,
    state: Int64s,  # STATE_SIZE places
    tokens: Doubles,  # TOKENS_SIZE places
    starts: Int64s,  # of the samples, at least max(samples) + 1 places
    lasts: Int64s,
    totals: Doubles,
    throttle_ms: Int32s,  # out
    outcome: Int8s,  # out
    judged: Flags,  # out: false while the counter's contents cannot be known
) -> None:
    """Replay rows in order; ``state``, ``tokens`` and the samples carry the running counter."""
    steady_ms, oldest_ms, before = UNSTEADY_MS, 0, 0.0
    for row in range(len(ts_us)):
        if first[row]:
            state[_EXISTS] = 0
            state[_KNOWN_MS] = _NEVER_MS
        throttle_ms[row] = 0
        outcome[row] = ADMITTED
        judged[row] = True
        width = samples[row]
        if width == 0:  # no quota of this type existed: observed, moved no counter
            if refused[row]:  # for another quota's sake
                outcome[row] = REJECTED
            continue
        length_ms = sample_ms[row]
        now_ms = ts_us[row] // 1000
        bound = _UNLIMITED if np.isnan(limit[row]) else limit[row]
        is_debt = debt[row]
        # Another burst keeps what is owed, and so does an hour without a charge.
        if (
            state[_EXISTS] == 0
            or state[_IS_DEBT] != is_debt
            or (
                not is_debt
                and (
                    state[_SAMPLES] != width
                    or state[_SAMPLE_MS] != length_ms
                    or _counter_expired(state[_RECORD_MS], now_ms)
                )
            )
        ):
            if state[_EXISTS] == 1 or complete[row]:
                state[_KNOWN_MS] = _ALWAYS_MS
            elif not bucket[row] and not is_debt:
                # By then every sample from before the record is forgotten; a bucket's debt may be older.
                state[_KNOWN_MS] = now_ms + (width + 1) * length_ms
            state[_EXISTS] = 1
            state[_IS_DEBT] = is_debt
            state[_SAMPLES] = width
            state[_SAMPLE_MS] = length_ms
            state[_RECORD_MS] = now_ms
            state[_TOUCHED_MS] = now_ms if is_debt else 0
            tokens[_TOKENS] = -float(width * length_ms) if is_debt else 0.0  # a full debt bucket
            tokens[_WORTH] = bound
            state[_CURRENT] = 0
            state[_SLOTS] = 1
            begin_rate(starts, lasts, totals, now_ms)
            steady_ms = UNSTEADY_MS
        if now_ms >= state[_KNOWN_MS]:
            state[_KNOWN_MS] = _ALWAYS_MS
        judged[row] = state[_KNOWN_MS] == _ALWAYS_MS
        checked = value[row] >= 0  # what is given back is recorded without a check
        blocked = _is_blocked(bound, floor[row])
        if is_debt:
            burst_ms = float(width * length_ms)
            in_force = 0.0 if blocked else bound
            owed_ms = _debt_at(tokens[_TOKENS], state[_TOUCHED_MS], now_ms, burst_ms)
            owed_ms = _debt_under(owed_ms, tokens[_WORTH], in_force)
            state[_TOUCHED_MS] = now_ms
            left_ms, throttle_ms[row] = _debt_row(
                owed_ms, value[row], bound, burst_ms, blocked, refused[row], queues[row]
            )
            charged = 0.0 if refused[row] else value[row]
            tokens[_WORTH] = _worth_with(owed_ms, tokens[_WORTH], charged, in_force, left_ms)
            tokens[_TOKENS] = left_ms
            if refused[row]:
                outcome[row] = REJECTED
            elif throttle_ms[row] > 0:
                outcome[row] = THROTTLED
            continue
        if bucket[row]:
            if blocked and strict[row] and checked:  # it does not even touch the bucket
                throttle_ms[row] = _BLOCKED_THROTTLE_MS
                outcome[row] = REJECTED
                continue
            burst = _burst_tokens(width, length_ms, bound)
            tokens[_TOKENS] = _refill(tokens[_TOKENS], state[_TOUCHED_MS], now_ms, bound, burst)
            state[_TOUCHED_MS] = now_ms
            if strict[row] and checked:
                if tokens[_TOKENS] < 0:
                    throttle_ms[row] = _bucket_throttle(tokens[_TOKENS], bound)
                    outcome[row] = REJECTED
                    continue
                # Kafka refills once more between check and record: only an infinite limit shows it.
                tokens[_TOKENS] = _refill(tokens[_TOKENS], now_ms, now_ms, bound, burst)
                tokens[_TOKENS] = _spend(tokens[_TOKENS], value[row], burst)
                state[_RECORD_MS] = now_ms
                continue
            tokens[_TOKENS] = _spend(tokens[_TOKENS], value[row], burst)
            tokens[_TOKENS] = _refill(tokens[_TOKENS], now_ms, now_ms, bound, burst)
            state[_RECORD_MS] = now_ms
            if checked and (blocked or tokens[_TOKENS] < 0):
                throttle_ms[row] = (
                    _BLOCKED_THROTTLE_MS if blocked else _bucket_throttle(tokens[_TOKENS], bound)
                )
                if throttle_ms[row] > 0:  # a tiny debt rounds to 0 and holds nobody back
                    outcome[row] = THROTTLED
            continue
        current, slots = state[_CURRENT], state[_SLOTS]
        state[_RECORD_MS] = now_ms
        if now_ms < steady_ms and not _sample_complete(starts[current], now_ms, length_ms):
            totals[current] += value[row]
            lasts[current] = now_ms
            total = sum_from(totals, before, current, slots)
            window_ms = _rate_window_ms(oldest_ms, now_ms, width, length_ms)
        else:
            state[_CURRENT], state[_SLOTS] = current, slots = record_rate(
                starts, lasts, totals, current, slots, value[row], now_ms, width, length_ms
            )
            total, window_ms = measure_rate(starts, lasts, totals, slots, now_ms, width, length_ms)
            steady_ms, oldest_ms, before = steady_rate(
                starts, lasts, totals, current, slots, width, length_ms
            )
        if checked:
            if blocked:
                throttle_ms[row] = _BLOCKED_THROTTLE_MS
            elif brief[row]:
                throttle_ms[row] = _request_throttle(total, bound, window_ms, length_ms)
            else:
                throttle_ms[row] = _rate_throttle(total, bound, window_ms)
            if throttle_ms[row] > 0:  # below 0 (narrowed as Kafka narrows) neither
                outcome[row] = THROTTLED
        if refused[row]:
            outcome[row] = REJECTED
            totals[current] -= value[row]  # at the same time, so out of the same sample


@kernel
def compare_rows(
    starts: Int64s,  # where each counter's rows start, and the end
    types: Int64s,  # of each counter
    recorded_ms: Int64s,
    recorded_outcome: Int64s,
    throttle_ms: Int32s,
    outcome: Int8s,
    judged: Flags,
    counts: Int64s,  # out: a row per type: rows, throttled, differing, unjudged; they are added to
    differs: Flags,  # out
) -> None:
    """Compare replayed rows with recorded ones; a recorded number that is not there equals none."""
    for counter in range(len(starts) - 1):
        of_type = counts[types[counter]]
        for row in range(starts[counter], starts[counter + 1]):
            of_type[0] += 1
            if recorded_ms[row] > 0 or recorded_outcome[row] == REJECTED:
                of_type[1] += 1
            same = recorded_ms[row] == throttle_ms[row] and recorded_outcome[row] == outcome[row]
            differs[row] = judged[row] and not same
            if differs[row]:
                of_type[2] += 1
            if not judged[row]:
                of_type[3] += 1
