"""Replays the recorded charges under many candidate quotas at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from pyspark.sql import DataFrame

from kvota.model.errors import UsageError
from kvota.pipeline.charged import AS_RECORDED, Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.counters import REPLAYED_TYPES
from kvota.pipeline.grid import RESULT, Grid, grid_stage

Mode = Literal["open", "backlog", "think"]


@dataclass(frozen=True, slots=True)
class Factors:
    """Candidates that are multiples of the limit in force at each row (no limit: unlimited).

    The quota of a result is a multiple of the last limit that there was.
    """

    factors: Sequence[float]


@dataclass(frozen=True, slots=True)
class OfCounters:
    """Candidates for each counter, by counter_id; a counter without any is left out."""

    quotas: Mapping[int, Sequence[float]]


Candidates = Sequence[float] | Factors | OfCounters


def replay(
    chunks: Chunks,
    candidates: Candidates,
    *,
    counted: Counted = AS_RECORDED,
    mode: Mode = "open",
) -> DataFrame:
    """Replay the recorded charges under candidate quotas; one row per counter and candidate.

    In:  the chunks of a record, with counters as recorded or made anew.
    Out: counter_id long, gateway, run_id string, node_id int, quota_type, tags, user, client_id string,
         enforced boolean (null: counters as recorded, or made anew of all rows),
         algorithm, mode string, samples, sample_ms int (the last ones), candidate int, quota double, events long,
         value_sum double, over long, throttle_ms_sum, throttled_ms double (union of the throttled
         spans), worst_ms, value_within double, rejected long, delay_ms_sum, delay_ms_max double
         (closed modes), span_ms, warmup_ms long, share_over, share_throttled double.

    Args:
        chunks: what was recorded; quota types without a kernel are left out.
        candidates: quotas per second for every counter, or ``Factors``, or ``OfCounters``.
        counted: by which algorithm, and how; else each row as recorded.
        mode: ``open``: requests come when they came; ``backlog``: a throttled client's requests
            wait; ``think``: every throttle shifts all that follows. The truth lies between.

    Raises:
        UsageError: a candidate is not above 0.
    """
    grid = _grid(candidates, mode, counted)
    return chunks.of_types(REPLAYED_TYPES).stage(grid_stage(grid), RESULT)


def _grid(candidates: Candidates, mode: Mode, counted: Counted) -> Grid:
    if isinstance(candidates, OfCounters):
        for quotas in candidates.quotas.values():
            check_candidates(quotas)
        of_counters = {key: tuple(quotas) for key, quotas in candidates.quotas.items() if quotas}
        return Grid(of_counters=of_counters, mode=mode, counted=counted)
    relative = isinstance(candidates, Factors)
    quotas = candidates.factors if isinstance(candidates, Factors) else candidates
    if not quotas:
        msg = "no candidate quota was given; write e.g. --candidates 2MB/s,4MB/s"
        raise UsageError(msg)
    check_candidates(quotas)
    return Grid(quotas=tuple(quotas), relative=relative, mode=mode, counted=counted)


def check_candidates(quotas: Sequence[float]) -> None:
    """Refuse what is no quota.

    Raises:
        UsageError: one is not above 0, or not finite.
    """
    for quota in quotas:
        if not (quota > 0 and isfinite(quota)):
            msg = f"candidate {quota}: a quota has to be above 0 and finite, as in Kafka"
            raise UsageError(msg)
