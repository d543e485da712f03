"""Makes tables with Spark, which is used only here.

``find_events`` looks at a record's files, ``chunks_of_files`` packs their charges by counter, and
``usage``, ``usage_total``, ``replay`` and ``replay_rows`` are tables made from these chunks; ``law`` and
``recommend`` run jobs and return plain values. ``chunks_of_table`` packs any other events table, such
as a filtered one of ``read_events``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvota.pipeline.charged import Counted
    from kvota.pipeline.chunks import Chunks, chunks_of_files, chunks_of_table
    from kvota.pipeline.events import bad_input, read_events, read_files
    from kvota.pipeline.law import LAW_COLUMNS, Difference, LawOfType, LawResult, law, replay_rows
    from kvota.pipeline.recommend import Recommendation, Verified, Wishes, recommend
    from kvota.pipeline.replay import Factors, OfCounters, replay
    from kvota.pipeline.spark_session import end_session, session
    from kvota.pipeline.usage import USAGE_COLUMNS, usage, usage_total
    from kvota.record.event_file import BadInput
    from kvota.record.found_events import find_events

# Each name with its module, which is imported when the name is used: together they take a second.
_MODULES = {
    "Counted": "kvota.pipeline.charged",
    "Chunks": "kvota.pipeline.chunks",
    "chunks_of_files": "kvota.pipeline.chunks",
    "chunks_of_table": "kvota.pipeline.chunks",
    "bad_input": "kvota.pipeline.events",
    "read_events": "kvota.pipeline.events",
    "read_files": "kvota.pipeline.events",
    "LAW_COLUMNS": "kvota.pipeline.law",
    "Difference": "kvota.pipeline.law",
    "LawOfType": "kvota.pipeline.law",
    "LawResult": "kvota.pipeline.law",
    "law": "kvota.pipeline.law",
    "replay_rows": "kvota.pipeline.law",
    "Recommendation": "kvota.pipeline.recommend",
    "Verified": "kvota.pipeline.recommend",
    "Wishes": "kvota.pipeline.recommend",
    "recommend": "kvota.pipeline.recommend",
    "Factors": "kvota.pipeline.replay",
    "OfCounters": "kvota.pipeline.replay",
    "replay": "kvota.pipeline.replay",
    "end_session": "kvota.pipeline.spark_session",
    "session": "kvota.pipeline.spark_session",
    "USAGE_COLUMNS": "kvota.pipeline.usage",
    "usage": "kvota.pipeline.usage",
    "usage_total": "kvota.pipeline.usage",
    "BadInput": "kvota.record.event_file",
    "find_events": "kvota.record.found_events",
}

__all__ = [
    "LAW_COLUMNS",
    "USAGE_COLUMNS",
    "BadInput",
    "Chunks",
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
    "chunks_of_files",
    "chunks_of_table",
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


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_MODULES[name]), name)
