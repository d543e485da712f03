"""Tells how each counter is usually used, from its own traffic alone: what a plan begins with."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kvota.pipeline import counters as c
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.kernels import habits_kernel as h
from kvota.pipeline.kernels import second_sums as of
from kvota.pipeline.seconds import Seconds

HABITS = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("gateway", pa.string()),
        ("node_id", pa.int32()),
        ("quota_type", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("events", pa.int64()),
        ("value_sum", pa.float64()),
        ("rate_max", pa.float64()),
        ("rate_usual", pa.float64()),
        ("hours", pa.float64()),
        ("share_throttled", pa.float64()),
    ]
)
_RATES = {
    "value_sum": h.TOTAL,
    "rate_max": h.MOST,
    "rate_usual": h.USUAL,
    "hours": h.HOURS,
    "share_throttled": h.HELD,
}


def habits(chunks: Chunks) -> DataFrame:
    """Return a row per counter: user, client id or both, at one gateway and broker.

    In:  chunks by user, client id or both, with ``USAGE_COLUMNS``.
    Out: counter_id long, gateway string, node_id int, quota_type, user, client_id string (null: not part of
         the level), events long, value_sum, rate_max double (of a second), rate_usual double (the median of the
         seconds of the minutes with its traffic), hours double (with its traffic), share_throttled double
         (of the time in which it sent or waited to on the last day of its traffic, really held back).
    """
    return chunks.stage_of_seconds(habits_stage, HABITS)


def habits_stage(every: Iterator[Seconds]) -> Iterator[pa.RecordBatch]:
    """Sum up all counters of a task."""
    for seconds in every:
        yield _habits(seconds)


def _habits(seconds: Seconds) -> pa.RecordBatch:
    owner = seconds.row(of.OF_OWNER)
    firsts, found = np.empty(len(owner), np.int64), np.empty((h.HABITS, len(owner)))
    count = h.habits(
        owner,
        seconds.row(of.OF_SECOND),
        seconds.used,
        seconds.row(of.OF_HELD_MS),
        firsts,
        found,
    )
    firsts = firsts[:count]
    named = c.named(seconds.names).take(pa.array(owner[firsts]))
    columns = [
        pa.array(found[_RATES[part.name], :count])
        if part.name in _RATES
        else pa.array(np.add.reduceat(seconds.sums[of.OF_EVENTS], firsts))
        if part.name == "events"
        else named.column(part.name)
        for part in HABITS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=HABITS)
