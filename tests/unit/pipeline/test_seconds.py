"""Sums of seconds are those of single charges, to the last bit, however a record was cut before it was summed."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.packed_events import (
    RUNS,
    Second,
    identified,
    seconds_by_counter,
    table,
)

from kvota.model.decision_sink import REJECTED, THROTTLED
from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.event_columns import Events
from kvota.pipeline.kernels import second_sums as k
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.seconds import of_whole_counters, sums_of_rows
from kvota.pipeline.unpack import Rows, unpack
from kvota.pipeline.usage_tables import USAGE_COLUMNS
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

NAMES = EVENT_SCHEMA.names
TS_US, VALUE, LIMIT, TOLD_MS, HELD_MS, USER, TAGS = (
    NAMES.index(name)
    for name in (
        *("ts_us", "value", "limit", "throttle_ms"),
        *("upstream_throttle_ms", "user", "tags"),
    )
)
BYS: tuple[s.By, ...] = ("user", "client", "user-client", "tags")

# What a broker never charges, but a file may hold.
STRANGE = (0.5, -3.0, -0.0, 2.0**36, 2.0**36 + 1, 2.0**63, 1e300, 1 / 3, 7.25, -0.1)
NO_NUMBERS = (float("nan"), float("inf"), -float("inf"))


@pytest.fixture(scope="module")
def recorded() -> list[EventRow]:
    """Rows of two runs at the same time, enforced and not, with waits of every kind; many in one second."""
    first = RecordedTraffic(7, run_id="run-1", enforced=False)
    second = RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True)
    return [*first.rows(600), *second.rows(600)]


def strange(rows: Iterable[EventRow], seed: int, values: tuple[float, ...]) -> list[EventRow]:
    """The same with other values, ties, limits and throttle times that lack, and tags that are not Kafka's."""
    rng = random.Random(seed)
    made = []
    for row in rows:
        changed = list(row)
        changed[TS_US] = row[TS_US] // 50_000 * 50_000  # type: ignore[operator]
        if rng.random() < 0.5:
            changed[VALUE] = rng.choice(values)
        if rng.random() < 0.1:
            changed[LIMIT] = rng.choice((None, float("nan"), 0.0, 5.0))
        if rng.random() < 0.1:
            changed[HELD_MS] = rng.choice((0, 250, 90_000))
        if rng.random() < 0.1:
            changed[TAGS] = "group=a"
        made.append(tuple(changed))
    return made


def packing(by: s.By, *, is_summed: bool, chunk_rows_max: int = 1_000) -> Packing:
    return Packing(
        by=by,
        runs=RUNS,
        further=frozenset(USAGE_COLUMNS),
        modes_apart=by == "client",
        is_summed=is_summed,
        chunk_rows_max=chunk_rows_max,
    )


def packed(parts: Iterable[list[EventRow]], how: Packing, batch_rows: int) -> Iterator[Rows]:
    every = [chunks for rows in parts if (chunks := pack(Events(table(rows)), how)) is not None]
    chunks = identified(pa.Table.from_batches(every, s.CHUNK)).combine_chunks()
    return unpack(chunks.to_batches(batch_rows), as_recorded=False, layout=how.layout)


def by_the_letter(parts: Iterable[Rows]) -> dict[tuple[Any, ...], list[Second]]:
    """Each charge in its order, as the page on usage says it."""
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for rows in parts:
        for place, name in enumerate(rows.names.to_pylist()):
            of_counter = found.setdefault(tuple(name.values())[1:], {})
            for row in range(rows.starts[place], rows.starts[place + 1]):
                charge = {column: values[row].item() for column, values in rows.columns.items()}
                _add(of_counter, charge, name["quota_type"])
    return {
        name: [_second(number, second) for number, second in seconds.items()]
        for name, seconds in found.items()
        if seconds
    }


