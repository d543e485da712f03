"""Rows of somebody's table become rows of the events table, sorted; those that charge nothing are told. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, THROTTLED, ChargeMemo
from kvota.model.quota_type import QuotaType, counter_node_id
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.table_mapping import TableMapping, quota_type_of
from kvota.pipeline.sources.table_times import Cell, TableClock, TimeReading
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW_COLUMNS
from kvota.session.principal import ANONYMOUS

# Of Kafka's requests, the one that is charged on a quota; a table does not say which it was. Changes of topics are
# charged in the strict way, as clients since Kafka 2.7 ask for.
_API_OF = {
    QuotaType.PRODUCE: (0, 0),
    QuotaType.FETCH: (1, 0),
    QuotaType.REQUEST: (-1, 0),
    QuotaType.CONTROLLER_MUTATION: (19, 7),
    QuotaType.PRODUCER_ID: (22, 0),
}
_USER_KIND = "User:"
_UNKNOWN_NODE = -2
_MS_MAX = 2**31 - 1
_WHOLE_MAX = 2**63
_SAMPLE_CHARS = 1024

# A column of Arrow, which has no types; or a list of cells.
Column = Any
_Who = tuple[str, str, QuotaType, int]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that charges nothing: its number among those that were given, why, and what it says."""

    row: int
    reason: str
    sample: str


class _Faults:
    """What is wrong with rows; of one with several faults the first one counts."""

    def __init__(self, count: int) -> None:
        self.is_bad = np.zeros(count, np.bool_)
        self.reasons: dict[int, str] = {}

    def note(self, rows: Array, reason: str) -> None:
        new = np.flatnonzero(rows & ~self.is_bad)
        self.is_bad[new] = True
        self.reasons.update(dict.fromkeys(new.tolist(), reason))

    def note_one(self, row: int, reason: str) -> None:
        if not self.is_bad[row]:
            self.is_bad[row] = True
            self.reasons[row] = reason


