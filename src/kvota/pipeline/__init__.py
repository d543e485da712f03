"""Makes tables with Spark, which is used only here.

``find_events`` looks at a record's files, ``chunks_of_files`` packs their charges by counter, and
``usage``, ``usage_total``, ``replay`` and ``replay_rows`` are tables made from these chunks; ``law`` and
``recommend`` run jobs and return plain values. ``chunks_of_table`` packs any other events table, such
as a filtered one of ``read_events``. ``find_looks`` and ``limits_ahead`` forecast volumes without Spark,
``tenants_ahead`` tenants from chunks; ``save_table`` keeps what they all made.
``usage_minutes`` reads, without Spark, what ``kvota ingest`` has kept.

They take anybody's SparkSession, from Spark 3.5 on, Spark Connect included, and change no setting of it;
``send_code`` is for one whose workers have no kvota. docs/pipeline.md tells all of it.

A name is imported when it is first asked for: Spark can be started before, and is waited for meanwhile.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvota.pipeline.admitted import Together
    from kvota.pipeline.charged import Counted
    from kvota.pipeline.chunks import Chunks, chunks_of_files, chunks_of_table
    from kvota.pipeline.events import bad_input, read_events, read_files
    from kvota.pipeline.law_check import (
        LAW_COLUMNS,
        Difference,
        LawOfType,
        LawResult,
        law,
        replay_rows,
    )
    from kvota.pipeline.plan_table import recommendation_table
    from kvota.pipeline.recommendation import Recommendation, Verified, Wishes, recommend
    from kvota.pipeline.replay_tables import Factors, OfCounters, replay
    from kvota.pipeline.saved_tables import save_table
    from kvota.pipeline.sent_code import code_archive, send_code
    from kvota.pipeline.spark_session import end_session, session
    from kvota.pipeline.tenant_forecasts import tenant_forecast_table, tenants_ahead
    from kvota.pipeline.usage_tables import USAGE_COLUMNS, usage, usage_total
    from kvota.pipeline.volume_tables import forecast_table, read_observations
    from kvota.record.event_file import BadInput
    from kvota.record.found_events import find_events
    from kvota.record.kept_usage import usage_minutes
    from kvota.record.volume_looks import find_looks
    from kvota.volumes.limits_ahead import limits_ahead

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
    "Together",
    "Verified",
    "Wishes",
    "bad_input",
    "chunks_of_files",
    "chunks_of_table",
    "code_archive",
    "end_session",
    "find_events",
    "find_looks",
    "forecast_table",
    "law",
    "limits_ahead",
    "read_events",
    "read_files",
    "read_observations",
    "recommend",
    "recommendation_table",
    "replay",
    "replay_rows",
    "save_table",
    "send_code",
    "session",
    "tenant_forecast_table",
    "tenants_ahead",
    "usage",
    "usage_minutes",
    "usage_total",
]

_NAMES_OF = {
    "kvota.pipeline.admitted": ("Together",),
    "kvota.pipeline.charged": ("Counted",),
    "kvota.pipeline.chunks": (
        "Chunks",
        "chunks_of_files",
        "chunks_of_table",
    ),
    "kvota.pipeline.events": (
        "bad_input",
        "read_events",
        "read_files",
    ),
    "kvota.pipeline.law_check": (
        "LAW_COLUMNS",
        "Difference",
        "LawOfType",
        "LawResult",
        "law",
        "replay_rows",
    ),
    "kvota.pipeline.plan_table": ("recommendation_table",),
    "kvota.pipeline.recommendation": (
        "Recommendation",
        "Verified",
        "Wishes",
        "recommend",
    ),
    "kvota.pipeline.replay_tables": (
        "Factors",
        "OfCounters",
        "replay",
    ),
    "kvota.pipeline.saved_tables": ("save_table",),
    "kvota.pipeline.sent_code": ("code_archive", "send_code"),
    "kvota.pipeline.spark_session": (
        "end_session",
        "session",
    ),
    "kvota.pipeline.tenant_forecasts": ("tenant_forecast_table", "tenants_ahead"),
    "kvota.pipeline.usage_tables": (
        "USAGE_COLUMNS",
        "usage",
        "usage_total",
    ),
    "kvota.pipeline.volume_tables": ("forecast_table", "read_observations"),
    "kvota.record.event_file": ("BadInput",),
    "kvota.record.found_events": ("find_events",),
    "kvota.record.kept_usage": ("usage_minutes",),
    "kvota.record.volume_looks": ("find_looks",),
    "kvota.volumes.limits_ahead": ("limits_ahead",),
}
_HOME_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME_OF[name]), name)
