"""What other quotas would have made of the new ids in a record, against the engine itself."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracle.recorded_ids import RecordedIds, rows_of

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.pipeline.producer_id_stage import came, id_grid_stage
from kvota.pipeline.producer_ids import ID_COLUMNS
from kvota.wire.steps import at_once

pytestmark = pytest.mark.timeout(120)  # kernels may have to be compiled
# An id that comes at least every 6,300 ms stays known, one that is silent for 6,400 ms is new: no time of
# these records is between, as all are multiples of 100 ms.
_LAYERING = Layering(window_ms=6_400, layers=64, false_positive_rate=1e-9)
_STEPS_MS = st.sampled_from([0, 0, 100, 300, 1_000, 3_200, 6_300, 6_400])
_RATES = st.sampled_from([0.3, 1.0, 2.0, 5.0, 40.0])
_IDS = st.integers(0, 9)
_REQUESTS = st.one_of(
    st.lists(_IDS, min_size=1, max_size=3),
    # More than are named one by one.
    st.integers(1, 20).map(lambda block: list(range(block * 1_000, block * 1_000 + 25))),
)
_CANDIDATES = (0.3, 1.0, 2.5, 5.0, 12.0, 1e6)


def recorded(
    rate: float, requests: Sequence[tuple[list[int], int]], *, enforced: bool
) -> list[pa.Table]:
    gateway = RecordedIds(_LAYERING, enforced=enforced)
    gateway.set_rate("alice", rate)
    for number, (ids, step_ms) in enumerate(requests):
        gateway.now_us += step_ms * 1000
        at_once(gateway.produce("alice", number, ids))
    gateway.close()
    return gateway.tables


def by_engine(rows: list[dict], candidate: float) -> tuple[int, int]:
    """Rows with ids that are over, and how many these are; an id that the gateway has let in is another one after that."""
    ids, over, refused = ProducerIds(_LAYERING), 0, 0
    lives: dict[int, int] = defaultdict(int)
    unnamed = 10**12
    for row in rows:
        now_ms, told = row["ts_us"] // 1000, row["producer_id"]
        if told is None:
            these = range(unnamed, unnamed + int(row["value"]))
            unnamed += int(row["value"])
        else:
            these = range(told + 10**6 * lives[told], told + 10**6 * lives[told] + 1)
        answers = [ids.admit("alice", candidate, one, now_ms) for one in these]
        over += any(answer > 0 for answer in answers)
        refused += sum(answer > 0 for answer in answers)
        if told is not None and row["outcome"] == "admitted":
            lives[told] += 1
    return over, refused


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40, deadline=None)
@given(
    rate=_RATES,
    requests=st.lists(st.tuples(_REQUESTS, _STEPS_MS), min_size=1, max_size=60),
    enforced=st.booleans(),
    rows_in_chunk=st.sampled_from([1, 7, 10_000]),
)
def test_candidates_refuse_what_the_engine_refuses(
    rate: float, requests: list[tuple[list[int], int]], rows_in_chunk: int, *, enforced: bool
) -> None:
    tables = recorded(rate, requests, enforced=enforced)
    rows = tables[0].to_pylist()
    stage = id_grid_stage(_CANDIDATES)
    parts = rows_of(tables, ID_COLUMNS, rows_in_chunk=rows_in_chunk)
    found = [row for batch in stage(parts) for row in batch.to_pylist()]

    assert [row["events"] for row in found] == [len(rows)] * len(_CANDIDATES)
    assert [row["quota"] for row in found] == [c * 1000.0 / 6_400 for c in _CANDIDATES]
    for row, candidate in zip(found, _CANDIDATES, strict=True):
        assert (row["over"], row["rejected"]) == by_engine(rows, candidate)


def test_with_the_quota_in_force_those_are_refused_that_were() -> None:
    tables = recorded(5.0, [([number], 100) for number in range(200)], enforced=True)
    (row,) = (
        row
        for batch in id_grid_stage((5.0,))(rows_of(tables, ID_COLUMNS))
        for row in batch.to_pylist()
    )
    assert row["rejected"] == tables[0]["outcome"].to_pylist().count("rejected") > 0


def test_in_shadow_mode_ids_beyond_a_low_quota_do_not_count_again_against_a_higher_one() -> None:
    """Ten producers go on for a long time; each batch of those that the gateway does not know has a row."""
    requests = [([number % 10], 100) for number in range(1_000)]
    tables = recorded(1.0, requests, enforced=False)
    assert len(tables[0]) > 100

    (row,) = (
        row
        for batch in id_grid_stage((10.0,))(rows_of(tables, ID_COLUMNS))
        for row in batch.to_pylist()
    )

    assert (row["over"], row["rejected"], row["throttled_ms"]) == (0, 0, 0)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(
    rate=_RATES,
    requests=st.lists(st.tuples(_REQUESTS, _STEPS_MS), min_size=1, max_size=40),
    rows_in_chunk=st.sampled_from([1, 7, 10_000]),
)
def test_what_came_is_summed_up(
    rate: float, requests: list[tuple[list[int], int]], rows_in_chunk: int
) -> None:
    tables = recorded(rate, requests, enforced=True)
    rows = tables[0].to_pylist()
    parts = rows_of(tables, ID_COLUMNS, by="user", rows_in_chunk=rows_in_chunk)
    (found,) = (row for batch in came(parts) for row in batch.to_pylist())

    new = [row for row in rows if row["outcome"] == "admitted"]
    refused = [row for row in rows if row["outcome"] == "rejected"]
    times = np.array([row["ts_us"] // 1000 for row in new], np.int64)
    counts = np.array([row["value"] for row in new])
    most = max(
        (counts[(times > at - 6_400) & (times <= at)].sum() for at in times.tolist()), default=0
    )
    named = {row["producer_id"] for row in rows} - {None}
    assert found["user"] == "alice"
    assert found["enforced"]
    assert found["new_ids"] == sum(row["value"] for row in new)
    assert found["most_in_window"] == most <= 2 * max(rate, 1.0) + 0.01
    assert found["distinct_ids"] == len(named)
    assert found["unnamed_ids"] == sum(row["value"] for row in rows if row["producer_id"] is None)
    assert found["refused_ids"] == len({row["producer_id"] for row in refused} - {None})
    assert found["refusals"] == sum(row["value"] for row in refused)
    assert found["window_ms"] == 6_400
    assert found["limit_last"] == rate * 1000.0 / 6_400