class TableRows:
    """Takes rows of a table, and makes sorted tables of events of them.

    Attributes:
        count: of rows that are in no table yet.
    """

    def __init__(self, mapping: TableMapping, reading: TimeReading) -> None:
        """Makes ready.

        Args:
            mapping: what is what.
            reading: of times.
        """
        self._mapping, self._clock = mapping, TableClock(reading)
        self._quotas = LogQuotas()
        self._forget()

    @property
    def twice(self) -> int:
        """Return how many times are in an hour that the zone has twice, and taken as in the first one."""
        return self._clock.twice

    @property
    def is_ordered(self) -> bool:
        """Return whether the table says the order of its rows."""
        return "seq" in self._mapping.columns

    def _forget(self) -> None:
        self.count = 0
        self._parts: list[Array] = []
        self._places: dict[_Who, int] = {}
        self._memos: list[ChargeMemo] = []

    def take(self, columns: dict[str, Column], count: int) -> list[BadRow]:
        """Take some rows; return those that charge nothing.

        Args:
            columns: of the table, by their names there; of Arrow, or cells.
            count: of the rows.

        Raises:
            MixedUnitsError: a time is in another unit than the others.
        """
        faults = _Faults(count)
        found = {name: columns[column] for name, column in self._mapping.columns.items()}
        rows = np.zeros(count, ROW_COLUMNS)
        rows["upstream_throttle_ms"] = NO_ANSWER
        rows["ts_us"] = self._times(found["ts"], faults)
        rows["value"] = self._numbers(found, "value", faults)
        if self.is_ordered:
            rows["seq"] = _whole(found["seq"], "seq", faults, missing=None)
        if "throttle_ms" in found:
            throttle_ms = _whole(found["throttle_ms"], "throttle_ms", faults, missing=0)
            rows["throttle_ms"] = np.minimum(throttle_ms, _MS_MAX)
            rows["outcome"] = np.where(throttle_ms > 0, THROTTLED, ADMITTED)
        rows["memo"] = self._whose(found, faults)
        kept = rows[~faults.is_bad]
        self._parts.append(kept)
        self.count += len(kept)
        return [
            BadRow(row, reason, _sample(found, row))
            for row, reason in sorted(faults.reasons.items())
        ]

    def table(self, *, gateway: str, run_id: str) -> pa.Table:
        """Return the rows in order, as a table whose ``seq`` is that of the mapping; then there are none any more."""
        rows = np.concatenate([np.empty(0, ROW_COLUMNS), *self._parts])
        rows = rows[order_of(rows["seq"], rows["ts_us"], rows["value"])]
        table = event_table(rows, self._memos, gateway=gateway, run_id=run_id)
        self._forget()
        return table

    def _times(self, column: Column, faults: _Faults) -> Array:
        if isinstance(column, pa.Array) and not _is_text(column.type):
            times, found = self._clock.of_column(column)
            for rows, reason in found:
                faults.note(rows, reason)
            return times
        times = np.zeros(len(faults.is_bad), np.int64)
        for row, time in enumerate(self._clock.of_cells(cells_of(column))):
            if isinstance(time, str):
                faults.note_one(row, time)
            else:
                times[row] = time
        return times

    def _numbers(self, found: dict[str, Column], name: str, faults: _Faults) -> Array:
        if name not in found:
            return np.full(len(faults.is_bad), float(self._mapping.constants[name]))
        numbers = _reals(found[name], name, faults)
        for rows, what in (
            (np.isnan(numbers), "no number (NaN)"),
            (np.isinf(numbers), "infinite"),
            (numbers < 0, "below 0"),
        ):
            faults.note(rows, f"its {name} is {what}")
        return np.where(faults.is_bad, 0.0, numbers)

    def _whose(self, found: dict[str, Column], faults: _Faults) -> Array:
        """Return the place of each row's memo."""
        count = len(faults.is_bad)
        codes, texts = {}, {}
        for name in ("user", "client_id", "quota_type"):
            if name in found:
                codes[name], texts[name] = _coded(found[name])
            else:
                codes[name] = np.zeros(count, np.int64)
                texts[name] = [self._mapping.constants.get(name, "")]
        types = [quota_type_of(text) for text in texts["quota_type"]]
        for code, (text, quota_type) in enumerate(zip(texts["quota_type"], types, strict=True)):
            if quota_type is None:
                shown = f'"{text[:40]}" is no quota type' if text else "it has no quota type"
                faults.note(codes["quota_type"] == code, shown)
        nobody = np.array([not text for text in texts["user"]])[codes["user"]]
        nobody &= np.array([not text for text in texts["client_id"]])[codes["client_id"]]
        faults.note(nobody, "it has neither a user nor a client id")
        nodes = self._nodes(found, faults)
        numbers, node_codes = np.unique(nodes, return_inverse=True)
        together = codes["user"]
        for more, length in (
            (codes["client_id"], len(texts["client_id"])),
            (codes["quota_type"], len(types)),
            (node_codes, len(numbers)),
        ):
            together = together * length + more
        together[faults.is_bad] = -1
        every, firsts, of_row = np.unique(together, return_index=True, return_inverse=True)
        places = np.zeros(len(every), np.int64)
        for place, (code, row) in enumerate(zip(every.tolist(), firsts.tolist(), strict=True)):
            quota_type = None if code < 0 else types[codes["quota_type"][row]]
            if quota_type is not None:
                user = texts["user"][codes["user"][row]].removeprefix(_USER_KIND) or ANONYMOUS
                client_id = texts["client_id"][codes["client_id"][row]]
                places[place] = self._place_of((user, client_id, quota_type, int(nodes[row])))
        return places[of_row]

    def _nodes(self, found: dict[str, Column], faults: _Faults) -> Array:
        if "node_id" in found:
            nodes = _whole(found["node_id"], "node_id", faults, missing=_UNKNOWN_NODE)
            faults.note(nodes > _MS_MAX, "its node_id is no id of a broker")
            return nodes
        node_id = self._mapping.constants.get("node_id")
        return np.full(len(faults.is_bad), _UNKNOWN_NODE if node_id is None else int(node_id))

    def _place_of(self, who: _Who) -> int:
        place = self._places.get(who)
        if place is None:
            place = self._places[who] = len(self._memos)
            self._memos.append(self._memo_of(*who))
        return place

    def _memo_of(
        self, user: str, client_id: str, quota_type: QuotaType, node_id: int
    ) -> ChargeMemo:
        counted = self._quotas.counted(quota_type, user, client_id)
        api_key, api_version = _API_OF[quota_type]
        return ChargeMemo(
            node_id=counter_node_id(quota_type, node_id),
            quota_type=quota_type,
            connection=0,
            user=user,
            client_id=client_id,
            tags=counted.tags,
            api_key=api_key,
            api_version=api_version,
            limit=counted.limit,
            samples=counted.samples,
            sample_ms=counted.sample_ms,
            algorithm=counted.algorithm,
            enforced=True,
        )


def order_of(seq: Array, ts_us: Array, value: Array) -> Array:
    """Return the order of rows: by ``seq``, which is the same everywhere where the table has none, time and value."""
    order: Array = np.lexsort((value, ts_us, seq))
    return order


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def cells_of(column: Column) -> list[Cell]:
    """Return a column one by one; texts whatever bytes they have."""
    if isinstance(column, list):
        return column
    if pa.types.is_timestamp(column.type):  # Python has no nanoseconds
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if not _is_text(column.type):
        return list(column.to_pylist())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return [
        None if text is None else _decoded(text)
        for text in column.cast(pa.large_binary()).to_pylist()
    ]


