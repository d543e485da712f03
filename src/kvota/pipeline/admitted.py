"""Replays a plan as a whole: who waits under it, and how much it lets in of each broker in each second."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.charged import AS_RECORDED, Counted, counting, has, requests
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.kernels import admitted_kernel as k
from kvota.pipeline.kernels import grid_kernels, grid_sums
from kvota.pipeline.unpack import Rows

Loop = Literal["open", "backlog"]

_PROOFS = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("events", pa.int64()),
        ("over", pa.int64()),
        ("worst_ms", pa.float64()),
    ]
)
_SECONDS = pa.schema(
    [
        ("quota_type", pa.string()),
        ("node_id", pa.int32()),
        ("second", pa.int64()),
        ("value", pa.float64()),
    ]
)
# So many of all seconds may be above the capacity.
_OVER_MAX = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is replayed, and how.

    Attributes:
        quotas: by counter_id; what others send passes as it came.
        from_us: what came before is replayed, and not judged.
        until_us: seconds from then on are not judged.
        loop: ``open``: requests come when they came; ``backlog``: a throttled client's wait.
        counted: by which algorithm.
    """

    quotas: Mapping[int, float]
    from_us: int
    until_us: int
    loop: Loop = "backlog"
    counted: Counted = field(default=AS_RECORDED)


@dataclass(frozen=True, slots=True)
class Proof:
    """One counter in the time that was judged."""

    events: int
    over: int
    worst_ms: float

    @property
    def share_over(self) -> float:
        """How much of its requests was throttled."""
        return self.over / max(1, self.events)

    def plus(self, other: "Proof") -> "Proof":
        """Return what both met together."""
        worst_ms = max(self.worst_ms, other.worst_ms)
        return Proof(self.events + other.events, self.over + other.over, worst_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What the plan lets in of one broker, from all tenants together.

    Attributes:
        quota_type: of which.
        node_id: the broker; -1: the cluster.
        seconds: that were judged: those in which anything was let in.
        seconds_over: in which more than the capacity was let in.
        most: in a second.
        usual_most: what is not exceeded in 99.9 % of the seconds.
    """

    quota_type: QuotaType
    node_id: int
    seconds: int
    seconds_over: int
    most: float
    usual_most: float

    @property
    def is_kept(self) -> bool:
        """True where 99.9 % of the seconds, or all but one, are within the capacity."""
        return self.seconds_over <= max(1, self.seconds * _OVER_MAX)


def proofs(chunks: Chunks, planned: Planned) -> dict[int, Proof]:
    """Replay the counters that have a quota; return what each met; this runs a Spark job."""
    if not planned.quotas:
        return {}

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        last: pa.RecordBatch | None = None
        for rows, found in replayed_parts(parts, planned):
            of_all = _proofs(rows, found.proofs)
            wanted = [key in planned.quotas for key in of_all.column("counter_id").to_pylist()]
            done = of_all.filter(pa.array([*wanted[:-1], False]))
            if len(done):
                yield done
            last = of_all.slice(len(wanted) - 1) if wanted[-1] else None
        if last is not None:
            yield last

    rows = chunks.of_types(c.REPLAYED_TYPES).stage(stage, _PROOFS).collect()
    return {row["counter_id"]: Proof(row["events"], row["over"], row["worst_ms"]) for row in rows}


def together(
    chunks: Chunks, planned: Planned, capacities: Mapping[QuotaType, float]
) -> tuple[Together, ...]:
    """Replay all counters; return what is let in of each broker; this runs a Spark job."""

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        for rows, found in replayed_parts(parts, planned):
            batch = seconds_of(rows, found.admitted_ms, planned)
            if len(batch):
                yield batch

    table = (
        chunks.of_types([quota_type.value for quota_type in capacities])
        .stage(stage, _SECONDS)
        .groupBy("quota_type", "node_id", "second")
        .agg(F.sum("value").alias("value"))
    )
    most = F.lit(inf)
    for quota_type, capacity in capacities.items():
        most = F.when(F.col("quota_type") == quota_type.value, F.lit(capacity)).otherwise(most)
    # A capacity is met to a rounding error: quotas are rounded, sums of doubles too.
    over = F.sum((F.col("value") > most * (1 + 1e-9)).cast("long"))
    place = (F.floor(F.count("*") / 1000) + 1).cast("int")
    usual = F.element_at(F.sort_array(F.collect_list("value"), asc=False), place)
    rows = (
        table.groupBy("quota_type", "node_id")
        .agg(
            F.count("*").alias("seconds"),
            over.alias("over"),
            F.max("value").alias("most"),
            usual.alias("usual"),
        )
        .orderBy("quota_type", "node_id")
        .collect()
    )
    return tuple(
        Together(
            quota_type=QuotaType(row["quota_type"]),
            node_id=row["node_id"],
            seconds=row["seconds"],
            seconds_over=row["over"],
            most=row["most"],
            usual_most=row["usual"],
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What became of rows: ``PROOFS`` of each counter so far, and when each row was let in."""

    proofs: Array
    admitted_ms: Array


def replayed_parts(parts: Iterator[Rows], planned: Planned) -> Iterator[tuple[Rows, Found]]:
    """Replay one task's counters; a counter may go on in the next rows, and what is known of it does, too."""
    replay = _replay_of(planned)
    for every_row in parts:
        rows = requests(every_row)
        yield rows, replay(rows)


def _replay_of(planned: Planned) -> Callable[[Rows], Found]:
    own = np.zeros((k.STATE_INTS, 1), np.int64)
    tokens = np.zeros(1)
    ring = [np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)]
    last = np.zeros(k.PROOFS)
    mode = grid_sums.BACKLOG if planned.loop == "backlog" else grid_sums.OPEN

    def replay(rows: Rows) -> Found:
        how = counting(rows, planned.counted)
        kinds = rows.spread(np.where(how.bucket, grid_kernels.BUCKET, grid_kernels.RATE))
        kinds = np.where(how.debt, grid_kernels.DEBT, kinds).astype(np.int64)
        slots = int(how.samples.max(initial=0)) + 1
        for place, part in enumerate(ring):
            ring[place] = np.pad(part, (0, max(0, slots - len(part))))
        ids = rows.names.column("counter_id").to_pylist()
        found = np.zeros((k.PROOFS, len(ids)))
        if rows.continues:
            found[:, 0] = last
        admitted_ms = np.zeros(int(rows.starts[-1]), np.int64)
        k.admit(
            rows.starts,
            rows.continues,
            kinds,
            c.floors(rows.names),
            how.debt_max_ms,
            how.brief,
            np.array([planned.quotas.get(key, inf) for key in ids]),
            rows.columns["ts_us"],
            rows.columns["value"],
            how.samples.astype(np.int64),
            how.sample_ms.astype(np.int64),
            has(rows, s.STRICT),
            mode,
            planned.from_us,
            own,
            tokens,
            *ring,
            found,
            admitted_ms,
        )
        last[:] = found[:, -1]
        return Found(found, admitted_ms)

    return replay


