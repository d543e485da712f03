"""All counters and the lanes to them, by what they count; forgotten when idle."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite

from kvota.engine.answer_room import AnswerRoom
from kvota.engine.counting import Counting
from kvota.engine.kept_places import KEPT_MS
from kvota.engine.lane import Lane
from kvota.engine.packed import PackedCounters, PutAway, is_over
from kvota.engine.question import Answer
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.model.tags import EXCLUDED_TAG, Tags, tag_value

Countings = Mapping[QuotaType, Counting]
LimitOf = Callable[[QuotaType, Tags, int], float | None]

# Whose answer a counter's limit is from: the generation of a callback, 1 and more, or of the one that answers
# where the callback in force has not.
FALLBACK = 0

# More counters than this, or more text in their tags, are a crowd: those that are as good as new are not
# kept for an hour, and those idle for a while are put away. In full a counter takes 4 KB and its text.
CROWD = 5_000
CROWD_CHARS = 4 * 2**20
# Whoever is charged more often than this is not put away: it would be taken out again at once.
_IDLE_MS = 250
# Each new counter in a crowd has so many others looked at, so that it shrinks while it grows.
_LOOKS_PER_NEW = 2


class Counters:
    """One lane per (quota type, tags, node), with the counter it leads to; made at first use.

    A counter idle for more than 3600 s (strictly) counts as new, but for one that keeps a debt. It
    finds that out itself at its next charge, so ``purge`` frees memory and moves no decision.
    Source: Kafka ``ClientQuotaManager`` sensors.

    Clients choose their ids themselves, and a flood of invented ones would fill the memory. So in a
    crowd every new counter has two others looked at: what is as good as new is forgotten, what is idle
    is put away (``engine.packed``) and taken out when it is charged. No decision depends on either
    (if the clock does not go back behind it). Where somebody waits in line it is not idle.

    Methods that change lanes return those that are another now; whoever waits for them has to be
    woken by the caller, when all is done.
    """

    __slots__ = (
        "_askings",
        "_chars",
        "_countings",
        "_factors",
        "_generation",
        "_node_ids",
        "_of_type",
        "_packed",
        "_round",
    )

    def __init__(self, countings: Countings) -> None:
        self._countings = dict(countings)
        # By type, text of the tags, node.
        self._of_type: dict[QuotaType, dict[str, dict[int, Lane]]] = {
            quota_type: {} for quota_type in QuotaType
        }
        # The same lanes, in the order in which they are looked at.
        self._round: deque[Lane] = deque()
        self._chars = 0  # in the texts of their tags
        self._packed = {quota_type: PackedCounters() for quota_type in QuotaType}
        self._node_ids: set[int] = set()
        self._generation = 1
        self._askings = dict.fromkeys(QuotaType, 0)  # how often all limits have been asked for
        # By type and, where it is meant for some counters only, node and text of the tags.
        self._factors: dict[tuple[QuotaType, int | None, str | None], float] = {}

    def __len__(self) -> int:
        """How many counters there are, with those that are put away."""
        return len(self._round) + sum(map(len, self._packed.values()))

    @property
    def lost(self) -> int:
        """How many were forgotten although they still counted, because there were too many."""
        return sum(packed.lost for packed in self._packed.values())

    @property
    def is_crowd(self) -> bool:
        """True when there are so many that not all are kept for an hour."""
        return self._chars > CROWD_CHARS or len(self) > CROWD

    def has(self, lane: Lane) -> bool:
        """False for a lane that was forgotten."""
        lanes = self._of_type[lane.quota_type].get(lane.tags, {})
        return lanes.get(lane.node_id) is lane

    def of_type(self, quota_type: QuotaType) -> Iterator[Lane]:
        """The lanes to all counters of a type that are not put away."""
        for lanes in self._of_type[quota_type].values():
            yield from lanes.values()

    def find(self, quota_type: QuotaType, tags: str, node_id: int) -> Lane | None:
        """The lane to a counter, as an observer may see it; None: there is none, or it is put away."""
        return self._of_type[quota_type].get(tags, {}).get(node_id)

    def observed(self, quota_type: QuotaType, answer: Answer) -> list[Lane]:
        """The lanes to all counters of these tags; where one is put away, to a copy of it."""
        lanes = dict(self._of_type[quota_type].get(answer.text, {}))
        for node_id in self._node_ids - lanes.keys():
            counting = self._countings[quota_type]
            copy = self._packed[quota_type].copy_of(answer.text, node_id, counting)
            if copy is not None:
                lanes[node_id] = self._made_lane(quota_type, node_id, answer, copy)
        return [lanes[node_id] for node_id in sorted(lanes)]

    def imagined(self, quota_type: QuotaType, answer: Answer, now_ms: int) -> Lane:
        """The lane to a new counter of these tags, which is not kept."""
        counter = self._countings[quota_type].new_counter(answer.limit, now_ms)
        contents = PutAway(counter, answer.limit, self._askings[quota_type])
        return self._made_lane(quota_type, CLUSTER_NODE_ID, answer, contents)

    @property
    def all_node_ids(self) -> list[int]:
        """The nodes of all counters there ever were."""
        return sorted(self._node_ids)

    def counting(self, quota_type: QuotaType) -> Counting:
        """How this type is counted now."""
        return self._countings[quota_type]

    def is_put_away(self, quota_type: QuotaType, tags: str, node_id: int) -> bool:
        """True for a counter that is kept though it has no lane."""
        return self._packed[quota_type].has(tags, node_id)

    def all(self) -> Iterator[Lane]:
        """The lanes to all counters that are not put away."""
        for quota_type in QuotaType:
            yield from self.of_type(quota_type)

    def begin_generation(self, generation: int) -> None:
        """Another callback says the limits from now on; each counter that is led to gets its limit of it."""
        self._generation = generation
        for quota_type in self._askings:
            self._askings[quota_type] += 1  # what is put away has none of its limits

    def lane(
        self,
        quota_type: QuotaType,
        node_id: int,
        answer: Answer,
        now_ms: int,
        *,
        source: int | None,
    ) -> Lane:
        """The lane to the counter of these tags at this node.

        ``source`` says whose answer it is, a generation or ``FALLBACK``. It sets the limit of a counter whose
        limit is from an earlier callback; what this one has said wins over a fallback. None: the limit
        stays as it is.
        """
        lanes = self._of_type[quota_type].get(answer.text)
        lane = None if lanes is None else lanes.get(node_id)
        if lane is None:
            lane = self._new_lane(quota_type, node_id, answer, now_ms)
            lane.source = FALLBACK if source is None else source
            self._look_at_some(quota_type, now_ms)
        elif source not in {None, lane.source} and self._sets_limit(lane, source):
            counting = self._countings[quota_type]
            lane.configure(counting=counting, configured_limit=answer.limit, factor=lane.factor)
            lane.wake_waiters()
        return lane

    def _sets_limit(self, lane: Lane, source: int | None) -> bool:
        """Whether an answer of this source sets a lane's limit; then it is the lane's."""
        if source is None or (source == FALLBACK and lane.source == self._generation):
            return False
        lane.source = source
        return True

    def _new_lane(self, quota_type: QuotaType, node_id: int, answer: Answer, now_ms: int) -> Lane:
        counting = self._countings[quota_type]
        contents = self._packed[quota_type].take(answer.text, node_id, counting)
        if contents is None:
            contents = PutAway(counting.new_counter(answer.limit, now_ms), answer.limit, -1)
        lane = self._made_lane(quota_type, node_id, answer, contents)
        self._of_type[quota_type].setdefault(answer.text, {})[node_id] = lane
        self._round.append(lane)
        self._chars += len(answer.text)
        self._node_ids.add(node_id)
        return lane

    def _made_lane(
        self,
        quota_type: QuotaType,
        node_id: int,
        answer: Answer,
        contents: PutAway,
    ) -> Lane:
        counter, kept_limit, asking, owed = contents
        lane = Lane(quota_type, node_id, answer.tags, counter, text=answer.text)
        lane.configure(
            counting=self._countings[quota_type],
            # Of a counter that was put away it was perhaps set since all limits were asked for.
            configured_limit=kept_limit if asking == self._askings[quota_type] else answer.limit,
            factor=self._factor(quota_type, node_id, answer.text),
        )
        if owed.size_bytes:
            lane.room = AnswerRoom(owed)
        return lane

    def set_limit(
        self,
        quota_type: QuotaType,
        limit: float | None,
        *,
        tags: str,
        node_id: int | None = None,
        source: int | None = None,
    ) -> list[Lane]:
        """Replace the configured limit of the counters with these tags; ``source`` as ``lane`` has it.

        Without a source it is replaced whoever it is from.
        """
        counting = self._countings[quota_type]
        nodes = self._node_ids if node_id is None else (node_id,)
        for node in () if source == FALLBACK else nodes:
            self._packed[quota_type].set_limit(tags, node, limit, asking=self._askings[quota_type])
        return [
            lane
            for lane in self._meant(quota_type, node_id, tags)
            if (source is None or self._sets_limit(lane, source))
            and lane.configure(counting=counting, configured_limit=limit, factor=lane.factor)
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

    def ask_limits(
        self,
        quota_type: QuotaType,
        limit_of: LimitOf,
        *,
        by_node: bool,
        texts: Iterable[str] | None = None,
    ) -> list[Lane]:
        """Give every counter of a type, or those with these tags, their limit of now; contents stay (KIP-257).

        Not those whose tags another callback has made: nobody is led to them. ``by_node``: limits of the same
        tags can differ.
        """
        counting = self._countings[quota_type]
        self._askings[quota_type] += 1
        changed = []
        of_type = self._of_type[quota_type]
        every = of_type.values() if texts is None else [of_type.get(text, {}) for text in texts]
        for lanes in every:
            limit: float | None = None
            is_asked = False
            for lane in lanes.values():
                if lane.source != self._generation:
                    continue
                if by_node or not is_asked:  # all nodes have the same tags
                    limit, is_asked = limit_of(quota_type, lane.tag_values, lane.node_id), True
                if lane.configure(counting=counting, configured_limit=limit, factor=lane.factor):
                    changed.append(lane)
        return changed

    def purge(self, now_ms: int, *, at_most: int) -> tuple[int, list[Lane]]:
        """Forget counters without a record for over 3600 s, in a crowd also those that are as good as new.

        It looks at so many that are in use and so many that are put away, the next time at the next ones.

        Returns:
            How many were forgotten, and the lanes that lead nowhere now.
        """
        is_crowd = self.is_crowd
        outdated: list[Lane] = []
        forgotten = 0
        for _ in range(min(at_most, len(self._round))):
            lane, is_forgotten = self._look_at_next(now_ms, in_crowd=is_crowd)
            forgotten += is_forgotten
            if lane is not None:
                outdated.append(lane)
        for quota_type, packed in self._packed.items():
            counting = self._countings[quota_type]
            forgotten += packed.forget_some(now_ms, counting, at_most=at_most)
        return forgotten, outdated

    def _look_at_some(self, quota_type: QuotaType, now_ms: int) -> None:
        """There is one more: look at some others, where it is a crowd; nobody waits for those that go."""
        packed = self._packed[quota_type]
        if len(self._round) + len(packed) <= CROWD and self._chars <= CROWD_CHARS:
            return
        for _ in range(min(_LOOKS_PER_NEW, len(self._round) - 1)):
            lane, _ = self._look_at_next(now_ms, in_crowd=True)
            if lane is not None:
                lane.outdate()
        packed.forget_some(now_ms, self._countings[quota_type], at_most=_LOOKS_PER_NEW)

    def _look_at_next(self, now_ms: int, *, in_crowd: bool) -> tuple[Lane | None, bool]:
        """Look at the next counter in the round.

        Returns:
            Its lane, if that leads nowhere now, and whether the counter is forgotten, not put away.
        """
        lane = self._round.popleft()
        counter = lane.counter
        assert counter is not None, "what is looked at has a counter"
        is_waited_for = lane.makes_wait and lane.line
        room = lane.room
        if not (is_waited_for or (room is not None and room.line)):
            is_paid = room is None or not room.peek_unpaid_ms(lane, now_ms)
            is_forgotten = is_paid and is_over(counter, now_ms, in_crowd=in_crowd)
            if is_forgotten or self._puts_away(lane, counter.last_ms, now_ms):
                return self._without(lane), is_forgotten
        self._round.append(lane)
        return None, False

    def _puts_away(self, lane: Lane, last_ms: int, now_ms: int) -> bool:
        """Put an idle counter away where there are too many in full; false: it stays as it is."""
        if len(self._round) < CROWD and self._chars <= CROWD_CHARS:
            return False
        line, idle_ms = lane.line, now_ms - last_ms
        if idle_ms < _IDLE_MS or (line is not None and (line or (line.kept and idle_ms < KEPT_MS))):
            return False
        asking = self._askings[lane.quota_type]
        return self._packed[lane.quota_type].put(lane, now_ms, asking=asking)

    def _without(self, lane: Lane) -> Lane:
        """The lane leads nowhere any more: whoever keeps it has to ask for its client's lane."""
        of_type = self._of_type[lane.quota_type]
        lanes = of_type[lane.tags]
        del lanes[lane.node_id]
        if not lanes:
            del of_type[lane.tags]
        self._chars -= len(lane.tags)
        lane.is_forgotten = True
        return lane

    def _meant(self, quota_type: QuotaType, node_id: int | None, tags: str | None) -> list[Lane]:
        lanes = self.of_type(quota_type)
        if tags is not None:
            lanes = iter(self._of_type[quota_type].get(tags, {}).values())
        return [lane for lane in lanes if node_id is None or lane.node_id == node_id]

    def _factor(self, quota_type: QuotaType, node_id: int, tags: str) -> float:
        factors = self._factors
        # It is asked of thousands of counters at once: the search spares nearly all of them the reading.
        if not factors or (EXCLUDED_TAG in tags and tag_value(tags, EXCLUDED_TAG) == "true"):
            return 1.0
        factor = factors.get((quota_type, None, None), 1.0)
        if len(factors) > 1 or factor == 1.0:
            for scope in ((node_id, None), (None, tags), (node_id, tags)):
                factor *= factors.get((quota_type, *scope), 1.0)
        return factor
