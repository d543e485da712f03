"""Which rows of which runs have been taken, so that each is taken once, however often and in what order it comes."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Array = np.ndarray[Any, np.dtype[Any]]

RunKey = tuple[str, str]  # gateway and run_id
Span = tuple[int, int]  # first and last seq, both inside


class Taken:
    """The seqs of one run that have been taken, as spans that neither meet nor overlap."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in spans:
            self.add(first, last)

    @property
    def spans(self) -> list[Span]:
        """The spans in their order."""
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def missing(self) -> int:
        """How many seqs lie between spans."""
        return sum(self._firsts[1:]) - sum(self._lasts[:-1]) - len(self._firsts[1:])

    def meets(self, first: int, last: int) -> bool:
        """Tell whether any of these seqs has been taken."""
        at = bisect_right(self._firsts, last) - 1
        return at >= 0 and self._lasts[at] >= first

    def has_all(self, first: int, last: int) -> bool:
        """Tell whether each of these seqs has been taken."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and self._lasts[at] >= last

    def add(self, first: int, last: int) -> None:
        """Take these seqs, those that have been before among them."""
        begin = bisect_right(self._lasts, first - 2)  # the first span that reaches up to them
        end = bisect_right(self._firsts, last + 1)  # behind the last one that begins among them
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def take(self, seqs: _Array) -> _Array:
        """Take rows; returns which of them had not been taken, a repeated one counting at its first place."""
        first, last = int(seqs.min()), int(seqs.max())
        if last - first + 1 == len(seqs) and not self.meets(first, last) and _grows(seqs):
            self.add(first, last)
            return np.ones(len(seqs), np.bool_)
        order = np.argsort(seqs, kind="stable")
        ordered = seqs[order]
        is_new = np.ones(len(seqs), np.bool_)
        is_new[1:] = ordered[1:] != ordered[:-1]
        is_new &= ~self._are_taken(ordered)
        for span in spans_of(ordered[is_new]):
            self.add(*span)
        mask = np.empty(len(seqs), np.bool_)
        mask[order] = is_new
        return mask

    def _are_taken(self, ordered: _Array) -> _Array:
        if not self._firsts:
            return np.zeros(len(ordered), np.bool_)
        at = np.searchsorted(np.array(self._firsts), ordered, side="right") - 1
        taken: _Array = (at >= 0) & (np.array(self._lasts)[at] >= ordered)
        return taken


@dataclass(frozen=True, slots=True)
class Hole:
    """Rows that lie before others of their run, and have not come."""

    gateway: str
    run_id: str
    first_seq: int
    last_seq: int

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.last_seq - self.first_seq + 1


class Ledger:
    """What has been taken of all runs.

    Attributes:
        from_first: runs of which nothing was removed before it could be taken: what lacks at their beginning is missing.
    """

    def __init__(
        self,
        runs: Mapping[RunKey, Iterable[Span]] | None = None,
        from_first: Iterable[RunKey] = (),
    ) -> None:
        self._runs = {key: Taken(spans) for key, spans in (runs or {}).items()}
        self.from_first = set(from_first)

    @property
    def runs(self) -> Mapping[RunKey, list[Span]]:
        """The spans of each run."""
        return {key: taken.spans for key, taken in self._runs.items()}

    @property
    def missing(self) -> int:
        """How many rows lie before others of their run, and have not come."""
        between = sum(taken.missing for taken in self._runs.values())
        return between + sum(hole.rows for hole in self._heads())

    def holes(self) -> Iterator[Hole]:
        """Name the rows that have not come."""
        heads = {(hole.gateway, hole.run_id): hole for hole in self._heads()}
        for key in sorted(self._runs):
            if key in heads:
                yield heads[key]
            for (_, before), (behind, _) in pairwise(self._runs[key].spans):
                yield Hole(*key, before + 1, behind - 1)

    def _heads(self) -> Iterator[Hole]:
        """Name what lacks at the beginning of runs, whose seq begins at 0."""
        for key in self.from_first & self._runs.keys():
            spans = self._runs[key].spans
            if spans and spans[0][0] > 0:
                yield Hole(*key, 0, spans[0][0] - 1)

    def of(self, key: RunKey) -> Taken:
        """What has been taken of a run; it is begun where there is nothing."""
        return self._runs.setdefault(key, Taken())

    def add(self, spans: Mapping[RunKey, Iterable[Span]]) -> None:
        """Take all of these."""
        for key, of_run in spans.items():
            taken = self.of(key)
            for first, last in of_run:
                taken.add(first, last)

    def meets(self, spans: Mapping[RunKey, Iterable[Span]]) -> bool:
        """Tell whether any of these rows has been taken."""
        return any(self.of(key).meets(*span) for key, of_run in spans.items() for span in of_run)

    def take(self, rows: pa.Table) -> pa.Table:
        """Take rows; returns those that had not been taken, a repeated one once."""
        is_new = np.empty(rows.num_rows, np.bool_)
        for key, places in rows_of_runs(rows):
            is_new[places] = self.of(key).take(rows["seq"].to_numpy()[places])
        return rows if is_new.all() else rows.filter(pa.array(is_new))


def rows_of_runs(rows: pa.Table) -> Iterator[tuple[RunKey, Any]]:
    """Yield each run among the rows, and where its rows are: their places, or all of them.

    In: gateway, run_id.
    """
    if not rows.num_rows:
        return
    names = [_encoded(rows[name]) for name in ("gateway", "run_id")]
    codes = names[0].indices.to_numpy().astype(np.int64) * len(names[1].dictionary)
    codes += names[1].indices.to_numpy()
    if (codes == codes[0]).all():
        yield _key(names, int(codes[0])), slice(None)
        return
    for code in np.unique(codes):
        yield _key(names, int(code)), np.flatnonzero(codes == code)


def spans_in(rows: pa.Table) -> dict[RunKey, list[Span]]:
    """Return the spans of seq of each run among the rows.

    In: gateway, run_id, seq.
    """
    ledger = Ledger()
    ledger.take(rows)
    return dict(ledger.runs)


def spans_of(ordered: _Array) -> Iterator[Span]:
    """Yield the spans of seqs in their order."""
    if not len(ordered):
        return
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) > 1)
    ends = np.append(begins[1:], len(ordered)) - 1
    yield from zip(ordered[begins].tolist(), ordered[ends].tolist(), strict=True)


def _grows(seqs: _Array) -> bool:
    return bool((np.diff(seqs) == 1).all())


def _encoded(texts: pa.ChunkedArray) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(texts.type):
        texts = pc.dictionary_encode(texts)
    whole = texts.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _key(names: list[pa.DictionaryArray], code: int) -> RunKey:
    gateways, runs = (name.dictionary for name in names)
    return gateways[code // len(runs)].as_py(), runs[code % len(runs)].as_py()
