"""Rows of a table as events: what each kind of column says, and which rows charge nothing."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kvota.pipeline.sources.table_mapping import TableMapping
from kvota.pipeline.sources.table_rows import BadRow, Column, TableRows, kind_faults
from kvota.pipeline.sources.table_times import TimeReading

T = 1_795_271_400_000
MAPPING = TableMapping(
    {"ts": "at", "user": "who", "client_id": "app", "value": "n"}, {"quota_type": "PRODUCE"}
)


def taken(
    columns: dict[str, Column], mapping: TableMapping = MAPPING
) -> tuple[list[dict[str, Any]], list[BadRow]]:
    rows = TableRows(mapping, TimeReading("ms"))
    bad = rows.take(columns, len(columns["at"]))
    return rows.table(gateway="g", run_id="r").to_pylist(), bad


def in_arrow(columns: dict[str, list[Any]]) -> dict[str, Column]:
    return {name: pa.array(cells) for name, cells in columns.items()}


CELLS = {
    "at": [T + 2, T, T, T + 1],
    "who": ["User:alice", "bob", "bob", None],
    "app": ["a", None, "<script>", "b"],
    "n": [5.0, 7.0, 3.0, 1.0],
}


@pytest.mark.parametrize("columns", [CELLS, in_arrow(CELLS)], ids=["cells", "arrow"])
def test_rows_are_in_the_order_of_time_and_then_of_value(columns: dict[str, Column]) -> None:
    found, bad = taken(columns)

    assert not bad
    assert [(row["ts_us"], row["user"], row["client_id"], row["value"]) for row in found] == [
        (T * 1000, "bob", "<script>", 3),
        (T * 1000, "bob", "", 7),
        (T * 1000 + 1000, "ANONYMOUS", "b", 1),
        (T * 1000 + 2000, "alice", "a", 5),
    ]
    assert [row["tags"] for row in found] == [f"client-id=,user={row['user']}" for row in found]
    assert {(row["limit"], row["samples"], row["throttle_ms"]) for row in found} == {(None, 0, 0)}


def test_a_number_puts_rows_in_order_where_there_is_one() -> None:
    mapping = TableMapping({**MAPPING.columns, "seq": "offset"}, MAPPING.constants)

    found, _ = taken({**in_arrow(CELLS), "offset": pa.array([0, 3, 2, 1])}, mapping)

    assert [row["value"] for row in found] == [5, 1, 3, 7]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "it has no n"),
        (-1.0, "its value is below 0"),
        (float("nan"), "its value is no number (NaN)"),
        (float("inf"), "its value is infinite"),
    ],
)
def test_a_value_that_charges_nothing(value: float | None, reason: str) -> None:
    reason = reason.replace("no n", "no value") if value is None else reason
    for column in (
        pa.array([1.0, value]),
        [1.0, value],
        ["1", "" if value is None else str(value)],
    ):
        columns = {"at": [T, T], "who": ["a", "b"], "app": ["x", "y"], "n": column}
        found, bad = taken(columns)
        assert [row["value"] for row in found] == [1]
        assert [(one.row, one.reason) for one in bad] == [(1, reason)]
        assert "user=b" in bad[0].sample


def test_values_of_every_kind_of_number() -> None:
    for column in (
        pa.array([2**40], pa.uint64()),
        pa.array([Decimal(2**40)], pa.decimal128(20, 0)),
        pa.array([str(2**40)]),
        pa.array([str(2**40).encode()]),
        [" 1099511627776 "],
    ):
        found, bad = taken({"at": [T], "who": ["a"], "app": ["x"], "n": column})
        assert (found[0]["value"], bad) == (2**40, [])


def test_names_have_any_bytes() -> None:
    odd = b"\xff\x00\x1b[2J,=%"
    for column in (pa.array([odd]), pa.array([odd]).cast(pa.large_binary()).dictionary_encode()):
        found, bad = taken({"at": [T], "who": column, "app": [None], "n": [1]})
        assert (found[0]["user"], bad) == ("\\xff\x00\x1b[2J,=%", [])
    invalid = pa.Array.from_buffers(pa.string(), 1, pa.array([odd]).buffers())
    found, _ = taken({"at": [T], "who": invalid, "app": [None], "n": [1]})
    assert found[0]["user"] == "\\xff\x00\x1b[2J,=%"


def test_names_that_are_numbers() -> None:
    found, _ = taken({"at": [T], "who": pa.array([42]), "app": pa.array(["x"]), "n": pa.array([1])})

    assert found[0]["user"] == "42"


def test_rows_of_nobody_and_of_no_quota_type_charge_nothing() -> None:
    mapping = TableMapping({**MAPPING.columns, "quota_type": "kind"}, {})
    columns = {
        "at": [T] * 4,
        "who": ["a", "", "a", "a"],
        "app": ["", None, "", ""],
        "n": [1] * 4,
        "kind": ["fetch", "FETCH", "FLY", None],
    }

    for given in (columns, in_arrow(columns)):
        found, bad = taken(given, mapping)
        assert [row["quota_type"] for row in found] == ["FETCH"]
        assert [one.reason for one in bad] == [
            "it has neither a user nor a client id",
            '"FLY" is no quota type',
            "it has no quota type",
        ]


def test_brokers_and_throttles() -> None:
    more = {"node_id": "broker", "throttle_ms": "wait"}
    mapping = TableMapping({**MAPPING.columns, **more}, {"quota_type": "FETCH"})
    columns = {
        **CELLS,
        "broker": [1, None, 2**31, 1],
        "wait": [0, 250, 0, -1],
    }

    for given in (columns, in_arrow(columns)):
        found, bad = taken(given, mapping)
        assert [(row["node_id"], row["throttle_ms"], row["outcome"]) for row in found] == [
            (-2, 250, "throttled"),
            (1, 0, "admitted"),
        ]
        assert [one.reason for one in bad] == [
            "its node_id is no id of a broker",
            "its throttle_ms is no whole number from 0 on",
        ]


def test_large_numbers_of_the_order_are_exact() -> None:
    mapping = TableMapping({**MAPPING.columns, "seq": "offset"}, MAPPING.constants)
    large = 2**53
    for offsets in (pa.array([large + 1, large]), [str(large + 1), str(large)], [large + 1, large]):
        columns = {"at": [T, T], "who": ["a", "b"], "app": ["", ""], "n": [1, 1], "offset": offsets}
        found, _ = taken(columns, mapping)
        assert [row["user"] for row in found] == ["b", "a"]
        assert [row["seq"] for row in found] == [large, large + 1]


def test_columns_of_a_kind_that_cannot_be_used() -> None:
    kinds = {"at": pa.date32(), "who": pa.float64(), "app": pa.list_(pa.string()), "n": pa.bool_()}

    told = [*kind_faults(kinds, MAPPING)]

    assert [text.partition(":")[0] for text in told] == ["ts", "user", "client_id", "value"]
    assert (
        told[0]
        == 'ts: the column "at" is of type date32[day]; it has to be a timestamp, a number or a text'
    )
    good = {
        "at": pa.timestamp("ns"),
        "who": pa.dictionary(pa.int32(), pa.string()),
        "n": pa.uint64(),
    }
    assert not [*kind_faults(good, MAPPING)]


def test_counters_are_told_apart_however_many_there_are() -> None:
    rng = np.random.default_rng(16)
    users, apps = rng.integers(0, 50, 5_000), rng.integers(0, 40, 5_000)
    columns = {
        "at": pa.array(np.arange(5_000) + T),
        "who": pa.array([f"u{user}" for user in users]),
        "app": pa.array([f"a{app}" for app in apps]),
        "n": pa.array(np.ones(5_000)),
    }

    found, _ = taken(columns)

    assert [(row["user"], row["client_id"]) for row in found] == [
        (f"u{user}", f"a{app}") for user, app in zip(users, apps, strict=True)
    ]
