"""Replays one task's counters: Arrow batches in, one row per counter and candidate out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kvota.pipeline.arrow_columns import Array, arrays
from kvota.pipeline.kernels import closed_kernels, closed_rate_kernel, open_kernels
from kvota.pipeline.kernels import grid_sums as k

RESULT_SPARK = (
    "counter_id long, bucket boolean, samples int, sample_ms int, candidate int, quota double, "
    "events long, value_sum double, over long, throttle_ms_sum double, throttled_ms double, "
    "worst_ms double, value_within double, rejected long, delay_ms_sum double, delay_ms_max double, "
    "span_ms long, warmup_ms long"
)
_RESULT = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("bucket", pa.bool_()),
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
    ]
)
_MODES = {"open": k.OPEN, "backlog": k.BACKLOG, "think": k.THINK}

# The results of finished counters go on in batches of about this size.
_ROWS_PER_BATCH = 20_000

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The candidates, which are the same for every counter or each counter's own."""

    quotas: tuple[float, ...] = ()
    relative: bool = False  # multiples of the limit in force
    of_counters: Mapping[int, tuple[float, ...]] | None = None
    mode: str = "open"

    def of(self, counter_id: int) -> tuple[float, ...]:
        """Return the candidates of one counter; a counter without any is left out."""
        return self.quotas if self.of_counters is None else self.of_counters.get(counter_id, ())


def grid_stage(grid: Grid) -> Callable[[Batches], Batches]:
    """Make the function for ``mapInArrow`` over rows sorted by counter; state outlives batches."""

    def stage(batches: Batches) -> Batches:
        running: CounterRun | None = None
        finished: list[dict[str, Array]] = []
        for batch in batches:
            columns = arrays(batch)
            ids = columns["counter_id"]
            cuts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)]
            for start, end in pairwise(cuts):
                if start == end:
                    continue
                counter_id = int(ids[start])
                if running is None or running.counter_id != counter_id:
                    if running is not None:
                        finished.append(running.result())
                    running = CounterRun(counter_id, grid)
                running.feed({name: column[start:end] for name, column in columns.items()})
            if sum(len(part["candidate"]) for part in finished) > _ROWS_PER_BATCH:
                yield _batch(finished)
                finished = []
        if running is not None:
            finished.append(running.result())
            yield _batch(finished)

    return stage


