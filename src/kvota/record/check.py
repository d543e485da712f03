"""Reads a record to the last byte, and says what is not as it should be."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.files.threads import in_threads
from kvota.record.event_file import BadInput, EventFile, runs_in_table
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.found_events import FoundEvents
from kvota.record.period import END_OF_TIME_US
from kvota.record.runs import joined_runs
from kvota.record.valid_texts import refuse_fewer_rows, refuse_invalid_texts

_Array = np.ndarray[Any, np.dtype[Any]]

# Two files at once: decoding takes a core each, and the memory of a file's rows.
_THREADS = 2

_TEXTS = [
    name
    for name, kind in zip(EVENT_SCHEMA.names, EVENT_SCHEMA.types, strict=True)
    if kind == pa.string()
]

_NEVER_NULL = [field.name for field in EVENT_SCHEMA if not field.nullable]

# What is looked at of each row; the last two are none below 0.
_COUNTS = ("samples", "sample_ms")
_KEPT = ("gateway", "run_id", "seq", "ts_us", "value", *_COUNTS)

# Gaps that are named; the others are counted.
GAPS_NAMED = 10


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows of a run that no file holds: seq from ``first`` to ``last``."""

    gateway: str
    run_id: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Return how many rows are missing."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found.

    Attributes:
        files: so many were read.
        rows: in them.
        bad: files that cannot be read, or whose rows are not what their footer says.
        gaps: the first ones of each run.
        missing: rows in all gaps.
        repeated: rows that are there more than once.
        has_changed: a file went, or became another one, while it was read; so gaps may be none.
    """

    files: int
    rows: int
    bad: tuple[BadInput, ...]
    gaps: tuple[Gap, ...]
    missing: int
    repeated: int
    has_changed: bool = False

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is wrong."""
        return not (self.bad or self.missing or self.repeated)


def check(
    found: FoundEvents,
    *,
    others: Iterable[EventFile] = (),
    on_file: Callable[[EventFile], None] = lambda _: None,
) -> Checked:
    """Read every row of every file, and tell gaps and repetitions of seq within each run.

    Args:
        found: the files.
        others: those of the same record that are not read: what their footers name is not missing.
        on_file: called for each file that is done.
    """
    spans: dict[tuple[str, str], list[_Array]] = {}
    bad = list(found.bad)
    rows = 0
    has_changed = False
    for file, seen in zip(found.files, in_threads(_read, found.files, _THREADS), strict=True):
        on_file(file)
        if isinstance(seen, BadInput):
            bad.append(seen)
            has_changed = has_changed or not file.is_unchanged()
            continue
        rows += file.rows
        for key, ranges in seen.items():
            spans.setdefault(key, []).append(ranges)
    gaps: list[Gap] = []
    missing = repeated = 0
    beside: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for run in (run for file in others for run in file.runs):
        beside.setdefault((run.gateway, run.run_id), []).append((run.first_seq, run.last_seq))
    for key in sorted(spans):
        of_run, repeated_here = _gaps(np.concatenate(spans[key]))
        of_run = _without(of_run, sorted(beside.get(key, ())))
        gaps += [Gap(*key, first, last) for first, last in of_run[:GAPS_NAMED]]
        missing += sum(last - first + 1 for first, last in of_run)
        repeated += repeated_here
    return Checked(
        len(found.files), rows, tuple(bad), tuple(gaps), missing, repeated, has_changed=has_changed
    )


