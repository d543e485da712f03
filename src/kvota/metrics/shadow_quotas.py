"""Quotas that are not in force are tried on what passes: who would be held back by them, and for how long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import MUST_WAIT, Lane, QuotaEngine
from kvota.metrics.counter_key import CounterKey
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import REJECTED, ChargeMemo
from kvota.model.event import Outcome
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.model.strict_mutations import STRICT_FROM

PackedRows = np.ndarray[Any, np.dtype[np.void]]


@dataclass(slots=True)
class ShadowCounter:
    """What one counter of these quotas would have done.

    Attributes:
        key: of the counter, as these quotas have it.
        limit: per second.
        in_force: the limit that the last of its decisions was held against; None: none.
        charged: in the unit of the type.
        decisions: so many.
        held: of these would have been throttled or rejected.
        longest_ms: the longest wait of these.
    """

    key: CounterKey
    limit: float
    in_force: float | None = None
    charged: float = 0.0
    decisions: int = 0
    held: int = 0
    longest_ms: int = 0


class _Way(NamedTuple):
    memo: ChargeMemo
    lane: Lane
    counter: ShadowCounter | None


class ShadowQuotas:
    """Charges what was charged once more, on counters of its own; nobody is held back for it.

    What passes is taken as it comes: a client that was held back would come later, and less. What a quota in force has
    rejected is not counted, for it comes again. Called on one thread, which is not the one that decides.

    Args:
        quotas: all that would be in force; by Kafka's eight levels.
        windows: of the types, as in force.
        buckets: types that are counted by a token bucket.
        since_ms: when this began, Unix time.

    Attributes:
        unlisted: decisions on counters beyond ``COUNTERS_MAX``, which have no line of their own.
    """

    COUNTERS_MAX = 10_000

    def __init__(
        self,
        quotas: ConfiguredQuotas,
        windows: Mapping[QuotaType, QuotaWindow],
        buckets: Mapping[QuotaType, BucketSettings],
        *,
        since_ms: int,
    ) -> None:
        self.since_ms = since_ms
        self.unlisted = 0
        self._engine = QuotaEngine(DefaultQuotaCallback(quotas), windows, buckets)
        self._counters: dict[CounterKey, ShadowCounter] = {}

    def replace(
        self,
        quotas: ConfiguredQuotas,
        windows: Mapping[QuotaType, QuotaWindow],
        buckets: Mapping[QuotaType, BucketSettings],
    ) -> None:
        """Go on with these: quotas in force, or how they are counted, are others now."""
        self._engine.replace_countings(windows, buckets)
        self._engine.replace_quotas(quotas)

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None:
        """Take the next rows; ``memos`` are those they refer to."""
        ways: dict[int, _Way | None] = {}  # by the memo: most rows have one that was there before
        columns = [rows[name].tolist() for name in ("memo", "value", "ts_us", "outcome")]
        for index, value, ts_us, outcome in zip(*columns, strict=True):
            if outcome == REJECTED and memos[index].enforced:
                continue
            if index not in ways:
                ways[index] = self._way(memos[index], ts_us // 1000)
            way = ways[index]
            if way is not None:
                # Whole numbers take the engine's fast way.
                self._charge(way, int(value) if value.is_integer() else value, ts_us // 1000)

    def look(self, now_ms: int) -> None:
        """Some time has passed: counters that matter no more are forgotten."""
        self._engine.purge_some(now_ms)

    def worst(self) -> list[ShadowCounter]:
        """Those that would hold somebody back, most first; then the others, busiest first."""
        found = list(self._counters.values())
        found.sort(key=lambda one: (one.held, one.longest_ms, one.decisions), reverse=True)
        return found

    def _way(self, memo: ChargeMemo, now_ms: int) -> _Way | None:
        """Where its rows go; None: nowhere, these quotas have none for it."""
        if memo.quota_type is QuotaType.PRODUCER_ID:
            return None  # its rows are of new ids under the rate in force
        lane = self._engine.lane(memo.quota_type, memo.node_id, memo.user, memo.client_id, now_ms)
        if lane is None or lane.limit is None:
            return None
        counter = self._counter(lane)
        if counter is not None:
            counter.in_force, counter.limit = memo.limit, lane.limit
        return _Way(memo, lane, counter)

    def _charge(self, way: _Way, value: float, now_ms: int) -> None:
        memo, lane, counter = way
        if memo.quota_type is QuotaType.CONTROLLER_MUTATION:
            is_held, wait_ms = self._mutated(memo, value, now_ms)
        elif value < 0 and lane.algorithm is Algorithm.TOKEN_BUCKET:
            return  # only who was charged has a receipt to give back by
        else:
            wait_ms = lane.charge(value, now_ms)
            if wait_ms == MUST_WAIT:
                wait_ms = max(1, lane.reject(value, now_ms))
            is_held = wait_ms > 0
        if counter is None:
            self.unlisted += 1
            return
        counter.charged += value
        if value >= 0:
            counter.decisions += 1
            if is_held:
                counter.held += 1
                counter.longest_ms = max(counter.longest_ms, wait_ms)

    def _mutated(self, memo: ChargeMemo, value: float, now_ms: int) -> tuple[bool, int]:
        is_strict = memo.api_version >= STRICT_FROM.get(memo.api_key, 0)
        quota = self._engine.mutations(memo.user, memo.client_id, strict=is_strict, now_ms=now_ms)
        if value < 0:
            quota.give_back(-value, now_ms)
            return False, 0
        decision = quota.charge(value, now_ms)
        return decision.outcome is not Outcome.ADMITTED, decision.throttle_ms

    def _counter(self, lane: Lane) -> ShadowCounter | None:
        key = CounterKey(lane.quota_type, lane.tags, lane.node_id)
        found = self._counters.get(key)
        if found is None and len(self._counters) < self.COUNTERS_MAX:
            found = ShadowCounter(key, lane.limit or 0.0)
            self._counters[key] = found
        return found
