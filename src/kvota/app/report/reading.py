"""Reads with Spark what a report shows: use of all lines, and of the nearest ones rates over time and other quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvota.app.report.content import Drawn, Line, Plan, Planned, Tried, Window
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import FACTS, QuotaType
from kvota.planning.lowering import limit_of
from kvota.planning.need import geometric_grid

if TYPE_CHECKING:
    from kvota.pipeline.chunks import Chunks

# Lines in one file; more make it slow to open.
LINES_MAX = 10_000
# Quotas that are tried on a line with plots, beside its limit and the planned one.
_CANDIDATES = 18
# Windows of a plot are the smallest of these of which so many are enough.
_WINDOWS_MAX = 150
_WINDOWS_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 86_400)
# Chunks are taken out by counter only where these are few.
_COUNTERS_PICKED_MAX = 1_000

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan as it was read.

    Attributes:
        source: the file.
        after: quotas once it is applied.
        before: quotas that it was made from; None: the file does not say.
    """

    source: str
    after: ClientQuotas
    before: ClientQuotas | None


@dataclass(frozen=True, slots=True)
class Used:
    """What a record says.

    Attributes:
        first_us: the first moment.
        last_us: the last one.
        window_s: of the plots.
        lines: the first ones, those nearest to their limit before all others.
        hidden_lines: how many there are more.
        drawn: those with plots.
        plan: the consequences of one.
    """

    first_us: int
    last_us: int
    window_s: int
    lines: Sequence[Line]
    hidden_lines: int
    drawn: Sequence[Drawn]
    plan: Plan | None


def read_used(
    every_chunk: "Chunks", *, plots: int, in_force: ClientQuotas | None, plan: PlanFile | None
) -> Used:
    """Read it.

    Args:
        every_chunk: the record by user, client or both, with ``USAGE_COLUMNS``, shadow mode apart.
        plots: of how many lines there are plots.
        in_force: quotas in force, where they are known; else the recorded limits stand for them.
        plan: whose consequences are shown.
    """
    from kvota.pipeline.counters import ID_TYPES
    from kvota.pipeline.usage_tables import span_s

    kept = every_chunk.persist()
    try:
        chunks = kept.but_types(ID_TYPES)
        lines, found = _lines(chunks)
        from_s, span = span_s(chunks)
        window_s = window_of(span)
        nearest = lines[:plots]
        windows = _windows(chunks, nearest, window_s)
        limits = _limits(lines, in_force, plan)
        tried = _tried(chunks, lines, nearest, limits)
        drawn = [
            Drawn(
                line,
                windows.get(line.counter_id, ()),
                tried.get(line.counter_id, ()),
                limits[line.counter_id][1] if plan is not None else None,
            )
            for line in nearest
        ]
        return Used(
            from_s * 1_000_000,
            (from_s + span) * 1_000_000,
            window_s,
            lines,
            found - len(lines),
            drawn,
            None if plan is None else _plan(plan.source, lines, limits, tried),
        )
    finally:
        kept.unpersist()


def window_of(span_s: int) -> int:
    """Return how long a window is in a plot of so much time.

    >>> window_of(600), window_of(7 * 86_400)
    (5, 10800)
    """
    return next((each for each in _WINDOWS_S if span_s <= each * _WINDOWS_MAX), _WINDOWS_S[-1])


def _lines(chunks: "Chunks") -> tuple[list[Line], int]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.usage_tables import usage_total

    seen = Observation()
    totals = usage_total(chunks).observe(seen, F.count(F.lit(1)).alias("lines"))
    ranked = totals.drop("window_start").orderBy(
        F.col("limit_share").desc_nulls_last(), F.col("value_sum").desc(), "counter_id"
    )
    rows = [row.asDict() for row in ranked.limit(LINES_MAX).collect()]
    return [_line(row) for row in rows], int(seen.get["lines"])


def _line(row: _Row) -> Line:
    return Line(
        counter_id=row["counter_id"],
        quota_type=row["quota_type"],
        user=row["user"],
        client_id=row["client_id"],
        node_id=row["node_id"],
        requests=row["events"],
        mean=row["rate_mean"],
        p50=row["rate_p50"],
        p95=row["rate_p95"],
        most=row["rate_10s_max"],
        limit=row["limit_last"] if row["limit_binds"] else None,
        limit_is_shared=row["limit_last"] is not None and not row["limit_binds"],
        of_limit=row["limit_share"],
        throttled=(row["throttled"] + row["rejected"]) / max(row["decisions"], 1),
        is_enforced=row["enforced"],
    )


