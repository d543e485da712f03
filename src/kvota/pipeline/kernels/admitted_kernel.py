"""Replays each counter under one quota, and says of each request when it was let in and how long its client waits.

Its steps are those of the closed loops; where requests come as they came, none waits for the one before.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.apart_kernel import NO_RATE, throttle_of
from kvota.pipeline.kernels.closed_kernels import closed_bucket, free_again_ms
from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.kernels.counter_steps import (
    Doubles,
    Flags,
    Int64s,
    begin_rate,
    measure_rate,
    record_rate,
)
from kvota.pipeline.kernels.grid_kernels import BUCKET, DEBT
from kvota.pipeline.kernels.grid_sums import (
    BACKLOG,
    LONG_AGO_MS,
    OWN_CURRENT,
    OWN_FREE_MS,
    OWN_PATH,
    OWN_RECORD_MS,
    OWN_ROWS,
    OWN_SLOTS,
    OWN_TOUCHED_MS,
)

# Rows of ``proofs``, a column per counter: what was judged from ``from_us`` on.
EVENTS, OVER, WORST_MS = range(3)
PROOFS = 3

# Behind the rows of ``own``: the window of the last request.
_SAMPLES, _SAMPLE_MS = OWN_ROWS, OWN_ROWS + 1
STATE_INTS = OWN_ROWS + 2

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle
_burst_tokens = compiled.burst_tokens
_counter_expired = compiled.counter_expired
_sample_complete = compiled.sample_complete
_rate_per_s = compiled.rate_per_s


@step
def _rated(
    own: Int64s,
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    sent_ms: int,
    amount: float,
    samples: int,
    sample_ms: int,
) -> tuple[float, int]:
    """Record a request in a sampled rate; return the rate (``NO_RATE``: nobody measures) and the window."""
    if _counter_expired(own[OWN_RECORD_MS, 0], sent_ms):
        own[OWN_CURRENT, 0], own[OWN_SLOTS, 0] = 0, 1
        begin_rate(starts, lasts, totals, sent_ms)
    current, slots = own[OWN_CURRENT, 0], own[OWN_SLOTS, 0]
    is_given_back = amount < 0
    if is_given_back:
        if _sample_complete(starts[current], sent_ms, sample_ms):
            return NO_RATE, 0
        amount = max(amount, -totals[current])
    own[OWN_RECORD_MS, 0] = sent_ms
    current, slots = record_rate(
        starts, lasts, totals, current, slots, amount, sent_ms, samples, sample_ms
    )
    own[OWN_CURRENT, 0], own[OWN_SLOTS, 0] = current, slots
    if is_given_back:
        return NO_RATE, 0
    total, window_ms = measure_rate(starts, lasts, totals, slots, sent_ms, samples, sample_ms)
    return _rate_per_s(total, window_ms), window_ms


@step
def _in_debt(
    debts: Doubles,
    own: Int64s,
    sent_ms: int,
    amount: float,
    unit_ms: float,
    burst_ms: float,
    debt_max_ms: float,
    blocked: bool,
) -> tuple[int, int]:
    """Charge a debt bucket; return when the request was admitted, and the throttle from ``sent_ms``.

    Under a blocked limit no turn comes: who has to wait for it gives up.
    """
    owed_ms = _debt_at(debts[0], own[OWN_TOUCHED_MS, 0], sent_ms, burst_ms)
    admitted_ms = sent_ms
    can_wait = debt_max_ms < np.inf and amount >= 0
    if can_wait and (blocked or owed_ms > debt_max_ms):
        admitted_ms += _BLOCKED_THROTTLE_MS if blocked else _debt_throttle(owed_ms - debt_max_ms)
        owed_ms = _debt_at(owed_ms, sent_ms, admitted_ms, burst_ms)
    if not blocked:
        owed_ms = _debt_with(owed_ms, amount, unit_ms, burst_ms)
    debts[0] = owed_ms
    own[OWN_TOUCHED_MS, 0] = admitted_ms
    own[OWN_RECORD_MS, 0] = admitted_ms
    if amount < 0:
        return admitted_ms, 0
    if blocked:
        return admitted_ms, _BLOCKED_THROTTLE_MS
    return admitted_ms, admitted_ms - sent_ms + _debt_throttle(owed_ms)


@kernel
def admit(  # noqa: C901, PLR0912, PLR0915  (one pass over columns)
    rows_of: Int64s,  # where each counter's rows start, and the end
    continues: bool,  # the first counter goes on
    kinds: Int64s,  # of each row
    floors: Doubles,
    debts_max_ms: Doubles,  # infinite: nobody waits for a turn
    briefs: Flags,
    quotas: Doubles,  # infinite: everything passes
    ts_us: Int64s,
    value: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    strict: Flags,
    mode: int,
    from_us: int,
    own: Int64s,  # in and out: of the counter that runs
    tokens: Doubles,  # the same, in its only place: tokens or debt
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    proofs: Doubles,  # in and out: in its first column of the counter that goes on
    admitted_ms: Int64s,  # out
) -> None:
    """Let every request in as the quota of its counter does."""
    for counter in range(len(rows_of) - 1):
        if counter > 0 or not continues:
            own[:] = 0
            own[OWN_RECORD_MS, 0] = LONG_AGO_MS
            own[OWN_PATH, 0] = -1
            tokens[:] = 0.0
        quota = quotas[counter]
        unit_ms = _unit_ms(quota)
        blocked = _is_blocked(quota, floors[counter])
        for row in range(rows_of[counter], rows_of[counter + 1]):
            now_ms, amount = ts_us[row] // 1000, value[row]
            if quota == np.inf:
                admitted_ms[row] = now_ms
                if ts_us[row] >= from_us and amount >= 0:
                    proofs[EVENTS, counter] += 1.0
                continue
            sent_ms = max(now_ms, own[OWN_FREE_MS, 0]) if mode == BACKLOG else now_ms
            width, length_ms = samples[row], sample_ms[row]
            # A debt stays under another burst; whatever else begins anew with another window.
            is_other_window = kinds[row] != DEBT and (
                own[_SAMPLES, 0] != width or own[_SAMPLE_MS, 0] != length_ms
            )
            if own[OWN_PATH, 0] != kinds[row] or is_other_window:
                own[OWN_PATH, 0] = kinds[row]
                own[OWN_RECORD_MS, 0] = LONG_AGO_MS
            own[_SAMPLES, 0], own[_SAMPLE_MS, 0] = width, length_ms
            let_in_ms, throttle_ms = sent_ms, 0
            if kinds[row] == DEBT:
                burst_ms = float(width * length_ms)
                if own[OWN_RECORD_MS, 0] == LONG_AGO_MS:
                    tokens[0] = -burst_ms
                    own[OWN_TOUCHED_MS, 0] = sent_ms
                let_in_ms, throttle_ms = _in_debt(
                    tokens,
                    own,
                    sent_ms,
                    amount,
                    unit_ms,
                    burst_ms,
                    debts_max_ms[counter],
                    blocked,
                )
            elif kinds[row] == BUCKET:
                if _counter_expired(own[OWN_RECORD_MS, 0], sent_ms):
                    tokens[0] = 0.0
                    own[OWN_TOUCHED_MS, 0] = 0
                burst = _burst_tokens(width, length_ms, quota)
                check_first = strict[row] and amount >= 0
                let_in_ms, _, throttle_ms = closed_bucket(
                    tokens, own, 0, sent_ms, amount, quota, burst, check_first, blocked
                )
            else:
                rate, window_ms = _rated(
                    own, starts, lasts, totals, sent_ms, amount, width, length_ms
                )
                throttle_ms = throttle_of(
                    rate, window_ms, quota, blocked, briefs[counter], length_ms
                )
            own[OWN_FREE_MS, 0] = free_again_ms(own[OWN_FREE_MS, 0], sent_ms, throttle_ms, BACKLOG)
            admitted_ms[row] = let_in_ms
            if ts_us[row] >= from_us and amount >= 0:
                proofs[EVENTS, counter] += 1.0
                proofs[OVER, counter] += 1.0 if throttle_ms > 0 else 0.0
                proofs[WORST_MS, counter] = max(proofs[WORST_MS, counter], float(throttle_ms))