class CounterRun:
    """One counter under all its candidates; it is fed with pieces of its rows, in order."""

    def __init__(self, counter_id: int, grid: Grid) -> None:
        self.counter_id = counter_id
        # Of the last row: a token bucket of mutations, of bandwidth; neither: a sampled rate.
        self._is_bucket = False
        self._is_debt = False
        self._mode = _MODES[grid.mode]
        self._relative = grid.relative
        self._quotas = np.array(grid.of(counter_id))
        count = len(self._quotas)
        self._sums = np.zeros((k.SUMS, count))
        self._sums[k.COVERED_MS] = k.LONG_AGO_MS
        self._clock = np.zeros(k.CLOCK_SIZE, np.int64)
        self._clock[[k.FIRST_MS, k.RECORD_MS]] = k.LONG_AGO_MS
        self._own = np.zeros((k.OWN_ROWS, count), np.int64)
        self._own[k.OWN_RECORD_MS] = k.LONG_AGO_MS
        self._tokens, self._worths = np.zeros(count), np.zeros(count)
        # In the open loop the samples do not depend on the candidate; else each may have a row of its own.
        self._rings = 1 if self._mode == k.OPEN else count + 1
        self._starts = np.zeros((self._rings, 0), np.int64)
        self._lasts = np.zeros((self._rings, 0), np.int64)
        self._totals = np.zeros((self._rings, 0))
        self._limit = np.nan

    def feed(self, columns: Mapping[str, Array]) -> None:
        """Take the next rows of this counter."""
        if not len(self._quotas):
            return
        limits = columns["limit"][~np.isnan(columns["limit"])]
        self._limit = limits[-1] if len(limits) else self._limit
        debt = columns["debt"]
        if debt.all() or not debt.any():
            self._feed(columns)
            return
        cuts = [0, *(np.flatnonzero(debt[1:] != debt[:-1]) + 1).tolist(), len(debt)]
        for start, end in pairwise(cuts):
            self._feed({name: column[start:end] for name, column in columns.items()})

    def _feed(self, columns: Mapping[str, Array]) -> None:
        """Take rows of one algorithm; under another one than before the counter starts anew."""
        self._is_bucket = bool(columns["bucket"][0])
        if columns["debt"][0] != self._is_debt:
            self._is_debt = not self._is_debt
            self._clock[k.RECORD_MS] = k.LONG_AGO_MS
            self._own[k.OWN_RECORD_MS] = k.LONG_AGO_MS
            self._own[k.OWN_PATH] = closed_rate_kernel.APART
        if not (self._is_bucket or self._is_debt):
            self._make_room(int(columns["samples"].max()) + 1)
        names = ("ts_us", "value", "limit", "samples", "sample_ms")
        rows = [columns[name] for name in names]
        # A counter has one quota type, and so one floor.
        question = (self._quotas, self._relative, float(columns["floor"][0]))
        if self._is_debt:
            self._feed_debt(rows, columns, question)
        else:
            self._feed_kafkas(rows, columns, question)

    def _feed_debt(
        self, rows: list[Array], columns: Mapping[str, Array], question: tuple[Array, bool, float]
    ) -> None:
        how = (*question, float(columns["debt_max_ms"][0]))
        if self._mode == k.OPEN:
            state = (self._clock, self._tokens, self._worths, self._sums)
            open_kernels.debt_open_rows(*rows, columns["complete"], *how, *state)
        else:
            own_state = (self._clock, self._own, self._tokens, self._worths, self._sums)
            closed_kernels.debt_closed_rows(
                *rows, columns["complete"], *how, self._mode, *own_state
            )

    def _feed_kafkas(
        self, rows: list[Array], columns: Mapping[str, Array], question: tuple[Array, bool, float]
    ) -> None:
        strict, complete = columns["strict"], columns["complete"]
        brief = bool(columns["brief"][0]) if "brief" in columns else False
        rings = (self._starts, self._lasts, self._totals)
        if self._mode != k.OPEN and self._is_bucket:
            state = (self._mode, self._clock, self._own, self._tokens, self._sums)
            closed_kernels.bucket_closed_rows(*rows, strict, complete, *question, *state)
        elif self._mode != k.OPEN:
            state = (self._mode, self._clock, self._own, *rings, self._sums)
            closed_rate_kernel.closed_rate_rows(*rows, complete, *question, brief, *state)
        elif self._is_bucket:
            bucket = (self._clock, self._tokens)
            open_kernels.bucket_open_rows(*rows, strict, complete, *question, *bucket, self._sums)
        else:
            ring = (self._starts[0], self._lasts[0], self._totals[0])
            state = (self._clock, *ring, self._sums)
            open_kernels.rate_open_rows(*rows, complete, *question, brief, *state)

    def result(self) -> dict[str, Array]:
        """Return one row per candidate, as columns by name."""
        count = len(self._quotas)
        sums, clock = self._sums, self._clock
        span_ms = np.maximum(sums[k.END_MS] - clock[k.JUDGED_MS], 1).astype(np.int64)
        shared = {
            "counter_id": self.counter_id,
            "bucket": self._is_bucket or self._is_debt,
            "samples": clock[k.SAMPLES],
            "sample_ms": clock[k.SAMPLE_MS],
            "events": clock[k.EVENTS],
            "value_sum": sums[k.VALUE, 0] if count else 0.0,
            "warmup_ms": clock[k.JUDGED_MS] - clock[k.FIRST_MS],
        }
        return {name: np.full(count, number) for name, number in shared.items()} | {
            "candidate": np.arange(count),
            "quota": self._quotas * self._limit if self._relative else self._quotas,
            "over": sums[k.OVER].astype(np.int64),
            "throttle_ms_sum": sums[k.THROTTLE_MS],
            "throttled_ms": sums[k.THROTTLED_MS],
            "worst_ms": sums[k.WORST_MS],
            "value_within": sums[k.WITHIN],
            "rejected": sums[k.REJECTED].astype(np.int64),
            "delay_ms_sum": sums[k.DELAY_MS],
            "delay_ms_max": sums[k.DELAY_MS_MAX],
            "span_ms": np.where(clock[k.EVENTS] > 0, span_ms, 1),
        }

    @property
    def state_bytes(self) -> int:
        """Return how many bytes of arrays this counter keeps in memory."""
        return sum(
            array.nbytes
            for array in (
                self._sums,
                self._clock,
                self._own,
                self._tokens,
                self._starts,
                self._lasts,
                self._totals,
            )
        )

    def _make_room(self, slots: int) -> None:
        here = self._starts.shape[1]
        if slots <= here:
            return
        before = (self._starts, self._lasts, self._totals)
        self._starts = np.zeros((self._rings, slots), np.int64)
        self._lasts = np.zeros((self._rings, slots), np.int64)
        self._totals = np.zeros((self._rings, slots))
        for wider, narrow in zip((self._starts, self._lasts, self._totals), before, strict=True):
            wider[:, :here] = narrow


def _batch(finished: list[dict[str, Array]]) -> pa.RecordBatch:
    arrays = []
    for field in _RESULT:
        values: Array = np.concatenate([part[field.name] for part in finished])
        # A multiple of no limit is no limit.
        mask = np.isnan(values) if field.name == "quota" else None
        arrays.append(pa.array(values, field.type, mask=mask))
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT)
