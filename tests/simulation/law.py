"""The law: the recorded rows, replayed by the pipeline's own kernel, give the recorded throttle times."""

import numpy as np
from tests.simulation.further_quota import TAGS
from tests.simulation.watch import InvariantError

from kvota.model.decision_sink import REJECTED
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, TOKENS_SIZE, law_rows
from kvota.testing.stage import Row

_SLOTS = 32  # more samples than any window here has
_NEVER = 1 << 15


def check_law(rows: list[Row]) -> None:
    """Every row, counter by counter, in the order of decisions."""
    rows = [row for row in rows if row.memo.tags != TAGS]
    rows.sort(key=lambda row: (*_counter(row), row.seq))
    if not rows:
        return
    mutation = QuotaType.CONTROLLER_MUTATION
    memos = [row.memo for row in rows]
    counters = [_counter(row) for row in rows]
    first = [at == 0 or counters[at] != counters[at - 1] for at in range(len(rows))]
    strict = [memo.api_version >= STRICT_FROM.get(memo.api_key, _NEVER) for memo in memos]
    bucket = [memo.quota_type is mutation for memo in memos]
    debt = [
        memo.algorithm is Algorithm.TOKEN_BUCKET and memo.quota_type is not mutation
        for memo in memos
    ]
    refused = [row.outcome == REJECTED and row.memo.quota_type is not mutation for row in rows]
    throttle_ms = np.zeros(len(rows), np.int32)
    outcome = np.zeros(len(rows), np.int8)
    judged = np.zeros(len(rows), np.bool_)
    law_rows(
        np.array(first),
        np.full(len(rows), fill_value=True),
        np.array(bucket),
        np.array([memo.quota_type is QuotaType.REQUEST for memo in memos]),
        np.array(debt),
        np.array(strict),
        np.array([memo.quota_type is QuotaType.PRODUCE for memo in memos]),
        np.array(refused),
        np.array([row.ts_us for row in rows], np.int64),
        np.array([row.value for row in rows], np.float64),
        np.array([np.nan if memo.limit is None else memo.limit for memo in memos], np.float64),
        np.array([FACTS[memo.quota_type].floor for memo in memos], np.float64),
        np.array([memo.samples for memo in memos], np.int64),
        np.array([memo.sample_ms for memo in memos], np.int64),
        np.zeros(STATE_SIZE, np.int64),
        np.zeros(TOKENS_SIZE),
        np.zeros(_SLOTS, np.int64),
        np.zeros(_SLOTS, np.int64),
        np.zeros(_SLOTS),
        throttle_ms,
        outcome,
        judged,
    )
    for place, row in enumerate(rows):
        replayed = int(throttle_ms[place]), int(outcome[place])
        if not judged[place] or replayed != (row.throttle_ms, row.outcome):
            raise InvariantError(
                f"the law gives (throttle, outcome) {replayed} for {row.columns()}"
            )


def _counter(row: Row) -> tuple[int, str, str]:
    return row.memo.node_id, row.memo.quota_type.value, row.memo.tags
