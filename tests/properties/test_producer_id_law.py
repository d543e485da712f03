"""What was decided about new producer ids follows from the record alone, bit for bit, whatever happens."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.oracle.recorded_ids import RecordedIds, rows_of

from kvota.engine.layered_bloom import Layering
from kvota.pipeline.law_check import LAW_COLUMNS
from kvota.pipeline.law_stage import compared_rows
from kvota.wire.steps import at_once

pytestmark = pytest.mark.timeout(120)  # kernels may have to be compiled
_WINDOW_MS, _LAYERS = 8_000, 4
_USERS = ("alice", "bob, sr.")
_RATES = st.sampled_from([None, 0.0, 1e-9, 0.3, 1.0, 2.5, 3.0, 7.0, 300.0, 1e9])
_STEPS_MS = st.one_of(
    st.just(0),
    st.integers(0, 300),
    st.sampled_from([1, 1_999, 2_000, 2_667, _WINDOW_MS - 1, _WINDOW_MS, 3 * _WINDOW_MS]),
    st.integers(-20_000, 0),
)
_IDS = st.one_of(st.integers(0, 4), st.integers(1_000, 1_400), st.integers(-(2**63), 2**63 - 1))
_REQUESTS = st.one_of(
    st.lists(_IDS, min_size=1, max_size=3),
    # Many at once, of which some are decided on later: others come between.
    st.integers(0, 50).map(lambda block: list(range(block * 1_000, block * 1_000 + 700))),
)
_DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from(_USERS), _REQUESTS, _STEPS_MS),
        st.tuples(st.just("begin"), st.sampled_from(_USERS), _REQUESTS, _STEPS_MS),
        st.tuples(st.just("step"), st.none(), st.none(), _STEPS_MS),
        st.tuples(st.just("rate"), st.sampled_from(_USERS), _RATES, _STEPS_MS),
        st.tuples(st.just("sweep"), st.none(), st.none(), _STEPS_MS),
        st.tuples(st.just("restart"), st.none(), st.booleans(), _STEPS_MS),
    ),
    min_size=1,
    max_size=40,
)


def recorded(rates: list[float | None], deeds: list[tuple], *, enforced: bool) -> list[pa.Table]:
    gateway = RecordedIds(Layering(window_ms=_WINDOW_MS, layers=_LAYERS), enforced=enforced)
    for user, rate in zip(_USERS, rates, strict=True):
        gateway.set_rate(user, rate)
    begun: list[Iterator[None]] = []
    for number, (deed, user, what, step_ms) in enumerate(deeds):
        gateway.now_us += step_ms * 1000 + 137
        if deed == "produce":
            at_once(gateway.produce(user, number, what))
        elif deed == "begin":
            begun.append(gateway.produce(user, number, what))
            next(begun[-1], None)
        elif deed == "step":
            for one in begun:
                next(one, None)
        elif deed == "rate":
            gateway.set_rate(user, what)
        elif deed == "sweep":
            gateway.sweep()
        else:
            begun.clear()
            gateway.restart(saved=what)
    gateway.close()
    return gateway.tables


def compared(tables: list[pa.Table]) -> list[dict]:
    return [
        row for batch in compared_rows(rows_of(tables, LAW_COLUMNS)) for row in batch.to_pylist()
    ]


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100, deadline=None)
@given(rates=st.lists(_RATES, min_size=2, max_size=2), deeds=_DEEDS, enforced=st.booleans())
@example(
    rates=[0.3, 300.0],
    deeds=[
        ("begin", "bob, sr.", list(range(700)), 0),
        ("produce", "bob, sr.", [9_000], 500),
        ("step", None, None, 500),
        ("step", None, None, 500),
        ("produce", "alice", [1, 2], 0),
        ("restart", None, True, 10),
        ("produce", "alice", [3], 10),
    ],
    enforced=True,
)
@example(  # a clock that goes back: from a refusal on tokens come back as before
    rates=[3.0, None],
    deeds=[
        ("produce", "alice", [1, 2, 3, 4], 0),
        ("produce", "alice", [4], -10_000),
        ("produce", "alice", [4], 1_000),
    ],
    enforced=True,
)
def test_every_decision_follows_from_the_rows(
    rates: list[float | None], deeds: list[tuple], *, enforced: bool
) -> None:
    tables = recorded(rates, deeds, enforced=enforced)
    if not tables:
        return
    rows = compared(tables)

    assert len(rows) == sum(table.num_rows for table in tables)
    assert [row for row in rows if not row["equal"]] == []


def stormed() -> pa.Table:
    """A run in which ids are refused, admitted again and known again."""
    deeds = [("produce", "alice", [number % 9], 500) for number in range(60)]
    (table,) = recorded([3.0, None], deeds, enforced=True)
    return table


def changed(table: pa.Table, row: int, **values: object) -> pa.Table:
    rows = table.to_pylist()
    rows[row] |= values
    return pa.Table.from_pylist(rows, table.schema)


@pytest.mark.parametrize(
    "values", [{"throttle_ms": 1}, {"outcome": "admitted", "throttle_ms": 0}, {"limit": 0.25}]
)
def test_a_refusal_that_does_not_follow_is_found(values: dict[str, object]) -> None:
    table = stormed()
    refused = table["outcome"].to_pylist().index("rejected")
    assert all(row["equal"] for row in compared([table]))

    rows = compared([changed(table, refused, **values)])

    assert rows[refused]["equal"] is False


def test_a_token_that_was_not_there_is_found() -> None:
    table = stormed()
    rows = compared([changed(table, 0, value=4.0, producer_id=None)])
    assert [rows[0]["replayed_outcome"], rows[0]["equal"]] == ["rejected", False]


def test_without_its_beginning_nothing_is_judged_until_one_is_there() -> None:
    table = stormed()
    cut = table.slice(1)
    assert {row["equal"] for row in compared([cut])} == {None}

    again = changed(cut, 5, owed_ms=-_WINDOW_MS)
    assert [row["equal"] is None for row in compared([again])][:7] == [True] * 5 + [False] * 2


def test_rows_from_before_they_said_what_they_begin_with_are_not_judged() -> None:
    old = stormed().drop_columns(["owed_ms", "producer_id"])
    assert {row["equal"] for row in compared([old])} == {None}
