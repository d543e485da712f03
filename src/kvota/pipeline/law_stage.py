"""Replays one task's counters by the law, and compares with what was recorded. Pure."""

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import OUTCOMES
from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.charged import has, is_brief, is_refused, recorded_debt
from kvota.pipeline.kernels.law_kernel import (
    STATE_SIZE,
    TOKENS_SIZE,
    compare_rows,
    law_rows,
)
from kvota.pipeline.kernels.producer_id_law import ID_STATE_SIZE, id_law_rows
from kvota.pipeline.unpack import Rows

# The most differences that a result keeps.
DIFFERENCES_SHOWN = 10

_COUNTS = ("rows", "throttled", "differing", "unjudged")

# A row with counts for each quota type of the task, and a row for each of its first differences.
FOUND = pa.schema(
    [
        ("quota_type", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        ("gateway", pa.string()),
        ("run_id", pa.string()),
        ("seq", pa.int64()),
        ("node_id", pa.int32()),
        ("tags", pa.string()),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("throttle_ms", pa.int32()),
        ("outcome", pa.string()),
        ("replayed_throttle_ms", pa.int32()),
        ("replayed_outcome", pa.string()),
    ]
)

ROWS = pa.schema(
    [
        ("gateway", pa.string()),
        ("run_id", pa.string()),
        ("seq", pa.int64()),
        ("node_id", pa.int32()),
        ("quota_type", pa.string()),
        ("tags", pa.string()),
        ("ts_us", pa.int64()),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("throttle_ms", pa.int32()),
        ("outcome", pa.string()),
        ("replayed_throttle_ms", pa.int32()),
        ("replayed_outcome", pa.string()),
        ("equal", pa.bool_()),
    ]
)
# Of a difference.
_SHOWN = [name for name in FOUND.names if name in ROWS.names]
_OUTCOME_TEXTS = pa.array([*(outcome.value for outcome in OUTCOMES), None], pa.string())

Batches = Iterator[pa.RecordBatch]


class _Law:
    """Replays counters one after the other, and keeps the state of the one that runs."""

    def __init__(self) -> None:
        self._state = np.zeros(STATE_SIZE, np.int64)
        self._tokens = np.zeros(TOKENS_SIZE)
        self._starts = np.zeros(12, np.int64)
        self._lasts = np.zeros(12, np.int64)
        self._totals = np.zeros(12)
        self._id_state = np.zeros(ID_STATE_SIZE, np.int64)
        self._id_debt = np.zeros(1)
        self._is_fresh = True  # the counter that runs has had no row yet

    def replay(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Return for each row the throttle in ms, the outcome's code, and whether it can be judged."""
        columns, names = rows.columns, rows.names
        length = len(columns["ts_us"])
        first = np.zeros(length, np.bool_)
        runs_on = rows.continues and not self._is_fresh
        begins = rows.starts[1 if runs_on else 0 : -1]
        first[begins[begins < length]] = True
        self._is_fresh = rows.starts[-2] == length and not (runs_on and len(names) == 1)
        bucket = c.is_of(names, *c.BUCKET_TYPES)
        self._make_room(int(columns["samples"].max(initial=0)))
        throttle_ms = np.empty(length, np.int32)
        outcome = np.empty(length, np.int8)
        judged = np.empty(length, np.bool_)
        law_rows(
            first,
            has(rows, s.COMPLETE),
            rows.spread(bucket),
            rows.spread(is_brief(rows)),
            recorded_debt(rows, bucket),
            has(rows, s.STRICT),
            rows.spread(c.is_of(names, QuotaType.PRODUCE)),
            is_refused(rows),
            columns["ts_us"],
            columns["value"],
            columns["limit"],
            rows.spread(c.floors(names)),
            columns["samples"],
            columns["sample_ms"],
            self._state,
            self._tokens,
            self._starts,
            self._lasts,
            self._totals,
            throttle_ms,
            outcome,
            judged,
        )
        of_ids = c.is_of(names, *c.ID_TYPES)
        if of_ids.any():  # what the kernel above says of these is not of them
            id_law_rows(
                first,
                rows.spread(of_ids),
                columns["ts_us"],
                columns["value"],
                columns["limit"],
                rows.spread(c.floors(names)),
                columns["sample_ms"],
                columns[s.SHARED_INT],
                columns["marks"] & s.OUTCOME_MASK,
                self._id_state,
                self._id_debt,
                throttle_ms,
                outcome,
                judged,
            )
        return throttle_ms, outcome, judged

    def _make_room(self, samples_max: int) -> None:
        """Make room for this many samples and the overlapping one; those that are there stay."""
        more = samples_max + 1 - len(self._starts)
        if more > 0:
            self._starts = np.pad(self._starts, (0, more))
            self._lasts = np.pad(self._lasts, (0, more))
            self._totals = np.pad(self._totals, (0, more))


def _replayable(rows: Rows) -> Rows:
    """Leave out rows of a quota type without a kernel, or of an algorithm that nobody knows."""
    other = rows.spread(~c.is_of(rows.names, *c.JUDGED_TYPES))
    return rows.where(~(other | has(rows, s.UNKNOWN_ALGORITHM)))


def found_by_law(parts: Iterator[Rows]) -> Batches:
    """Count rows and differences by quota type, and keep the first differences; ``FOUND``.

    A row without a quota type counts the rows that cannot be replayed.
    """
    law = _Law()
    counts: dict[str, Array] = {}
    first: list[dict[str, Any]] = []
    not_replayed = 0
    for every_row in parts:
        rows = _replayable(every_row)
        not_replayed += int(every_row.starts[-1] - rows.starts[-1])
        replayed = law.replay(rows)
        differs = np.empty(len(replayed[0]), np.bool_)
        types = rows.names.column("quota_type").dictionary_encode()
        texts = types.dictionary.to_pylist()
        of_types = np.zeros((len(texts), len(_COUNTS)), np.int64)
        compare_rows(
            rows.starts,
            types.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            rows.columns["throttle_ms"],
            rows.columns["marks"] & s.OUTCOME_MASK,
            *replayed,
            of_types,
            differs,
        )
        for text, numbers in zip(texts, of_types, strict=True):
            counts[text] = counts.get(text, 0) + numbers
        if differs.any():
            first = _first([*first, *_differences(rows, replayed, differs)])
    table: list[dict[str, Any]] = [
        {"quota_type": text} | _counted(numbers) for text, numbers in counts.items()
    ]
    table.append({"quota_type": None, "rows": not_replayed})
    yield from pa.Table.from_pylist([*table, *first], FOUND).to_batches()


def _counted(numbers: Array) -> dict[str, int]:
    return dict(zip(_COUNTS, numbers.tolist(), strict=True))


def _first(differences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return heapq.nsmallest(
        DIFFERENCES_SHOWN, differences, key=lambda row: (row["gateway"], row["run_id"], row["seq"])
    )


def _differences(
    rows: Rows, replayed: tuple[Array, Array, Array], differs: Array
) -> list[dict[str, Any]]:
    """Return the first differing rows of these; the first of each run are among them."""
    places = np.flatnonzero(differs)
    owners = np.searchsorted(rows.starts, places, side="right") - 1
    names = rows.names.select(["gateway", "run_id"]).to_pylist()
    order = {
        key: rank for rank, key in enumerate(sorted({(n["gateway"], n["run_id"]) for n in names}))
    }
    ranks = np.array([order[n["gateway"], n["run_id"]] for n in names])[owners]
    chosen = np.lexsort((rows.columns["seq"][places], ranks))[:DIFFERENCES_SHOWN]
    table = _row_table(rows, replayed, places[chosen], owners[chosen])
    shown: list[dict[str, Any]] = table.select(_SHOWN).to_pylist()
    return shown


def compared_rows(parts: Iterator[Rows]) -> Batches:
    """Yield every row, recorded beside replayed; ``ROWS``."""
    law = _Law()
    for every_row in parts:
        rows = _replayable(every_row)
        replayed = law.replay(rows)
        length = int(rows.starts[-1])
        owners = np.repeat(np.arange(len(rows.names)), np.diff(rows.starts))
        yield _row_table(rows, replayed, np.arange(length), owners)


def _row_table(
    rows: Rows, replayed: tuple[Array, Array, Array], places: Array, owners: Array
) -> pa.RecordBatch:
    columns = {name: column[places] for name, column in rows.columns.items()}
    throttle_ms, outcome, judged = (column[places] for column in replayed)
    recorded = columns["marks"] & s.OUTCOME_MASK
    names = rows.names.take(pa.array(owners))
    equal = (columns["throttle_ms"] == throttle_ms) & (recorded == outcome)
    values: dict[str, pa.Array] = {
        "seq": pa.array(columns["seq"]),
        "ts_us": pa.array(columns["ts_us"]),
        "value": pa.array(columns["value"]),
        "limit": pa.array(columns["limit"], mask=np.isnan(columns["limit"])),
        "throttle_ms": pa.array(
            columns["throttle_ms"], pa.int32(), mask=columns["throttle_ms"] == s.NO_NUMBER
        ),
        "outcome": _OUTCOME_TEXTS.take(pa.array(recorded)),
        "replayed_throttle_ms": pa.array(throttle_ms),
        "replayed_outcome": _OUTCOME_TEXTS.take(pa.array(outcome)),
        "equal": pa.array(equal, mask=~judged),
    }
    return pa.RecordBatch.from_arrays(
        [
            values[part.name] if part.name in values else names.column(part.name).cast(part.type)
            for part in ROWS
        ],
        schema=ROWS,
    )
