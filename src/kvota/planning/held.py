"""Judges from the record alone whether a limit held."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The worst interval of one counter, with what was admitted in it and what was allowed."""

    holds: bool
    admitted: float
    allowed: float
    interval_s: float


def held(
    quota_type: QuotaType,
    charges: Iterable[tuple[int, float]],
    *,
    limit: float,
    window: QuotaWindow,
    late_ms: float = 0.0,
) -> Held:
    """Judge whether in *every* interval no more was admitted than the quota's arithmetic allows.

    Sampled rate: limit x (elapsed + (samples - 1) x sample length) + one request, which is what
    record first, check second leaves open. Token bucket: limit x elapsed + the bucket's burst + one
    request.

    Args:
        quota_type: its default algorithm decides which of the two.
        charges: (Unix microseconds, admitted value) of one counter under one limit, in the order of
            the decisions; what was given back is negative. A clock that steps back counts as standing.
        limit: per second, above 0.
        window: in force.
        late_ms: how much later than its throttle time a mute has ended at most, as the gateway
            measured it. A client that was let go late catches up: Kafka's rate looks at the window,
            not at the single wait.
    """
    is_bucket = FACTS[quota_type].algorithms[0] is Algorithm.TOKEN_BUCKET
    samples = window.samples if is_bucket else window.samples - 1
    slack = limit * (samples * window.sample_ms + late_ms) / 1000
    largest = total = now_s = 0.0
    first_us: int | None = None
    # The start that is worst for every later end: the largest limit x time - (sum before it).
    start_s, start_total, start_value = 0.0, 0.0, float("-inf")
    worst_excess, admitted, interval_s = float("-inf"), 0.0, 0.0
    for ts_us, value in charges:
        first_us = ts_us if first_us is None else first_us
        now_s = max(now_s, (ts_us - first_us) / 1e6)
        largest = max(largest, value)
        if limit * now_s - total > start_value:
            start_s, start_total, start_value = now_s, total, limit * now_s - total
        total += value
        excess = total - limit * now_s + start_value
        if excess > worst_excess:
            worst_excess, admitted, interval_s = excess, total - start_total, now_s - start_s
    allowed = limit * interval_s + slack + largest
    return Held(
        holds=admitted <= allowed * (1 + 1e-9),  # the sums are of doubles
        admitted=admitted,
        allowed=allowed,
        interval_s=interval_s,
    )
