"""Puts events together counter by counter, and each counter's in order. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.files.command_name import called
from kvota.model.quota_type import CLUSTER_NODE_ID
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Events, Part, doubles, flags, ints, ints_or_one, texts_of
from kvota.pipeline.kernels import packing
from kvota.pipeline.marks import marks_of
from kvota.pipeline.packing_choice import NAMES_OF, Packing
from kvota.record.period import ALWAYS
from kvota.record.tag_texts import sanitised

# A broker's number that a row lacks: it is not known.
UNKNOWN_NODE = CLUSTER_NODE_ID - 1

# Where it is among the parts of a counter's name.
_QUOTA_TYPE = 1

# Counters are told apart by a table of all combinations up to this size, beyond it by sorting.
_COMBINATIONS_MAX = 1 << 22


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of some events.

    Attributes:
        names: the parts of a counter's name.
        codes: of each counter's parts, a row per counter.
        by: how charges share counters.
    """

    names: Sequence[Part]
    codes: Array
    by: s.By

    def columns(self, counters: Array) -> list[pa.Array]:
        """Return ``chunk_schema.COUNTER_COLUMNS`` of some of them."""
        return _name_columns(self.names, self.codes[counters], self.by)

    def of_type(self, quota_types: Mapping[str, int], other: int) -> Array:
        """Return a number for each counter, by its quota type."""
        types = self.names[_QUOTA_TYPE]
        numbers = np.array([quota_types.get(text, other) for text in types.values])
        found: Array = numbers[self.codes[:, _QUOTA_TYPE]]
        return found


@dataclass(frozen=True, slots=True)
class Grouped:
    """Events as they lie, and the counter of each.

    Attributes:
        columns: those of ``chunk_schema.CHARGES`` that are asked for; a number where all events have the same one.
        owners: of each event.
        counters: who they are.
    """

    columns: Mapping[str, Array | int]
    owners: Array
    counters: Counters


@dataclass(frozen=True, slots=True)
class Arranged:
    """Events and the order they are to have.

    Attributes:
        columns: ``chunk_schema.CHARGES`` as the events lie; a number where all have the same one.
        order: the events, counter by counter.
        starts: where each counter's start in ``order``, and the end.
        times: of each event, as it lies, its place in its counter's order.
        counters: who they are.
    """

    columns: Mapping[str, Array | int]
    order: Array
    starts: Array
    times: Array
    counters: Counters


def arranged(every: Events, packing_: Packing) -> Arranged | None:
    """Return the order of those events that are wanted; None where there are none.

    Args:
        every: in any order; columns may be missing or null.
        packing_: what is wanted of them.

    Raises:
        RuntimeError: a row is of a run that ``Packing.runs`` does not name.
    """
    found = _named(every, packing_)
    if found is None:
        return None
    events = found.events
    columns = {
        **_summed_columns(found, packing_),
        "samples": _at_least_0(ints_or_one(events, "samples", 0)),
        "sample_ms": _at_least_0(ints_or_one(events, "sample_ms", 0)),
    }
    ts_us, seq, rank = (np.asarray(columns[name]) for name in ("ts_us", "seq", "run"))
    order, starts, codes = _together(found.group, found.codes)
    if events.runs is not None:
        order, starts = _rows_of_runs(order, starts, events.lengths)
    times = seq if packing_.by == "counter" else ts_us
    runs = rank if rank.ndim else np.zeros(len(seq), np.int64)
    if events.runs is not None or not _is_sorted(times, runs, seq):
        sort_groups(order, starts, (times, runs, seq))
    return Arranged(columns, order, starts, times, Counters(found.names, codes, packing_.by))


def grouped(every: Events, packing_: Packing) -> Grouped | None:
    """Return the counter of each of those events that are wanted; None where there are none.

    What it takes, and raises, is that of ``arranged``.
    """
    found = _named(every, packing_)
    if found is None:
        return None
    counters = Counters(found.names, found.codes, packing_.by)
    return Grouped(_summed_columns(found, packing_), found.events.spread(found.group), counters)


@dataclass(frozen=True, slots=True)
class _Named:
    """Events and their counters.

    Attributes:
        events: those that are wanted.
        rank: of their runs: of each row, or one.
        complete: whether the first rows of these runs are there: of each run of rows, or one.
        names: the parts of counters' names.
        group: the counter of each run of rows.
        codes: of each counter's parts.
    """

    events: Events
    rank: Array | int
    complete: Array | int
    names: Sequence[Part]
    group: Array
    codes: Array