def _add(seconds: dict[int, dict[str, Any]], charge: dict[str, Any], kind: str) -> None:
    nothing = dict.fromkeys(("events", "further", "throttled", "rejected", "told_ms", "held_ms"), 0)
    begun = nothing | {"marks": 0, "whole": 0, "other": 0.0, "largest": 0.0}
    second = seconds.setdefault(charge["ts_us"] // 1_000_000, begun)
    value, marks, limit = charge["value"], charge["marks"], charge["limit"]
    enforced, rejected = bool(marks & s.ENFORCED), marks & s.OUTCOME_MASK == REJECTED
    waits_for_room = rejected and kind == QuotaType.FETCH
    waits_for_turn = rejected and kind == QuotaType.PRODUCE and enforced
    throttled = waits_for_room or marks & s.OUTCOME_MASK == THROTTLED
    refused = rejected and not waits_for_room and not waits_for_turn
    is_event = value >= 0 and not waits_for_room and not waits_for_turn
    if not (rejected and enforced):
        if abs(value) <= 2**36 and value == int(value):
            second["whole"] += int(value)
        else:
            second["other"] += value
    second["events"] += is_event
    second["further"] += not is_event and (throttled or refused)
    second["throttled"] += throttled
    second["rejected"] += refused
    if not waits_for_turn:
        second["told_ms"] += max(0, charge["throttle_ms"])
    censored = charge["upstream_ms"] > 0 or (enforced and (rejected or throttled))
    if censored:
        held_ms = max(charge["upstream_ms"], charge["throttle_ms"] if enforced else 0)
        second["held_ms"] = max(second["held_ms"], held_ms)
    of_any = s.ENFORCED | s.OTHER_TAGS
    second["marks"] = (
        (second["marks"] & (of_any | s.CENSORED))
        | (marks & (of_any | s.LIMIT_BINDS))
        | (s.CENSORED if censored else 0)
    )
    second["limit"] = limit
    own = limit if marks & s.LIMIT_BINDS and limit > 0 else float("inf")
    second["largest"] = max(second["largest"], own)


def _second(number: int, second: dict[str, Any]) -> Second:
    used = float(second["whole"]) + second["other"]
    names = ("marks", "events", "further", "throttled", "rejected", "told_ms", "held_ms", "whole")
    bits = np.array([used, second["limit"], second["largest"]]).view(np.int64).tolist()
    return (number, *(second[name] for name in names), *bits)


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("values", [STRANGE, STRANGE + NO_NUMBERS])
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_however_it_was_cut(
    recorded: list[EventRow], by: s.By, values: tuple[float, ...], data: st.DataObject
) -> None:
    rows = strange(recorded, data.draw(st.integers(0, 99)), values)
    count = len(rows)
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1), max_size=6)))
    if data.draw(st.booleans()):  # files in which nothing is in order
        random.Random(data.draw(st.integers(0, 99))).shuffle(rows)
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    rows_max = data.draw(st.sampled_from((1, 7, 1_000)))
    batch_rows = data.draw(st.sampled_from((1, 13, 1_000)))
    summed = packing(by, is_summed=True, chunk_rows_max=rows_max)
    charges = packing(by, is_summed=False, chunk_rows_max=rows_max)

    expected = by_the_letter(packed([rows], packing(by, is_summed=False), 1_000))
    before = seconds_by_counter(of_whole_counters(packed(parts, summed, batch_rows)))
    behind = seconds_by_counter(of_whole_counters(sums_of_rows(packed(parts, charges, batch_rows))))

    assert before == expected
    assert behind == expected
    assert sum(len(seconds) for seconds in expected.values()) > 100


@pytest.mark.parametrize("is_summed", [False, True])
def test_every_charge_is_counted_once(recorded: list[EventRow], is_summed: bool) -> None:
    rows = strange(recorded, 1, STRANGE)
    how = packing("user", is_summed=is_summed)

    every = list(packed([rows[:999], rows[999:]], how, 10))

    assert sum(found.charges for found in every) == len(rows)


def test_whole_values_of_a_second_move_as_one_part(recorded: list[EventRow]) -> None:
    in_one_second = [(*row[:VALUE], 7.0, *row[VALUE + 1 :]) for row in recorded]
    in_one_second = [
        (*row[:TS_US], 1_900_000_000_000_000 + place, *row[TS_US + 1 :])
        for place, row in enumerate(in_one_second)
    ]
    how = packing("user", is_summed=True)

    chunks = pack(Events(table(in_one_second)), how)

    assert chunks is not None
    assert set(chunks["rows"].to_pylist()) == {1}


def test_columns_of_parts_lie_as_the_kernel_has_them() -> None:
    ints = (
        *(k.TS_US, k.SEQ, k.RUN, k.MARKS, k.CHARGES, k.EVENTS, k.FURTHER, k.THROTTLED),
        *(k.REJECTED, k.TOLD_MS, k.HELD_MS, k.WHOLE),
    )
    names = (
        *("ts_us", "seq", "run", "marks", "charges", "events", "further", "throttled"),
        *("rejected", "told_ms", "held_ms", "whole"),
    )
    assert tuple(s.SUMS.ints[place] for place in ints) == names
    assert s.SUMS.doubles == ("other", "limit", "largest")
    assert tuple(range(k.PART_INTS, k.PART_INTS + 3)) == (k.OTHER, k.LIMIT, k.LARGEST)
    assert len(s.SUMS.names) == k.PART_INTS + k.PART_DOUBLES
