"""How each row is counted: as recorded, or as a replay is told to. Pure."""

from dataclasses import dataclass

import numpy as np

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import REJECTED
from kvota.model.errors import UsageError
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.counters import BANDWIDTH_TYPES, BUCKET_TYPES, REQUEST_TIME_TYPES, is_of
from kvota.pipeline.unpack import Rows

# Kafka's window, for charges from a time when no quota of their type existed.
_DEFAULT_WINDOW = QuotaWindow()
_DEFAULT_BUCKET = BucketSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How charges are counted in a replay; what is None is as recorded.

    Attributes:
        algorithm: of bandwidth; others have but one.
        window: of sampled rates and mutations; Kafka's 11 x 1 s where none was recorded.
        burst_ms: of bandwidth by ``token_bucket``; 1 s where none was recorded.
        debt_max_ms: a Produce that comes while more is owed waits for its turn; no row says it.

    Raises:
        UsageError: a burst below 1 ms, a debt below 0.
    """

    algorithm: Algorithm | None = None
    window: QuotaWindow | None = None
    burst_ms: int | None = None
    debt_max_ms: int = _DEFAULT_BUCKET.debt_max_ms

    def __post_init__(self) -> None:
        """Refuse what cannot be counted with."""
        burst_ms = _DEFAULT_BUCKET.burst_ms if self.burst_ms is None else self.burst_ms
        try:
            BucketSettings(burst_ms=burst_ms, debt_max_ms=self.debt_max_ms)
        except ValueError as error:
            raise UsageError(str(error)) from error


AS_RECORDED = Counted()


def has(rows: Rows, mark: int) -> Array:
    """Return for each row whether it has a mark of ``chunk_schema``."""
    has_mark: Array = (rows.columns["marks"] & mark) != 0
    return has_mark


def is_refused(rows: Rows) -> Array:
    """Return for each row whether it is of bandwidth that was rejected."""
    rejected: Array = (rows.columns["marks"] & s.OUTCOME_MASK) == REJECTED
    if rejected.any():
        rejected &= rows.spread(is_of(rows.names, *BANDWIDTH_TYPES))
    return rejected


def is_waiting_fetch(rows: Rows) -> Array:
    """Return for each row whether it is of a Fetch that waited for room."""
    return is_refused(rows) & rows.spread(is_of(rows.names, QuotaType.FETCH))


def is_waiting_produce(rows: Rows) -> Array:
    """Return for each row whether it is of a Produce that waited for its turn.

    In shadow mode nobody waits: a rejected row is its request's only one.
    """
    held = is_refused(rows) & has(rows, s.ENFORCED)
    return held & rows.spread(is_of(rows.names, QuotaType.PRODUCE))


def requests(rows: Rows) -> Rows:
    """Return the rows to replay under other quotas.

    Rows of waits are left out: each of these requests went on later, and is in the record once more. So
    are those of an algorithm that nobody knows.
    """
    unknown = has(rows, s.UNKNOWN_ALGORITHM)
    refused = is_refused(rows)
    if refused.any():
        return rows.where(~(unknown | is_waiting_fetch(rows) | is_waiting_produce(rows)))
    return rows.where(~unknown)


@dataclass(frozen=True, slots=True)
class Counting:
    """How rows are counted, and the windows of each.

    Attributes:
        bucket: per counter: the token bucket of mutations.
        brief: per counter: no throttle is longer than a sample (request time).
        debt: per row: the token bucket of bandwidth; neither: a sampled rate.
        debt_max_ms: per counter; infinite: nobody waits for a turn.
        samples: per row.
        sample_ms: per row; the burst where ``debt``.
    """

    bucket: Array
    brief: Array
    debt: Array
    debt_max_ms: Array
    samples: Array
    sample_ms: Array


def counting(rows: Rows, counted: Counted) -> Counting:
    """Return how rows are counted in a replay."""
    bucket = is_of(rows.names, *BUCKET_TYPES)
    queues = is_of(rows.names, QuotaType.PRODUCE)
    brief = is_brief(rows)
    was_debt = recorded_debt(rows, bucket)
    samples, sample_ms = rows.columns["samples"], rows.columns["sample_ms"]
    debt = was_debt
    if counted.algorithm is not None:
        debt = rows.spread(~(bucket | brief) & (counted.algorithm is Algorithm.TOKEN_BUCKET))
    window = counted.window or _DEFAULT_WINDOW
    unknown = was_debt | (samples == 0) if counted.window is None else np.True_
    burst_ms = counted.burst_ms or _DEFAULT_BUCKET.burst_ms
    no_burst = ~was_debt | (samples == 0) if counted.burst_ms is None else np.True_
    return Counting(
        bucket,
        brief,
        debt,
        np.where(queues, float(counted.debt_max_ms), np.inf),
        _where(debt, 1, _where(unknown, window.samples, samples)),
        _where(
            debt,
            _where(no_burst, burst_ms, sample_ms),
            _where(unknown, window.sample_ms, sample_ms),
        ),
    )


def _where(mask: Array | np.bool_, value: Array | int, other: Array) -> Array:
    """Do what ``np.where`` does, mostly without a copy."""
    found: Array = np.where(mask, value, other) if np.any(mask) else other
    return found


def is_brief(rows: Rows) -> Array:
    """Return for each counter whether no throttle of it is longer than a sample."""
    return is_of(rows.names, *REQUEST_TIME_TYPES)


def recorded_debt(rows: Rows, bucket: Array) -> Array:
    """Return for each row whether it was counted by the token bucket of bandwidth."""
    debt = has(rows, s.TOKEN_BUCKET)
    return debt & ~rows.spread(bucket) if debt.any() else debt