def _decoded(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def _coded(column: Column) -> tuple[Array, list[str]]:
    """Return a column of names as a code per row, and the names; what is null has an empty one."""
    if isinstance(column, pa.Array) and _is_text(column.type):
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.large_binary()).dictionary_encode()
        texts = [
            "" if text is None else _decoded(text)
            for text in column.dictionary.cast(pa.large_binary()).to_pylist()
        ]
        codes = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return codes.astype(np.int64), [*texts, ""]
    if isinstance(column, pa.Array):  # of whole numbers
        encoded = column.dictionary_encode()
        texts = [str(number) for number in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return codes.astype(np.int64), [*texts, ""]
    places: dict[str, int] = {}
    listed = [places.setdefault(_name(cell), len(places)) for cell in column]
    return np.array(listed, np.int64), list(places)


def _name(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _reals(column: Column, name: str, faults: _Faults) -> Array:
    if isinstance(column, pa.Array) and not _is_text(column.type):
        faults.note(column.is_null().to_numpy(zero_copy_only=False), f"it has no {name}")
        numbers: Array = pc.cast(column, pa.float64(), safe=False).fill_null(0).to_numpy()
        return numbers
    numbers = np.zeros(len(faults.is_bad))
    for row, cell in enumerate(cells_of(column)):
        number = _real(cell)
        if isinstance(number, str):
            faults.note_one(
                row, f"{number} {name}" if cell in {None, ""} else f"its {name} {number}"
            )
        else:
            numbers[row] = number
    return numbers


def _real(cell: Cell) -> float | str:
    """Return a number, or what is wrong."""
    if cell is None or cell == "":
        return "it has no"
    if isinstance(cell, bool) or not isinstance(cell, int | float | str | Decimal):
        return "is no number"
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return "is no number"


def _whole(column: Column, name: str, faults: _Faults, *, missing: int | None) -> Array:
    """Return whole numbers from 0 on; what is null is ``missing``, and a fault where that is None."""
    if isinstance(column, pa.Array) and not _is_text(column.type):
        null = column.is_null().to_numpy(zero_copy_only=False)
        is_whole = pa.types.is_integer(column.type)
        numbers = (
            (column if is_whole else column.cast(pa.float64(), safe=False)).fill_null(0).to_numpy()
        )
        odd = ~null & ~((numbers >= 0) & (numbers < _WHOLE_MAX) & (numbers == np.floor(numbers)))
    else:
        cells = cells_of(column)
        null = np.array([cell is None or cell == "" for cell in cells], np.bool_)
        numbers = np.array(
            [-1 if (n := _whole_number(cell)) is None else n for cell in cells], np.int64
        )
        odd = ~null & (numbers < 0)
    faults.note(odd, f"its {name} is no whole number from 0 on")
    if missing is None:
        faults.note(null, f"it has no {name}")
    return np.where(odd | null, missing or 0, np.where(odd, 0, numbers)).astype(np.int64)


def _whole_number(cell: Cell) -> int | None:
    number = _real(cell)
    if isinstance(number, str) or not math.isfinite(number) or number != int(number):
        return None
    exact = int(cell) if isinstance(cell, int | Decimal) else _exact(cell, number)
    return exact if 0 <= exact < _WHOLE_MAX else None


def _exact(cell: Cell, number: float) -> int:
    """Return a whole number that is written as a text with all its digits."""
    text = str(cell).strip()
    return int(text) if text.lstrip("+-").isdecimal() else int(number)


def _sample(found: dict[str, Column], row: int) -> str:
    """Return what a row says, field by field."""
    said = {
        name: (column[row] if isinstance(column, list) else cells_of(column.slice(row, 1))[0])
        for name, column in found.items()
    }
    return ", ".join(f"{name}={cell!s}" for name, cell in said.items())[:_SAMPLE_CHARS]


def kind_faults(kinds: Mapping[str, pa.DataType], mapping: TableMapping) -> Iterator[str]:
    """Say which columns are of a type that cannot be what they are mapped to.

    Args:
        kinds: types of columns, where the table says them.
        mapping: of them.
    """
    for name, column in mapping.columns.items():
        kind = kinds.get(column)
        if kind is None or _is_text(kind):
            continue
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        is_number = (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )
        allowed, wanted = is_number, "a number"
        if name == "ts":
            allowed, wanted = (
                is_number or pa.types.is_timestamp(kind),
                "a timestamp, a number or a text",
            )
        elif name in {"user", "client_id"}:
            allowed, wanted = pa.types.is_integer(kind), "a text or a whole number"
        elif name == "quota_type":
            allowed, wanted = False, "a text"
        if not allowed:
            yield f'{name}: the column "{column}" is of type {kind}; it has to be {wanted}'