def _named(every: Events, packing_: Packing) -> _Named | None:
    events = wanted(every, packing_)
    if not events.rows:
        return None
    events = replace(events, table=events.table.unify_dictionaries())
    if events.runs is not None:
        events = replace(events, runs=events.runs.unify_dictionaries())
    # What names a counter is looked at once for each run of rows, where there are any.
    of_runs = events.of_runs
    part = {name: texts_of(of_runs, name) for name in ("gateway", "run_id", "quota_type")}
    rank, complete = _runs(part["gateway"], part["run_id"], packing_.runs)
    names = _names(of_runs, part, packing_)
    group, codes = _groups(names)
    if isinstance(rank, np.ndarray):
        rank = events.spread(rank)
    return _Named(events, rank, complete, names, group, codes)


def _summed_columns(found: _Named, packing_: Packing) -> dict[str, Array | int]:
    """Return the columns that sums of seconds are made of; others need them, too."""
    events = found.events
    return {
        "ts_us": ints(events, "ts_us", 0),
        "seq": ints(events, "seq", 0),
        "run": found.rank,
        "marks": marks_of(events, found.complete, packing_),
        "throttle_ms": _further(events, "throttle_ms", packing_, s.NO_NUMBER),
        s.SHARED_INT: _sharing(events, packing_),
        **{name: doubles(events, name) for name in s.DOUBLES},
    }


def wanted(events: Events, packing_: Packing) -> Events:
    """Return the events that are packed."""
    found = events
    if packing_.quota_types is not None or packing_.other_types:
        types = texts_of(events.of_runs, "quota_type")
        of_texts = np.array([packing_.wants_type(text) for text in types.values])
        found = events.where_runs(of_texts[types.codes])
    if packing_.period != ALWAYS and found.rows:
        ts_us = ints(found, "ts_us", 0)
        period = packing_.period
        found = found.where((ts_us >= period.since_us) & (ts_us < period.until_us))
    return found


def _rows_of_runs(order: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the rows of runs in this order, and where groups of runs start among them."""
    ends = np.cumsum(lengths)
    if (order[1:] == order[:-1] + 1).all():
        return np.arange(ends[-1]), np.append(0, ends)[starts]
    in_order = lengths[order]
    places = np.cumsum(in_order)
    rows = np.arange(places[-1]) + np.repeat(
        (ends - lengths)[order] - (places - in_order), in_order
    )
    return rows, np.append(0, places)[starts]


def _is_sorted(times: Array, runs: Array, seq: Array) -> bool:
    """Return whether rows of one run are in order as they lie, as those of a gateway's file mostly are."""
    if runs[0] != runs[-1] or (times[1:] < times[:-1]).any() or (runs != runs[0]).any():
        return False
    return bool((seq[1:] > seq[:-1]).all())


def sort_groups(order: Array, starts: Array, keys: tuple[Array, Array, Array]) -> None:
    """Sort the rows of each group (time, run, seq); most of them are in order, or nearly so.

    Args:
        order: in and out: the rows, group by group.
        starts: where each group starts, and the end.
        keys: of each row, as it lies.
    """
    is_sorted = np.empty(len(starts) - 1, np.bool_)
    packing.sort_groups(order, starts, *keys, is_sorted)
    for group in np.flatnonzero(~is_sorted):
        rows = order[starts[group] : starts[group + 1]]
        times, runs, seqs = (key[rows] for key in keys)
        rows[:] = rows[np.lexsort((seqs, runs, times))]


def _at_least_0(values: Array | int) -> Array | int:
    """Return numbers of samples, which are places in memory: one below 0, which no gateway records, is none."""
    if isinstance(values, int):
        return max(0, values)
    return np.maximum(values, 0) if values.min() < 0 else values


def _further(events: Events, name: str, packing_: Packing, missing: int) -> Array | int:
    return ints_or_one(events, name, missing) if name in packing_.further else missing


def _sharing(events: Events, packing_: Packing) -> Array | int:
    for name, missing in s.SHARING.items():
        if name in packing_.further:
            return ints_or_one(events, name, missing)
    return 0


def _runs(
    gateway: Part, run_id: Part, runs: Mapping[tuple[str, str], tuple[int, bool]]
) -> tuple[Array | int, Array | int]:
    """Return the rank of each row's run, and whether the run is complete; numbers where there is one run."""
    names, run_ids = gateway.values, run_id.values
    ranks = np.full((len(names), len(run_ids)), -1, np.int64)
    completes = np.zeros(ranks.shape, np.int64)
    for first, name in enumerate(names):
        for second, run in enumerate(run_ids):
            if (name, run) in runs:
                ranks[first, second], completes[first, second] = runs[name, run]
    if ranks.size == 1 and ranks[0, 0] >= 0:
        return int(ranks[0, 0]), int(completes[0, 0])
    pair = gateway.codes.astype(np.int64) * len(run_ids) + run_id.codes
    rank, complete = ranks.ravel()[pair], completes.ravel()[pair]
    if rank.min() < 0:
        row = int(rank.argmin())
        name, run = names[gateway.codes[row]], run_ids[run_id.codes[row]]
        msg = (
            f"a row is of run {run!r} of gateway {name!r}, which no file's footer names. "
            f"{called()} record check names the file; remove it, or restore it"
        )
        raise RuntimeError(msg)
    return rank, complete


def _names(events: Events, part: Mapping[str, Part], packing_: Packing) -> list[Part]:
    """Return the parts of a counter's name, of which the combinations are the counters."""
    by = packing_.by
    enforcing = Part(np.zeros(events.rows, np.int64), pa.array([s.ALL_ROWS]))
    if packing_.modes_apart:
        modes = pa.array([s.SHADOW_ROWS, s.ENFORCED_ROWS])
        enforcing = Part(flags(events, "enforced").astype(np.int64), modes)
    node_id = _node_ids(ints(events, "node_id", UNKNOWN_NODE))
    of_names = [texts_of(events, name) for name in NAMES_OF[by]]
    if by == "counter" or packing_.gateways_apart:
        of_names.append(part["gateway"])
    if by == "counter":
        of_names.append(part["run_id"])
    return [node_id, part["quota_type"], enforcing, *of_names]  # ``_QUOTA_TYPE`` is the second


def _node_ids(node_id: Array) -> Part:
    least, most = int(node_id.min()), int(node_id.max())
    if most - least > _COMBINATIONS_MAX:
        numbers, codes = np.unique(node_id, return_inverse=True)
        return Part(codes, pa.array(numbers))
    return Part(node_id - least, pa.array(np.arange(least, most + 1)))


def _groups(names: Sequence[Part]) -> tuple[Array, Array]:
    """Return the group of each row, and the codes of each group's parts (a row per group)."""
    codes = np.zeros(len(names[0].codes), np.int64)
    parts = np.zeros((1, 0), np.int64)  # of the groups found so far
    counts: list[int] = []  # of the parts that ``codes`` has beyond them
    for name in names:
        count = len(name.texts)
        counts.append(count)
        if count > 1:
            codes = codes * count + name.codes
        size = len(parts) * prod(counts)
        if size > _COMBINATIONS_MAX or name is names[-1]:
            codes, there = _present(codes, size)
            further = np.empty((len(there), len(counts)), np.int64)
            for place in reversed(range(len(counts))):
                there, further[:, place] = np.divmod(there, counts[place])
            parts = np.column_stack([parts[there], further])
            counts = []
    return codes, parts


def _present(codes: Array, size: int) -> tuple[Array, Array]:
    """Number the codes that are there from 0 on; return the numbers and these codes."""
    if size > _COMBINATIONS_MAX:
        there, numbered = np.unique(codes, return_inverse=True)
        return numbered, there
    is_there = np.zeros(size, np.bool_)
    is_there[codes] = True
    number = np.cumsum(is_there) - 1
    return number[codes], np.flatnonzero(is_there)


def _together(group: Array, codes: Array) -> tuple[Array, Array, Array]:
    """Put the rows of each group together; return the rows, where groups start, and each one's codes."""
    begins = np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)
    if len(begins) == len(codes):  # they are, as in a compacted file
        return np.arange(len(group)), np.append(begins, len(group)), codes[group[begins]]
    order, starts = np.empty(len(group), np.int64), np.empty(len(codes) + 1, np.int64)
    packing.group_rows(group, order, starts)
    return order, starts, codes