def _proofs(rows: Rows, found: Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            rows.names.column("counter_id"),
            pa.array(found[k.EVENTS].astype(np.int64)),
            pa.array(found[k.OVER].astype(np.int64)),
            pa.array(found[k.WORST_MS]),
        ],
        schema=_PROOFS,
    )


def seconds_of(rows: Rows, admitted_ms: Array, planned: Planned) -> pa.RecordBatch:
    """Sum up what was let in, by broker and second."""
    first, end = planned.from_us // 1_000_000, -(-planned.until_us // 1_000_000)
    second = admitted_ms // 1000
    # A value that is no number, which no gateway records, is no part of any sum.
    inside = (second >= first) & (second < end) & np.isfinite(rows.columns["value"])
    counters = rows.spread(np.arange(len(rows.names)))[inside]
    names = rows.names.select(["quota_type", "node_id"]).to_pylist()
    keys = list(dict.fromkeys((name["quota_type"], name["node_id"]) for name in names))
    place_of = {key: place for place, key in enumerate(keys)}
    places = np.array([place_of[name["quota_type"], name["node_id"]] for name in names])
    length = end - first
    cells, cell_of = np.unique(
        places[counters] * length + (second[inside] - first), return_inverse=True
    )
    sums = np.bincount(cell_of, weights=rows.columns["value"][inside], minlength=len(cells))
    owners = cells // length if len(cells) else cells
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key[0] for key in keys], pa.string()).take(pa.array(owners)),
            pa.array([key[1] for key in keys], pa.int32()).take(pa.array(owners)),
            pa.array(cells % length + first, pa.int64()),
            pa.array(sums, pa.float64()),
        ],
        schema=_SECONDS,
    )