def _read(file: EventFile) -> dict[tuple[str, str], _Array] | BadInput:
    """Return the seqs of each run as ranges, or what is wrong with the file."""
    texts = ["gateway", "run_id"]
    parts = []
    with_nulls: set[str] = set()
    try:
        footer = pq.read_metadata(file.path)
        here = [name for name in footer.schema.names if name in _TEXTS]
        with pq.ParquetFile(
            file.path, metadata=footer, read_dictionary=here, page_checksum_verification=True
        ) as source:
            kept = [name for name in _KEPT if name in footer.schema.names]
            never_null = [name for name in _NEVER_NULL if name in footer.schema.names]
            for batch in source.iter_batches(use_threads=False):
                refuse_invalid_texts(batch)
                with_nulls.update(name for name in never_null if batch[name].null_count)
                parts.append(batch.select(kept))  # all columns are read, and these few kept
        refuse_fewer_rows(sum(part.num_rows for part in parts), footer.num_rows)
    except (pa.ArrowException, OSError) as error:
        return BadInput(file.path, f"its rows cannot be read ({error})")
    if not parts:
        return {}
    if with_nulls:
        first = min(with_nulls, key=_NEVER_NULL.index)
        return BadInput(file.path, f"column {first} has nulls")
    names = pa.Table.from_batches(parts)
    if joined_runs(runs_in_table(names)) != joined_runs(file.runs):
        return BadInput(file.path, "its rows are not those that its footer names")
    odd = _odd(names)
    return BadInput(file.path, odd) if odd else _ranges(names, texts)


def _odd(rows: pa.Table) -> str:
    """Say of the first row that no gateway records what is odd about it."""
    for is_odd, name, unit, reason in (
        (pc.invert(pc.is_finite(rows["value"])), "value", "", "which no gateway records"),
        (
            pc.or_(pc.less(rows["ts_us"], 0), pc.greater_equal(rows["ts_us"], END_OF_TIME_US)),
            "time",
            " us",
            "which is not between 1970 and 9999",
        ),
        *(
            (pc.less(rows[name], 0), name, "", "which no gateway records")
            for name in _COUNTS
            if name in rows.column_names
        ),
    ):
        places = pc.indices_nonzero(is_odd)
        if len(places):
            column = "ts_us" if name == "time" else name
            seq, number = (rows[each][places[0].as_py()].as_py() for each in ("seq", column))
            return f"the {name} of seq {seq} is {number}{unit}, {reason}"
    return ""


def _ranges(names: pa.Table, texts: list[str]) -> dict[tuple[str, str], _Array]:
    found: dict[tuple[str, str], _Array] = {}
    plain = names.unify_dictionaries().combine_chunks()
    gateway, run_id = (plain[name].chunk(0) for name in texts)
    codes = gateway.indices.to_numpy().astype(np.int64) * len(run_id.dictionary)
    codes += run_id.indices.to_numpy()
    seq = plain["seq"].to_numpy()
    for code in np.unique(codes):
        key = (
            gateway.dictionary[int(code) // len(run_id.dictionary)].as_py(),
            run_id.dictionary[int(code) % len(run_id.dictionary)].as_py(),
        )
        ordered = np.sort(seq[codes == code])
        # Compared, not subtracted: the smallest number less one is none.
        starts = np.flatnonzero(np.append([True], ordered[1:] != ordered[:-1] + 1))
        ends = np.append(starts[1:], len(ordered)) - 1
        found[key] = np.column_stack([ordered[starts], ordered[ends]])
    return found


def _gaps(ranges: _Array) -> tuple[list[tuple[int, int]], int]:
    """Return the gaps between ranges, and how many numbers are in more than one of them."""
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    gaps: list[tuple[int, int]] = []
    repeated = 0
    reached: int | None = None
    for first, last in _joined(ordered):
        if reached is not None and first > reached + 1:
            gaps.append((reached + 1, first - 1))
        elif reached is not None and first <= reached:
            repeated += min(last, reached) - first + 1
        reached = last if reached is None else max(reached, last)
    return gaps, repeated


def _without(
    gaps: Iterable[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what is left of gaps, both in order, where spans are taken out."""
    left: list[tuple[int, int]] = []
    for begin, last in gaps:
        first = begin
        for start, end in spans:
            if end < first or start > last:
                continue
            if start > first:
                left.append((first, start - 1))
            first = max(first, end + 1)
        if first <= last:
            left.append((first, last))
    return left


def _joined(ordered: _Array) -> Iterable[tuple[int, int]]:
    """Yield ranges with those joined that follow each other without a gap."""
    follows = np.zeros(len(ordered), np.bool_)
    follows[1:] = ordered[1:, 0] == ordered[:-1, 1] + 1
    starts = np.flatnonzero(~follows)
    ends = np.append(starts[1:], len(ordered)) - 1
    yield from zip(ordered[starts, 0].tolist(), ordered[ends, 1].tolist(), strict=True)