def _name_columns(names: Sequence[Part], codes: Array, by: s.By) -> list[pa.Array]:
    """Return ``COUNTER_COLUMNS`` of each chunk."""
    node_id, enforcing = (
        names[place].texts.take(pa.array(codes[:, place])).cast(pa.int32()) for place in (0, 2)
    )
    quota_type = _taken(names[_QUOTA_TYPE], codes[:, _QUOTA_TYPE])
    if by == "counter":
        tags, gateway, run_id = (_taken(names[place], codes[:, place]) for place in (3, 4, 5))
        return [gateway, run_id, node_id, quota_type, tags, enforcing]
    none = pa.array([""]).take(pa.array(np.zeros(len(codes), np.int64)))
    end = 3 + len(NAMES_OF[by])
    tags = _made_tags(names[3:end], codes[:, 3:end], by)
    gateway = _taken(names[end], codes[:, end]) if len(names) > end else none
    return [gateway, none, node_id, quota_type, tags, enforcing]


def _taken(name: Part, codes: Array) -> pa.Array:
    return name.texts.take(pa.array(codes))


def _made_tags(names: Sequence[Part], codes: Array, by: s.By) -> pa.Array:
    """Write tags as ``model.tags.tags_text`` writes these two."""
    if by == "tags":
        return _taken(names[0], codes[:, 0])
    encoded = [
        sanitised(name.texts).take(pa.array(codes[:, place])) for place, name in enumerate(names)
    ]
    user = "" if by == "client" else encoded[0]
    client_id = "" if by == "user" else encoded[-1]
    return pc.binary_join_element_wise(f"{CLIENT_ID_TAG}=", client_id, f",{USER_TAG}=", user, "")
