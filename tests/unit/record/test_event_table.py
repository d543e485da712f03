"""Packed rows and memos become the rows of the events table."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED, ChargeMemo
from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW, ROW_COLUMNS

INT16, INT32, INT64 = (
    st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64)
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MEMOS = st.builds(
    ChargeMemo,
    node_id=INT32,
    quota_type=st.sampled_from(QuotaType),
    connection=INT64,
    user=NAMES,
    client_id=NAMES,
    tags=NAMES,
    api_key=INT16,
    api_version=INT16,
    limit=st.none() | st.floats(allow_nan=False),
    samples=INT16,
    sample_ms=INT32,
    algorithm=st.sampled_from(Algorithm),
    enforced=st.booleans(),
)
ROWS = st.tuples(
    INT64, INT64, st.floats(allow_nan=False), INT32, INT32, st.integers(0, 4), st.integers(0, 2)
)


def read_back(rows: bytes, memos: list[ChargeMemo]) -> list[dict[str, object]]:
    table = event_table(np.frombuffer(rows, ROW_COLUMNS), memos, gateway="gw", run_id="r1")
    return pq.read_table(io.BytesIO(parquet_bytes(table, []))).to_pylist()


def expected_row(row: tuple[object, ...], memo: ChargeMemo) -> dict[str, object]:
    seq, ts_us, value, throttle_ms, upstream_throttle_ms, _, outcome = row
    own = {
        "seq": seq,
        "ts_us": ts_us,
        "value": value,
        "throttle_ms": throttle_ms,
        "upstream_throttle_ms": None if upstream_throttle_ms == -1 else upstream_throttle_ms,
        "outcome": ["admitted", "throttled", "rejected"][outcome],
        "gateway": "gw",
        "run_id": "r1",
    }
    return {
        column.name: own[column.name] if column.name in own else getattr(memo, column.name)
        for column in EVENT_COLUMNS
    }


@given(memos=st.lists(MEMOS, min_size=5, max_size=5), rows=st.lists(ROWS, max_size=20))
@settings(deadline=None)
def test_every_row_comes_back_from_parquet_as_it_was_packed(
    memos: list[ChargeMemo], rows: list[tuple[object, ...]]
) -> None:
    packed = b"".join(ROW.pack(*row) for row in rows)

    table = read_back(packed, memos)

    assert table == [expected_row(row, memos[row[5]]) for row in rows]


def test_no_limit_and_no_answer_are_null(make_memo) -> None:
    rows = ROW.pack(0, 1, 1.0, 0, NO_ANSWER, 0, ADMITTED) + ROW.pack(1, 1, 1.0, 0, 0, 1, ADMITTED)

    table = read_back(rows, [make_memo(limit=None), make_memo(limit=5.0)])

    assert [row["limit"] for row in table] == [None, 5.0]
    assert [row["upstream_throttle_ms"] for row in table] == [None, 0]


def test_memos_of_rows_that_were_written_before_are_no_part_of_the_table(make_memo) -> None:
    memos = [make_memo(connection=number) for number in range(5)]
    rows = b"".join(ROW.pack(0, 1, 1.0, 0, 0, index, 0) for index in (3, 1, 3))

    packed = np.frombuffer(rows, ROW_COLUMNS)
    table = event_table(packed, [*memos, make_memo(samples=40_000)], gateway="gw", run_id="r1")

    assert table.column("connection").to_pylist() == [3, 1, 3]


def test_outcomes_are_written_as_words(make_memo) -> None:
    codes = (ADMITTED, THROTTLED, REJECTED)
    rows = b"".join(ROW.pack(0, 1, 1.0, 0, 0, 0, code) for code in codes)

    table = read_back(rows, [make_memo()])

    assert [row["outcome"] for row in table] == ["admitted", "throttled", "rejected"]


def test_names_that_were_no_utf8_are_written_escaped_and_stay_different(make_memo) -> None:
    memos = [make_memo(client_id=b"a\xff".decode("utf-8", "surrogateescape")), make_memo(user="é")]
    rows = ROW.pack(0, 1, 1.0, 0, 0, 0, 0) + ROW.pack(1, 1, 1.0, 0, 0, 1, 0)

    table = read_back(rows, memos)

    assert [row["client_id"] for row in table] == ["a\\udcff", "app"]
    assert [row["user"] for row in table] == ["alice", "é"]


def test_a_memo_beyond_its_column_is_refused(make_memo) -> None:
    with pytest.raises(OverflowError):
        read_back(ROW.pack(0, 1, 1.0, 0, 0, 0, 0), [make_memo(samples=40_000)])
