"""Replays one task's counters: rows in, one row per counter and candidate out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kvota.model.quota_type import Algorithm
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.charged import AS_RECORDED, Counted, counting, has, requests
from kvota.pipeline.kernels import grid_kernels
from kvota.pipeline.kernels import grid_sums as k
from kvota.pipeline.unpack import Rows

RESULT = pa.schema(
    [
        *c.NAME,
        ("algorithm", pa.string()),
        ("mode", pa.string()),
        ("samples", pa.int32()),
        ("sample_ms", pa.int32()),
        ("candidate", pa.int32()),
        ("quota", pa.float64()),
        ("events", pa.int64()),
        ("value_sum", pa.float64()),
        ("over", pa.int64()),
        ("throttle_ms_sum", pa.float64()),
        ("throttled_ms", pa.float64()),
        ("worst_ms", pa.float64()),
        ("value_within", pa.float64()),
        ("rejected", pa.int64()),
        ("delay_ms_sum", pa.float64()),
        ("delay_ms_max", pa.float64()),
        ("span_ms", pa.int64()),
        ("warmup_ms", pa.int64()),
        ("share_over", pa.float64()),
        ("share_throttled", pa.float64()),
    ]
)
_MODES = {"open": k.OPEN, "backlog": k.BACKLOG, "think": k.THINK}
_ALGORITHMS = pa.array([Algorithm.SAMPLED_RATE.value, Algorithm.TOKEN_BUCKET.value], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The candidates, which are the same for every counter or each counter's own."""

    quotas: tuple[float, ...] = ()
    relative: bool = False  # multiples of the limit in force
    of_counters: Mapping[int, tuple[float, ...]] | None = None
    mode: str = "open"
    counted: Counted = field(default=AS_RECORDED)

    def of(self, counter_ids: list[int]) -> tuple[Array, Array, Array]:
        """Return all quotas, where each counter's start, and how many it has; none: it is left out."""
        if self.of_counters is None:
            starts = np.zeros(len(counter_ids), np.int64)
            return np.array(self.quotas), starts, np.full(len(counter_ids), len(self.quotas))
        own = [self.of_counters.get(counter_id, ()) for counter_id in counter_ids]
        counts = np.array([len(quotas) for quotas in own])
        quotas = np.array([quota for quotas in own for quota in quotas], np.float64)
        return quotas, np.cumsum(counts) - counts, counts


def grid_stage(grid: Grid) -> Callable[[Iterator[Rows]], Iterator[pa.RecordBatch]]:
    """Make the function that replays all counters of a task."""

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        run = GridRun(grid)
        last: pa.RecordBatch | None = None
        for rows in parts:
            done, last = run.replay(rows)
            if len(done):
                yield done
        if last is not None and len(last):
            yield last

    return stage


