"""Computes each tenant's use: exact sums of seconds, their quantiles, and the share throttled."""

from pyspark.sql import DataFrame

from kvota.model.errors import UsageError
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.usage_stage import WINDOWS, Windows, usage_stage

WINDOW_S = 60

# The columns that chunks need for usage beside those they always have.
USAGE_COLUMNS = ("throttle_ms", "upstream_throttle_ms", "tags")


def usage(chunks: Chunks, *, window_s: int = WINDOW_S) -> DataFrame:
    """Return what each tenant used per window; windows in which it did nothing have no row.

    In:  chunks by user, client id or both, or by tags, with ``USAGE_COLUMNS``.
    Out: counter_id long, quota_type, level, user, client_id, tags string (null: not part of the level, or of the tags),
         node_id int, window_start timestamp (the key), window_s long, events, decisions long (beside events:
         a Fetch's waits for room, and its answers that were emptied), value_sum, rate_mean,
         rate_p50, rate_p95, rate_p99, rate_max, rate_10s_max double (per second; quantiles of the exact
         sums of seconds, nearest rank, quiet seconds are zeros), limit_share double (the largest share of its
         limit in ten seconds, each second by the limit that it had; null: never a limit of its own), busy_s int,
         throttled, rejected, throttle_ms_sum long, share_throttled double (0 to 1: of the decisions, throttled
         or rejected), enforced boolean (false: would be throttled),
         censored boolean (it was throttled, so it may have wanted more), limit_last double,
         limit_binds boolean (nobody else is charged on the counter of this limit), has_other_tags boolean
         (that counter has other tags than Kafka's, as those of a group).

    Charges that were rejected and enforced used nothing; give-backs are subtracted. A Produce that
    waited for its turn counts where it went on; until then it is only a sign of wanting more (censored).

    Raises:
        UsageError: ``window_s`` is below 1.
    """
    if window_s < 1:
        msg = f"window_s: {window_s} is below 1 second"
        raise UsageError(msg)
    return _usage(chunks, 0, window_s)


def usage_total(chunks: Chunks) -> DataFrame:
    """Return what each tenant used over the whole record, with the columns of ``usage``.

    The one window spans the record from its first to its last second, for every tenant.
    """
    from_s, window_s = span_s(chunks)
    return _usage(chunks, from_s, window_s)


def span_s(chunks: Chunks) -> tuple[int, int]:
    """Return the first second of the record (Unix), or of the period, and how many seconds it spans."""
    if not chunks.runs:
        return 0, 1
    first_us = max(chunks.period.since_us, min(run.first_us for run in chunks.runs))
    last_us = min(chunks.period.until_us - 1, max(run.last_us for run in chunks.runs))
    first, last = first_us // 1_000_000, last_us // 1_000_000
    return first, max(1, last - first + 1)


def _usage(chunks: Chunks, from_s: int, window_s: int) -> DataFrame:
    return chunks.stage_of_seconds(usage_stage(Windows(chunks.by, from_s, window_s)), WINDOWS)
