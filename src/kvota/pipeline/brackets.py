"""Brackets the need of each counter between two candidates, where the rows are: only these two numbers leave a worker."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from kvota.pipeline.charged import Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.counters import REPLAYED_TYPES
from kvota.pipeline.grid import Grid, grid_stage
from kvota.pipeline.unpack import Rows
from kvota.planning.need import Bracket, Tolerance, Trial, bracket

BRACKETS = pa.schema(
    [("counter_id", pa.int64()), ("fails", pa.float64()), ("passes", pa.float64())]
)


def brackets(
    chunks: Chunks,
    candidates: Mapping[int, tuple[float, ...]],
    tolerance: Tolerance,
    counted: Counted,
) -> dict[int, Bracket]:
    """Replay candidates for some counters, open loop; return the bracket of each; this runs a Spark job."""
    wanted = {key: quotas for key, quotas in candidates.items() if quotas}
    if not wanted:
        return {}
    stage = _bracket_stage(Grid(of_counters=wanted, counted=counted), tolerance)
    table = chunks.of_types(REPLAYED_TYPES).stage(stage, BRACKETS).toArrow()
    columns = (table[name].to_pylist() for name in BRACKETS.names)
    return {key: Bracket(fails, passes) for key, fails, passes in zip(*columns, strict=True)}


def _bracket_stage(
    grid: Grid, tolerance: Tolerance
) -> Callable[[Iterator[Rows]], Iterator[pa.RecordBatch]]:
    replay = grid_stage(grid)

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        for replayed in replay(parts):
            yield _brackets_of(replayed, tolerance)

    return stage


def _brackets_of(replayed: pa.RecordBatch, tolerance: Tolerance) -> pa.RecordBatch:
    """Return a row per counter; those of a counter are neighbours, and all of them are here."""
    ids = replayed.column("counter_id").to_numpy()
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1)).tolist()
    columns = (replayed.column(name).to_pylist() for name in ("quota", "share_over", "worst_ms"))
    trials = [
        Trial(quota=quota, share_over=over, worst_ms=worst)
        for quota, over, worst in zip(*columns, strict=True)
    ]
    found = [
        bracket(trials[start:end], tolerance)
        for start, end in zip(starts, [*starts[1:], len(trials)], strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids[starts]),
            pa.array([item.fails for item in found], pa.float64()),
            pa.array([item.passes for item in found], pa.float64()),
        ],
        schema=BRACKETS,
    )