class GridRun:
    """Replays counters one after the other, and keeps the state of the one that runs."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._mode = _MODES[grid.mode]
        self._running = np.zeros(grid_kernels.RUNNING_SIZE, np.int64)
        self._clock = np.zeros(k.CLOCK_SIZE, np.int64)
        self._own = np.zeros(0, np.int64)
        self._tokens = np.zeros(0)
        self._worths = np.zeros(0)
        self._sums = np.zeros(0)
        self._limit = np.nan
        # Rows of samples: for candidates that go together, and in a closed loop one for each.
        self._starts = np.zeros((0, 0), np.int64)
        self._lasts = np.zeros((0, 0), np.int64)
        self._totals = np.zeros((0, 0))

    def replay(self, every_row: Rows) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Replay rows; return the results of the counters that are complete, and of the last one so far."""
        rows = requests(every_row)
        how = counting(rows, self._grid.counted)
        count = len(rows.names)
        quotas, first_quotas, counts = self._grid.of(rows.names.column("counter_id").to_pylist())
        counters, bounds = _segments(rows, how.debt)
        kinds = np.where(how.bucket[counters], grid_kernels.BUCKET, grid_kernels.RATE)
        if how.debt.any():
            at = np.minimum(bounds[:-1], len(how.debt) - 1)
            kinds[how.debt[at]] = grid_kernels.DEBT
        self._make_room(int(counts.max()), int(how.samples.max(initial=0)) + 1)
        is_new = np.ones(count, np.bool_)
        is_new[0] = not rows.continues
        out_first = np.cumsum(counts) - counts
        out_sums = np.zeros((k.SUMS, int(counts.sum())))
        out_clock = np.zeros((count, k.CLOCK_SIZE), np.int64)
        out_running = np.zeros((count, grid_kernels.RUNNING_SIZE), np.int64)
        out_limit = np.full(count, np.nan)
        if rows.continues:
            out_limit[0] = self._limit
        grid_kernels.replay_segments(
            counters,
            bounds,
            kinds,
            c.floors(rows.names)[counters],
            how.debt_max_ms[counters],
            how.brief[counters],
            is_new,
            *(rows.columns[name] for name in ("ts_us", "value", "limit")),
            how.samples,
            how.sample_ms,
            has(rows, s.STRICT),
            has(rows, s.COMPLETE),
            quotas,
            first_quotas,
            counts,
            self._grid.relative,
            self._mode,
            self._running,
            self._clock,
            self._own,
            self._tokens,
            self._worths,
            self._starts,
            self._lasts,
            self._totals,
            self._sums,
            out_first,
            out_sums,
            out_clock,
            out_running,
            out_limit,
        )
        self._limit = out_limit[-1]
        had_rows = out_running[:, grid_kernels.ROWS] > 0
        counts = np.where(had_rows, counts, 0)
        owner = np.repeat(np.arange(count), counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = _Found(
            c.named(rows.names),
            owner,
            place,
            quotas[first_quotas[owner] + place],
            out_sums[:, out_first[owner] + place],
            out_clock[owner],
            out_running[owner, grid_kernels.KIND] != grid_kernels.RATE,
            out_limit[owner],
            out_sums[k.VALUE, out_first[owner]],
        )
        result = self._result(found)
        complete = int(np.searchsorted(owner, count - 1))
        return result.slice(0, complete), result.slice(complete)

    def _result(self, found: "_Found") -> pa.RecordBatch:
        quota = found.quota * found.limit if self._grid.relative else found.quota
        columns = result_columns(
            found.sums,
            found.clock,
            mode=self._grid.mode,
            algorithm=_ALGORITHMS.take(pa.array(found.bucket.astype(np.int64))),
            place=found.place,
            quota=quota,
            value=found.value,
        )
        names = found.names.take(pa.array(found.owner))
        return pa.RecordBatch.from_arrays([*names.columns, *columns], schema=RESULT)

    def _make_room(self, candidates: int, slots: int) -> None:
        """Make room for so many candidates and samples; what the running counter has stays."""
        if len(self._tokens) < candidates:
            more = candidates - len(self._tokens)
            self._own = np.pad(self._own, (0, k.OWN_ROWS * more))
            self._tokens = np.pad(self._tokens, (0, more))
            self._worths = np.pad(self._worths, (0, more))
            self._sums = np.pad(self._sums, (0, k.SUMS * more))
        rings, here = self._starts.shape
        wanted = max(rings, 1 if self._mode == k.OPEN else candidates + 1)
        if rings < wanted or here < slots:
            room = ((0, wanted - rings), (0, max(0, slots - here)))
            self._starts = np.pad(self._starts, room)
            self._lasts = np.pad(self._lasts, room)
            self._totals = np.pad(self._totals, room)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the kernel has found, a row per result (``sums``: a column)."""

    names: pa.RecordBatch  # a row per counter
    owner: Array  # the counter of each result
    place: Array  # the candidate
    quota: Array
    sums: Array
    clock: Array
    bucket: Array
    limit: Array
    value: Array


def result_columns(  # noqa: PLR0913  (most by keyword)
    sums: Array,
    clock: Array,
    *,
    mode: str,
    algorithm: pa.Array,
    place: Array,
    quota: Array,
    value: Array,
) -> list[pa.Array]:
    """Return ``RESULT`` without the names.

    Args:
        sums: of ``grid_sums``, a column per result.
        clock: a row per result.
        mode: how it was replayed.
        algorithm: of each result.
        place: which candidate each is.
        quota: per second; NaN: none.
        value: the sum of all values.
    """
    events = clock[:, k.EVENTS]
    span_ms = np.maximum(sums[k.END_MS] - clock[:, k.JUDGED_MS], 1).astype(np.int64)
    span_ms = np.where(events > 0, span_ms, 1)
    over = sums[k.OVER].astype(np.int64)
    columns: dict[str, Array | pa.Array] = {
        "algorithm": algorithm,
        "mode": pa.array([mode]).take(pa.array(np.zeros(len(place), np.int64))),
        "samples": clock[:, k.SAMPLES],
        "sample_ms": clock[:, k.SAMPLE_MS],
        "candidate": place,
        # A multiple of no limit is no limit.
        "quota": pa.array(quota, pa.float64(), mask=np.isnan(quota)),
        "events": events,
        "value_sum": value,
        "over": over,
        "throttle_ms_sum": sums[k.THROTTLE_MS],
        "throttled_ms": sums[k.THROTTLED_MS],
        "worst_ms": sums[k.WORST_MS],
        "value_within": sums[k.WITHIN],
        "rejected": sums[k.REJECTED].astype(np.int64),
        "delay_ms_sum": sums[k.DELAY_MS],
        "delay_ms_max": sums[k.DELAY_MS_MAX],
        "span_ms": span_ms,
        "warmup_ms": clock[:, k.JUDGED_MS] - clock[:, k.FIRST_MS],
        "share_over": over / np.maximum(events, 1),
        "share_throttled": np.minimum(sums[k.THROTTLED_MS] / span_ms, 1.0),
    }
    return [
        values if isinstance(values, pa.Array) else pa.array(values, RESULT.field(name).type)
        for name, values in columns.items()
    ]


def _segments(rows: Rows, debt: Array) -> tuple[Array, Array]:
    """Cut rows where a counter begins and where its algorithm changes; return each one's counter, and cuts."""
    starts = rows.starts[:-1]
    counters = np.arange(len(starts))
    cuts = starts
    if debt.any():
        changes = np.flatnonzero(debt[1:] != debt[:-1]) + 1
        changes = np.setdiff1d(changes, starts)
        owners = np.searchsorted(starts, changes, side="right") - 1
        cuts, counters = np.concatenate([starts, changes]), np.concatenate([counters, owners])
        order = np.argsort(cuts, kind="stable")
        cuts, counters = cuts[order], counters[order]
    return counters, np.append(cuts, rows.starts[-1])
