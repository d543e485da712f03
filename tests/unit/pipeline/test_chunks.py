"""Rows become chunks and rows again: every one, with every number, in its counter's order."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.packed_events import RUNS, identified, table

from kvota.model.decision_sink import OUTCOMES
from kvota.model.errors import KvotaError
from kvota.pipeline import arrange as arrange_module
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.event_columns import Events
from kvota.pipeline.kernels import packing
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import Rows, unpack
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.period import Period
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

NAMES = EVENT_SCHEMA.names
FURTHER = frozenset({"throttle_ms", "upstream_throttle_ms"})
KEYS: dict[s.By, tuple[str, ...]] = {
    "counter": s.COUNTER_COLUMNS[:-1],
    "user": ("node_id", "quota_type", "user"),
    "client": ("node_id", "quota_type", "client_id"),
    "user-client": ("node_id", "quota_type", "user", "client_id"),
    "tags": ("node_id", "quota_type", "tags"),
}


@pytest.fixture(scope="module")
def recorded() -> list[EventRow]:
    first = RecordedTraffic(7, run_id="run-1", enforced=False)
    second = RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True)
    return [*first.rows(3_000), *second.rows(1_000)]


def chunks(parts: list[list[EventRow]], by: s.By, rows_max: int = s.CHUNK_ROWS_MAX) -> pa.Table:
    how = Packing(by=by, runs=RUNS, further=FURTHER, chunk_rows_max=rows_max)
    packed = [batch for rows in parts if (batch := pack(Events(table(rows)), how)) is not None]
    return identified(pa.Table.from_batches(packed, s.CHUNK))


def in_order(parts: Iterator[Rows]) -> dict[tuple[object, ...], list[tuple[float, ...]]]:
    found = defaultdict(list)
    for rows in parts:
        columns = [rows.columns[name].tolist() for name in (*s.INTS, *s.DOUBLES)]
        numbers = list(zip(*columns, strict=True))
        for place, name in enumerate(rows.names.to_pylist()):
            key = tuple(name[part] for part in s.COUNTER_COLUMNS)
            found[key] += numbers[rows.starts[place] : rows.starts[place + 1]]
    return dict(found)


def expected(rows: list[EventRow], by: s.By) -> list[list[tuple[float, ...]]]:
    of_counters = defaultdict(list)
    for row in rows:
        event = dict(zip(NAMES, row, strict=True))
        rank, _ = RUNS[event["gateway"], event["run_id"]]
        outcome = [outcome.value for outcome in OUTCOMES].index(event["outcome"])
        assert event["limit"] is None or not math.isnan(event["limit"])
        of_counters[tuple(event[name] for name in KEYS[by])].append(
            (
                event["seq"] if by == "counter" else (event["ts_us"], rank, event["seq"]),
                event["ts_us"],
                event["seq"],
                rank,
                outcome,
                event["throttle_ms"],
                event["value"],
                event["limit"],
            )
        )
    return sorted(
        [number[1:] for number in sorted(numbers, key=lambda n: n[0])]
        for numbers in of_counters.values()
    )


def plain(
    found: dict[tuple[object, ...], list[tuple[float, ...]]],
) -> list[list[tuple[float, ...]]]:
    return sorted(
        [
            (
                ts_us,
                seq,
                rank,
                marks & s.OUTCOME_MASK,
                throttle_ms,
                value,
                None if math.isnan(limit) else limit,
            )
            for ts_us, seq, rank, _, _, marks, throttle_ms, _, value, limit in numbers
        ]
        for numbers in found.values()
    )


@pytest.mark.parametrize("by", list(KEYS))
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_comes_back_in_order_however_they_were_cut(
    recorded: list[EventRow], by: s.By, seed: int
) -> None:
    rng = random.Random(seed)
    rows = recorded if seed == 1 else rng.sample(recorded, len(recorded))
    cuts = sorted(rng.sample(range(1, len(rows)), 5))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    packed = chunks(parts, by)

    for length in (1, 7, 10_000):
        found = in_order(unpack(packed.to_batches(length), as_recorded=by == "counter"))
        assert plain(found) == expected(rows, by)


@pytest.mark.parametrize("by", list(KEYS))
@pytest.mark.parametrize("seed", [None, 3])
def test_rows_that_lie_counter_by_counter_are_packed_as_others(
    recorded: list[EventRow], by: s.By, seed: int | None
) -> None:
    rows = recorded if seed is None else random.Random(seed).sample(recorded, len(recorded))
    places = [NAMES.index(name) for name in KEYS[by]]
    clustered = sorted(rows, key=lambda row: [str(row[place]) for place in reversed(places)])

    packed = chunks([clustered], by)

    found = in_order(unpack(packed.to_batches(), as_recorded=by == "counter"))
    assert plain(found) == expected(recorded, by)
    others = in_order(unpack(chunks([recorded], by).to_batches(), as_recorded=by == "counter"))
    assert {name: repr(rows) for name, rows in found.items()} == {
        name: repr(rows) for name, rows in others.items()
    }


@pytest.mark.parametrize("by", ["counter", "user"])
def test_large_counters_are_cut_and_put_together(recorded: list[EventRow], by: s.By) -> None:
    packed = chunks([recorded], by, rows_max=10)

    assert max(packed["rows"].to_pylist()) == 10
    found = in_order(unpack(packed.to_batches(3), as_recorded=by == "counter"))
    assert plain(found) == expected(recorded, by)


def test_with_many_names_counters_are_told_apart_by_sorting(
    recorded: list[EventRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrange_module, "_COMBINATIONS_MAX", 3)

    found = in_order(unpack(chunks([recorded], "counter").to_batches(), as_recorded=True))

    assert plain(found) == expected(recorded, "counter")


def test_what_is_not_wanted_is_left_out(recorded: list[EventRow]) -> None:
    times = sorted(row[0] for row in recorded)
    period = Period(times[100], times[200])
    how = Packing(by="user", runs=RUNS, quota_types=frozenset({"FETCH"}), period=period)

    batch = pack(Events(table(recorded)), how)

    wanted = [row for row in recorded if row[5] == "FETCH" and times[100] <= row[0] < times[200]]
    assert sum(batch.column("rows").to_pylist()) == len(wanted) > 10
    assert set(batch.column("quota_type").to_pylist()) == {"FETCH"}
    assert pack(Events(table([row for row in recorded if row[5] != "FETCH"])), how) is None


def test_two_counters_of_one_id_are_not_merged(recorded: list[EventRow]) -> None:
    packed = chunks([recorded], "counter")
    same = packed.set_column(
        packed.schema.get_field_index("counter_id"), "counter_id", pa.array([7] * len(packed))
    )

    with pytest.raises(KvotaError, match="two counters have the same counter_id"):
        list(unpack(same.sort_by("first").to_batches(), as_recorded=True))


def test_a_name_that_is_missing_is_not_the_other_name() -> None:
    row = dict(zip(NAMES, RecordedTraffic(1).rows(1).__iter__().__next__(), strict=True))
    run = (row["gateway"], row["run_id"])
    rows = [row | {"user": "x", "client_id": None}, row | {"user": None, "client_id": "x"}]

    batch = pack(
        Events(pa.Table.from_pylist(rows, EVENT_SCHEMA)),
        Packing(by="user-client", runs={run: (0, True)}),
    )

    assert sorted(batch.column("tags").to_pylist()) == ["client-id=,user=x", "client-id=x,user="]


whole = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-300, 300)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    numbers=st.sampled_from(
        [whole, small, st.just(7), st.integers(0, 70_000), st.integers(0, 2**33)]
    ),
    values=st.sampled_from(
        [st.floats(), st.integers(-9, 2**54).map(float), st.just(-0.0), st.just(math.nan)]
    ),
)
def test_columns_come_back_bit_for_bit(
    data: st.DataObject,
    lengths: list[int],
    numbers: st.SearchStrategy[int],
    values: st.SearchStrategy[float],
) -> None:
    total = sum(lengths)
    ints = np.array(
        data.draw(
            st.lists(st.lists(numbers, min_size=total, max_size=total), min_size=2, max_size=2)
        )
    )
    ints = ints.astype(np.int64)
    doubles = np.array([data.draw(st.lists(values, min_size=total, max_size=total))])
    starts = np.cumsum([0, *lengths])
    out = np.empty(3 * (len(lengths) * packing.COLUMN_HEAD_BYTES + 8 * total), np.uint8)
    ends = np.empty(len(starts), np.int64)

    # The first column's number is the same in every row, for the writer knows it.
    ints[0] = ints[0, 0]
    packing.put_columns(
        starts,
        np.array([-1, 0, 0]),
        np.array([ints[0, 0], 0, 0]),
        2,
        ints[1:],
        doubles,
        doubles.view(np.int64),
        out,
        ends,
    )

    ints_back, doubles_back = np.zeros_like(ints), np.zeros_like(doubles)
    content = out[: ends[-1]].copy()
    packing.get_columns(
        content, ends[:-1], starts, ints_back, doubles_back, doubles_back.view(np.int64)
    )
    assert ints_back.tolist() == ints.tolist()
    assert doubles_back.view(np.int64).tolist() == doubles.view(np.int64).tolist()
