"""All counters and the lanes to them, by what they count; forgotten when idle."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite

from kvota.engine.arithmetic import counter_expired
from kvota.engine.counting import Counting
from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.lane import Counter, Lane
from kvota.engine.question import Answer
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

Countings = Mapping[QuotaType, Counting]
LimitOf = Callable[[QuotaType, Tags], float | None]


class Counters:
    """One lane per (quota type, tags, node), with the counter it leads to; made at first use.

    A counter idle for more than 3600 s (strictly) counts as new, but for one that keeps a debt. It
    finds that out itself at its next charge, so ``purge`` frees memory and moves no decision.
    Source: Kafka ``ClientQuotaManager`` sensors.

    Methods that change lanes return those that are another now; whoever waits for them has to be
    woken by the caller, when all is done.
    """

    __slots__ = ("_count", "_countings", "_factors", "_of_type")

    def __init__(self, countings: Countings) -> None:
        self._countings = dict(countings)
        # By type, text of the tags, node.
        self._of_type: dict[QuotaType, dict[str, dict[int, Lane]]] = {
            quota_type: {} for quota_type in QuotaType
        }
        self._count = 0
        # By type and, where it is meant for some counters only, node and text of the tags.
        self._factors: dict[tuple[QuotaType, int | None, str | None], float] = {}

    def __len__(self) -> int:
        """How many counters there are."""
        return self._count

    def of_type(self, quota_type: QuotaType) -> Iterator[Lane]:
        """The lanes to all counters of a type."""
        for lanes in self._of_type[quota_type].values():
            yield from lanes.values()

    def lane(self, quota_type: QuotaType, node_id: int, answer: Answer, now_ms: int) -> Lane:
        """The lane to the counter of these tags at this node."""
        lanes = self._of_type[quota_type].setdefault(answer.text, {})
        lane = lanes.get(node_id)
        if lane is None:
            counter = self._countings[quota_type].new_counter(answer.limit, now_ms)
            lane = lanes[node_id] = Lane(
                quota_type, node_id, answer.tags, counter, text=answer.text
            )
            self._count += 1
            lane.configure(
                counting=self._countings[quota_type],
                configured_limit=answer.limit,
                factor=self._factor(quota_type, node_id, answer.text),
            )
        return lane

    def set_limit(
        self, quota_type: QuotaType, limit: float | None, *, tags: str, node_id: int | None = None
    ) -> list[Lane]:
        """Replace the configured limit of the counters with these tags."""
        counting = self._countings[quota_type]
        return [
            lane
            for lane in self._meant(quota_type, node_id, tags)
            if lane.configure(counting=counting, configured_limit=limit, factor=lane.factor)
        ]

    def set_factor(
        self,
        quota_type: QuotaType,
        factor: float,
        *,
        node_id: int | None = None,
        tags: str | None = None,
    ) -> list[Lane]:
        """Multiply limits, of later counters too. Factors of a type, node and tags are multiplied.

        Raises:
            ValueError: a factor below 0, or none that is finite.
        """
        if not (isfinite(factor) and factor >= 0):
            msg = f"factor {factor} of {quota_type}: a finite number from 0 on is expected"
            raise ValueError(msg)
        if factor == 1.0:
            self._factors.pop((quota_type, node_id, tags), None)
        else:
            self._factors[quota_type, node_id, tags] = factor
        counting = self._countings[quota_type]
        return [
            lane
            for lane in self._meant(quota_type, node_id, tags)
            if lane.configure(
                counting=counting,
                configured_limit=lane.configured_limit,
                factor=self._factor(quota_type, lane.node_id, lane.tags),
            )
        ]

    def set_countings(self, countings: Countings) -> list[Lane]:
        """Count otherwise from now on; a counter of another window or algorithm starts anew when charged."""
        self._countings = dict(countings)
        return [
            lane
            for quota_type in QuotaType
            for lane in self.of_type(quota_type)
            if lane.configure(
                counting=self._countings[quota_type],
                configured_limit=lane.configured_limit,
                factor=lane.factor,
            )
        ]

    def ask_limits(self, quota_type: QuotaType, limit_of: LimitOf) -> list[Lane]:
        """Give every counter of a type its limit of now; contents stay (Kafka, KIP-257)."""
        counting = self._countings[quota_type]
        changed = []
        for lanes in self._of_type[quota_type].values():
            limit: float | None = None
            is_asked = False
            for lane in lanes.values():
                if not is_asked:  # all nodes have the same tags
                    limit, is_asked = limit_of(quota_type, lane.tag_values), True
                if lane.configure(counting=counting, configured_limit=limit, factor=lane.factor):
                    changed.append(lane)
        return changed

    def purge(self, now_ms: int, *, crowd: int) -> list[Lane]:
        """Forget counters without a record for over 3600 s; returns their lanes.

        Of more than ``crowd`` counters, also those that are as good as new: clients choose their ids
        themselves, and an hour of invented ones would fill the memory. No decision depends on it
        (if the clock does not go back behind the purge). Where somebody waits in line it is not idle.
        """
        forgotten = self._forget(
            lambda counter: (
                counter_expired(counter.last_ms, now_ms)
                and (not isinstance(counter, DebtBucket) or counter.is_as_new(now_ms))
            ),
            now_ms,
        )
        if self._count > crowd:
            forgotten += self._forget(lambda counter: counter.is_as_new(now_ms), now_ms)
        return forgotten

    def _forget(self, is_over: Callable[[Counter], bool], now_ms: int) -> list[Lane]:
        forgotten: list[Lane] = []
        for quota_type, of_type in self._of_type.items():
            over = [
                lane
                for lane in self.of_type(quota_type)
                if lane.counter is not None
                and not (lane.makes_wait and lane.line)
                and (lane.room is None or lane.room.is_idle(lane, now_ms))
                and is_over(lane.counter)
            ]
            for lane in over:
                lanes = of_type[lane.tags]
                del lanes[lane.node_id]
                if not lanes:
                    del of_type[lane.tags]
            forgotten += over
        self._count -= len(forgotten)
        return forgotten

    def _meant(self, quota_type: QuotaType, node_id: int | None, tags: str | None) -> list[Lane]:
        lanes = self.of_type(quota_type)
        if tags is not None:
            lanes = iter(self._of_type[quota_type].get(tags, {}).values())
        return [lane for lane in lanes if node_id is None or lane.node_id == node_id]

    def _factor(self, quota_type: QuotaType, node_id: int, tags: str) -> float:
        factor = 1.0
        if self._factors:
            for scope in ((None, None), (node_id, None), (None, tags), (node_id, tags)):
                factor *= self._factors.get((quota_type, *scope), 1.0)
        return factor
