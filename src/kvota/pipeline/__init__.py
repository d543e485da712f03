"""Makes tables with Spark, which is used only here: one function per table, DataFrames in and out.

``session`` and ``read_events`` give the events; ``usage``, ``usage_total``, ``replay`` and
``replay_rows`` are tables; ``law`` and ``recommend`` run jobs and return plain values.
"""

from kvota.pipeline.events import BadInput, bad_input, find_events, read_events, read_files
from kvota.pipeline.law import Difference, LawOfType, LawResult, law, replay_rows
from kvota.pipeline.recommend import Recommendation, Verified, Wishes, recommend
from kvota.pipeline.replay import Counted, Factors, OfCounters, replay
from kvota.pipeline.spark_session import end_session, session
from kvota.pipeline.usage import usage, usage_total

__all__ = [
    "BadInput",
    "Counted",
    "Difference",
    "Factors",
    "LawOfType",
    "LawResult",
    "OfCounters",
    "Recommendation",
    "Verified",
    "Wishes",
    "bad_input",
    "end_session",
    "find_events",
    "law",
    "read_events",
    "read_files",
    "recommend",
    "replay",
    "replay_rows",
    "session",
    "usage",
    "usage_total",
]
