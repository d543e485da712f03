"""New producer ids in the open loop, against many candidate quotas at once, and how many there are in a window.

Rows are there only for ids that the gateway did not know: each came when it came, whatever a candidate would
have made of it. One that was let in is known to the gateway, so what it sends later has no rows.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

import numpy as np

from kvota.model.decision_sink import ADMITTED
from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s
from kvota.pipeline.kernels.grid_sums import (
    LONG_AGO_MS,
    RECORD_MS,
    REJECTED,
    SAMPLE_MS,
    SAMPLES,
    TOUCHED_MS,
    arrive,
    note,
)
from kvota.pipeline.kernels.producer_id_law import spend_tokens

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_unit_ms = compiled.unit_ms
_id_burst_ms = compiled.id_burst_ms
_id_gate_ms = compiled.id_gate_ms
_debt_at = compiled.debt_at


@kernel
def id_open_rows(
    ts_us: Int64s,
    value: Doubles,
    window_ms: Int64s,
    recorded: Int64s,  # outcome
    complete: Flags,
    ids: Int64s,  # from 0 on, the same for the same id; -1: of several that nobody names
    quotas: Doubles,  # new ids per window
    floor: float,
    clock: Int64s,
    debts: Doubles,  # a place per candidate
    came_ms: Int64s,  # a place per id: when it came last and was not let in by the gateway, or long ago
    let_in: Flags,  # a row per id, a column per candidate
    sums: Doubles,
) -> None:
    """Replay rows of one counter in order; what outlives the call is in ``clock`` and what follows it."""
    limits = np.empty(len(quotas))
    for row in range(len(ts_us)):
        window = window_ms[row]
        for c in range(len(quotas)):
            limits[c] = quotas[c] * 1000.0 / window
        now_ms, count, of = ts_us[row] // 1000, value[row], ids[row]
        counts = arrive(clock, sums, now_ms, count, window, complete[row])
        is_first = clock[RECORD_MS] == LONG_AGO_MS
        before_ms = now_ms if is_first else clock[TOUCHED_MS]
        clock[TOUCHED_MS] = clock[RECORD_MS] = now_ms
        clock[SAMPLES], clock[SAMPLE_MS] = 1, window
        # It came before, and the gateway let it in then: that it does not know it now, no candidate would.
        is_known = of >= 0 and came_ms[of] != LONG_AGO_MS and now_ms < came_ms[of] + window
        for c in range(len(quotas)):
            blocked = _is_blocked(limits[c], floor)
            token_ms = np.inf if blocked else _unit_ms(limits[c])
            burst_ms = float(window) if blocked else float(_id_burst_ms(window, token_ms))
            owed_ms = -burst_ms if is_first else _debt_at(debts[c], before_ms, now_ms, burst_ms)
            throttle_ms, spent = 0.0, count
            if not (is_known and let_in[of, c]):
                if blocked:
                    throttle_ms, spent = float(_BLOCKED_THROTTLE_MS), 0.0
                else:
                    owed_ms, tokens = spend_tokens(owed_ms, count, token_ms, burst_ms)
                    spent = float(tokens)
                    if spent < count:
                        throttle_ms = max(1.0, owed_ms - _id_gate_ms(token_ms))
            debts[c] = owed_ms
            if of >= 0:
                let_in[of, c] = spent == count
            if counts:
                note(sums, c, now_ms, throttle_ms, count)
                sums[REJECTED, c] += count - spent
        if of >= 0:
            came_ms[of] = LONG_AGO_MS if recorded[row] == ADMITTED else now_ms


@kernel
def most_in_a_window(ts_ms: Int64s, value: Doubles, window_ms: Int64s) -> float:
    """The largest sum of values in any time as long as the window of its last row; times never go back."""
    most = within = 0.0
    first = 0
    for row in range(len(ts_ms)):
        within += value[row]
        while ts_ms[first] <= ts_ms[row] - window_ms[row]:
            within -= value[first]
            first += 1
        most = max(most, within)
    return most