def _windows(chunks: "Chunks", lines: Sequence[Line], window_s: int) -> dict[int, list[Window]]:
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.usage_tables import usage

    if not lines:
        return {}
    table = usage(chunks.of_counters(line.counter_id for line in lines), window_s=window_s)
    in_us = table.withColumn("start_us", F.unix_micros("window_start"))
    names = (
        "counter_id",
        "start_us",
        "rate_p50",
        "rate_p95",
        "rate_max",
        "limit_last",
        "limit_binds",
    )
    found: dict[int, list[Window]] = {}
    for row in in_us.select(*names).orderBy("start_us").collect():
        limit = row["limit_last"] if row["limit_binds"] else None
        window = Window(row["start_us"], row["rate_p50"], row["rate_p95"], row["rate_max"], limit)
        found.setdefault(row["counter_id"], []).append(window)
    return found


# By counter: the limit before a plan, and after it.
_Limits = Mapping[int, tuple[float | None, float | None]]


def _limits(lines: Sequence[Line], in_force: ClientQuotas | None, plan: PlanFile | None) -> _Limits:
    known = in_force if in_force is not None else None if plan is None else plan.before
    return {
        line.counter_id: (
            line.limit if known is None else _limit_in(known, line),
            None if plan is None else _limit_in(plan.after, line),
        )
        for line in lines
    }


def _limit_in(quotas: ClientQuotas, line: Line) -> float | None:
    """The limit that holds for a line by a file of quotas."""
    key = FACTS[QuotaType(line.quota_type)].config_key if line.quota_type in FACTS else None
    if key is None:
        return None
    names = [None if name is None else name or DEFAULT for name in (line.user, line.client_id)]
    return limit_of(quotas, QuotaEntity(*names), key)


def _tried(
    chunks: "Chunks", lines: Sequence[Line], nearest: Sequence[Line], limits: _Limits
) -> dict[int, list[Tried]]:
    """Replay quotas in the open and the backlog loop: a grid for the nearest lines, before and after for all."""
    from kvota.pipeline.replay_tables import Mode, OfCounters, replay

    with_grid = {line.counter_id for line in nearest}
    quotas = {
        line.counter_id: sorted(
            {
                *(_grid(line) if line.counter_id in with_grid else ()),
                *(limit for limit in limits[line.counter_id] if limit is not None and limit > 0),
            }
        )
        for line in lines
        if line.counter_id in with_grid or _is_changed(limits[line.counter_id])
    }
    quotas = {counter_id: each for counter_id, each in quotas.items() if each}
    if not quotas:
        return {}
    some = chunks.of_counters(quotas) if len(quotas) <= _COUNTERS_PICKED_MAX else chunks
    loops: tuple[Mode, Mode] = ("open", "backlog")
    shares: list[dict[tuple[int, float], float]] = []
    for mode in loops:
        table = replay(some, OfCounters(quotas), mode=mode)
        rows = table.select("counter_id", "quota", "share_over").collect()
        shares.append({(row["counter_id"], row["quota"]): row["share_over"] for row in rows})
    as_recorded, waiting = shares
    found: dict[int, list[Tried]] = {}
    for (counter_id, quota), share in sorted(as_recorded.items()):
        tried = Tried(quota, share, waiting.get((counter_id, quota), share))
        found.setdefault(counter_id, []).append(tried)
    return found


def _is_changed(limits: tuple[float | None, float | None]) -> bool:
    before, after = limits
    return after is not None and before != after


def _grid(line: Line) -> tuple[float, ...]:
    """Quotas from well below what the line uses to above the most it used, and its limit."""
    most = max(line.most, line.mean, line.limit or 0.0)
    if most <= 0:
        return ()
    return geometric_grid(max(line.mean / 4, most / 1_000), most * 1.25, _CANDIDATES)


def _plan(
    source: str, lines: Sequence[Line], limits: _Limits, tried: Mapping[int, Sequence[Tried]]
) -> Plan:
    planned = []
    for line in lines:
        before, after = limits[line.counter_id]
        if before == after:
            continue
        of_quota = {each.quota: each for each in tried.get(line.counter_id, ())}
        before_tried = None if before is None else of_quota.get(before)
        after_tried = None if after is None else of_quota.get(after)
        planned.append(Planned(line, before, after, before_tried, after_tried))
    planned.sort(key=lambda each: (-each.throttled_after, each.throttled_before))
    return Plan(source, planned, len(lines) - len(planned))
