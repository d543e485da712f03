"""Replays recorded decisions about new producer ids, with their recorded limits, to what was decided.

It follows ``kvota.engine.producer_ids``: only new ids and refused ones touch a user's bucket, and these
have rows. Where a bucket begins (a new user, a restart, another quota after none) its first row says what
was owed; before such a row nothing can be judged.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

import numpy as np

from kvota.model.decision_sink import ADMITTED, REJECTED
from kvota.pipeline.chunk_schema import NOT_TOLD
from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s
from kvota.pipeline.kernels.law_kernel import Int8s, Int32s

# Places in the state.
_IS_KNOWN, _TOUCHED_MS = range(2)
ID_STATE_SIZE = 2

# Of one row; what spends more would keep a worker for hours.
_IDS_MAX = 1 << 24

_UNLIMITED = compiled.UNLIMITED
_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_unit_ms = compiled.unit_ms
_id_burst_ms = compiled.id_burst_ms
_id_gate_ms = compiled.id_gate_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle


@step
def spend_tokens(
    debt_ms: float, count: float, token_ms: float, burst_ms: float
) -> tuple[float, int]:
    """Spend tokens one by one while there are any; return the debt after these, and how many they were.

    A request has a few thousand ids at most; of more than ``_IDS_MAX``, which no gateway records, no further one is spent.
    """
    gate_ms = _id_gate_ms(token_ms)
    spent = 0
    while spent < count and not debt_ms > gate_ms:
        after_ms = _debt_with(debt_ms, 1.0, token_ms, burst_ms)
        spent += 1
        if after_ms == debt_ms and spent < count:  # there is no limit: so it goes on
            return debt_ms, int(np.ceil(min(count, 2.0**62)))
        debt_ms = after_ms
        if spent == _IDS_MAX:
            break
    return debt_ms, spent


@kernel
def id_law_rows(
    first: Flags,  # the row begins another counter
    of_ids: Flags,  # the row is of new producer ids; others are passed over
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    floor: Doubles,  # a limit below it blocks
    window_ms: Int64s,
    owed_ms: Int64s,  # what a bucket owed that begins with the row; else NOT_TOLD
    recorded: Int64s,  # outcome
    state: Int64s,  # ID_STATE_SIZE places
    debt: Doubles,  # one place
    throttle_ms: Int32s,  # out
    outcome: Int8s,  # out
    judged: Flags,  # out: false until a row has said what was owed
) -> None:
    """Replay rows in order; ``state`` and ``debt`` carry the running counter."""
    for row in range(len(ts_us)):
        if first[row]:
            state[_IS_KNOWN] = 0
        if not of_ids[row]:
            continue
        now_ms = ts_us[row] // 1000
        bound = _UNLIMITED if np.isnan(limit[row]) else limit[row]
        if _is_blocked(bound, floor[row]):  # there is no bucket: the next one begins anew
            throttle_ms[row], outcome[row], judged[row] = _BLOCKED_THROTTLE_MS, REJECTED, True
            continue
        token_ms = _unit_ms(bound)
        burst_ms = float(_id_burst_ms(window_ms[row], token_ms))
        if owed_ms[row] != NOT_TOLD:
            debt[0] = float(owed_ms[row])
            state[_IS_KNOWN], state[_TOUCHED_MS] = 1, now_ms
        judged[row] = state[_IS_KNOWN] == 1
        debt[0] = _debt_at(debt[0], state[_TOUCHED_MS], now_ms, burst_ms)
        state[_TOUCHED_MS] = now_ms
        # A refused row is of ids for none of which there was a token: it is right where there is none for the first.
        is_refused = recorded[row] == REJECTED
        wanted = 1.0 if is_refused else value[row]
        left_ms, spent = spend_tokens(debt[0], wanted, token_ms, burst_ms)
        if spent == wanted:
            throttle_ms[row], outcome[row] = 0, ADMITTED
        else:
            throttle_ms[row] = max(1, _debt_throttle(left_ms - _id_gate_ms(token_ms)))
            outcome[row] = REJECTED
        debt[0] = left_ms
