"""How many partitions a topic of a mutation request costs: before it goes up, and as it turned out."""

from collections.abc import Container, Mapping, Set

from kvota.session.facts import Possible, TopicCounts
from kvota.session.shared import Shared
from kvota.session.whole_requests import LARGE_TOPICS
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kvota.wire.error_code import ErrorCode
from kvota.wire.mutations import MutationRequest, TopicAsk, TopicResult
from kvota.wire.questions import TopicFacts
from kvota.wire.steps import STEP_PARTS, Steps

# What Metadata says of a topic that may be created; 29: a client that may create it need not be
# allowed to describe it.
_CREATABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_NOT_THERE = Possible.exactly(0)


class MutationCounts:
    """What is known of the topics of one request: from Metadata, and from what has passed here lately.

    What has passed here is believed first: a broker's Metadata lags behind the controller. Where mutations of one topic
    overlap, each is charged by what it may cost at most. What was changed past this gateway in the same moment is
    charged afterwards.

    Attributes:
        facts: what Metadata has said of them; a broker's Metadata lags behind the controller.
        asked_ms: when it was asked; None: it was not.
    """

    _request: MutationRequest

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._known: TopicCounts = shared.facts.topics
        self._named: set[str | bytes] = set()
        self._named_twice: set[str | bytes] = set()
        # By the topic's place in the request: its key, and how many partitions it has afterwards.
        self._under_way: dict[int, tuple[str | bytes, int]] = {}
        self._settled: set[int] = set()
        self.facts: dict[str | bytes, TopicFacts] = {}
        self.asked_ms: int | None = None

    def read(self, request: MutationRequest) -> Steps[None]:
        """Look through the topics; due before anything is asked here."""
        self._request = request
        for number, topic in enumerate(request.topics):
            key = key_of(topic)
            (self._named_twice if key in self._named else self._named).add(key)
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
        self._named.clear()

    def is_named_twice(self, topic: TopicAsk) -> bool:
        """True where the request says more than one thing of the topic: Kafka refuses them all."""
        return key_of(topic) in self._named_twice

    def possible(self, topic: TopicAsk, now_ms: int) -> Possible:
        """How many partitions the topic may have; none where it is not for this user to see."""
        facts = self.facts.get(key_of(topic))
        if facts is not None and facts.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return _NOT_THERE
        known = self._fresh(self._key(topic), now_ms)
        return known or Possible.exactly(self._told(topic) or 0)

    def _fresh(self, key: str | bytes, now_ms: int) -> Possible | None:
        return self._known.fresh(key, now_ms, self._asked_at_ms(now_ms))

    def _asked_at_ms(self, now_ms: int) -> int:
        return now_ms if self.asked_ms is None else self.asked_ms

    def _key(self, topic: TopicAsk, told_name: str | None = None) -> str | bytes:
        """By what the topic is remembered: an id that nobody knows here may be that of a name, which answers tell."""
        if topic.name is not None:
            return topic.name
        key = topic.topic_id or b""
        if self._known.has(key):
            return key
        facts = self.facts.get(key)
        known_name = None if facts is None else facts.name
        return known_name or told_name or key

    def _told(self, topic: TopicAsk) -> int | None:
        """How many partitions Metadata says the topic has."""
        facts = self.facts.get(key_of(topic))
        return None if facts is None or facts.error_code != ErrorCode.NONE else facts.partitions

    # ------------------------------------------------------------------ before it goes up

    def before(self, topic: TopicAsk, now_ms: int) -> int | None:
        """What the topic may cost, None when it would fail anyway (it then goes up uncharged)."""
        if self.is_named_twice(topic):
            return None
        if self._request.key == CREATE_TOPICS:
            return self.new_topic(topic, now_ms) if self._is_creatable(topic, now_ms) else None
        there = self.possible(topic, now_ms)
        if not there.most or self._request.key == DELETE_TOPICS:
            return there.most or None
        return topic.partitions - there.least if topic.partitions > there.least else None

    def _is_creatable(self, topic: TopicAsk, now_ms: int) -> bool:
        known = self._fresh(self._key(topic), now_ms)
        if known is not None:
            return known.may_be_gone
        facts = self.facts.get(key_of(topic))
        return facts is None or facts.error_code in _CREATABLE

    def goes_up(self, index: int, now_ms: int) -> None:
        """A topic that may cost something is part of what goes up now."""
        topic = self._request.topics[index]
        key, after = self._under_way[index] = self._key(topic), self._after(topic, now_ms)
        self._known.goes_up(key, self._told(topic), after, now_ms, self._asked_at_ms(now_ms))

    def _after(self, topic: TopicAsk, now_ms: int) -> int:
        """How many partitions the topic has when this is carried out."""
        if self._request.key == CREATE_TOPICS:
            return self.new_topic(topic, now_ms) or 0
        return topic.partitions if self._request.key == CREATE_PARTITIONS else 0

    def new_topic(self, topic: TopicAsk, now_ms: int) -> int | None:
        """How many partitions a topic would be created with; None: Kafka refuses such a count."""
        if topic.assignments:
            # Kafka refuses a count beside a list of assignments.
            return topic.assignments if topic.partitions in {-1, topic.assignments} else None
        if topic.partitions == -1:
            return self._default(now_ms)
        return topic.partitions if topic.partitions > 0 else None

    # ------------------------------------------------------------------ when it is answered

    def done(self, index: int, result: TopicResult, charged: int | None, now_ms: int) -> int | None:
        """What a topic cost that the broker has created, grown or deleted; it is remembered.

        Args:
            index: of the topic in the request.
            result: the broker's answer for it, without an error.
            charged: what it was charged before; None: nothing, for it was expected to fail.
            now_ms: when.

        Returns:
            None: as it was charged.
        """
        topic = self._request.topics[index]
        self._settled.add(index)
        if self._request.key == CREATE_TOPICS:
            told = result.partitions if result.partitions > 0 else charged
            made = told or self.new_topic(topic, now_ms) or 1
            self._has_become(index, made, now_ms)
            if topic.name is not None and result.topic_id is not None:
                self._known.is_named(topic.name, result.topic_id)
            return made
        after = topic.partitions if self._request.key == CREATE_PARTITIONS else 0
        last = self._known.last(self._key(topic, result.name))
        was = self._has_become(index, after, now_ms, result.name)
        least, most = (was.least, was.most) if was is not None else (0, 0)
        if not most and charged is None:
            # Who deletes a topic need not be allowed to ask about it.
            known = self._told(topic) or last or self._seen(topic, result)
            least = most = known or max(1, self._default(now_ms))
        if after:
            return max(1, after - least) if most else None
        topic_id = topic.topic_id or result.topic_id
        if topic_id is not None:
            self._known.forget_id(topic_id)
        return most or None

    def _has_become(
        self, index: int, partitions: int, now_ms: int, told_name: str | None = None
    ) -> Possible | None:
        """It has so many partitions now; returns what it may have been."""
        if index in self._under_way:
            return self._known.ended(*self._under_way.pop(index), partitions, now_ms)
        key = self._key(self._request.topics[index], told_name)
        was = self._fresh(key, now_ms)
        self._known.happened(key, partitions, now_ms)
        return was

    def refused(self, index: int, now_ms: int) -> None:
        """The broker has not carried it out."""
        self._settled.add(index)
        if index in self._under_way:
            self._known.refused(*self._under_way.pop(index), now_ms)

    # ------------------------------------------------------------------ when it is not

    def withdraw(self, now_ms: int) -> None:
        """Nothing has gone up, and nothing will."""
        for went_up in self._under_way.values():
            self._known.refused(*went_up, now_ms)
        self._under_way.clear()

    def leave(self, out: Container[int], charged: Mapping[int, int], now_ms: int) -> int:
        """No answer comes, or none that says what has become of some topics: they may be carried out all the same.

        Also those that were expected to fail: another mutation may be carried out before them that was sent behind them.
        Only of a deletion of what nobody has made here until now nothing can be said.

        Args:
            out: the places of topics that have not gone up, or have their rows.
            charged: what topics were charged before, by their places.
            now_ms: when.

        Returns:
            What they may cost beyond what they were charged.
        """
        if self._request.validate_only:
            return 0
        topics, fail = self._request.topics, self._named_twice
        if self._request.key == DELETE_TOPICS:
            fail = fail | self._hidden()
        left = [
            index
            for index, topic in enumerate(topics)
            if not (index in self._settled or index in out or (fail and key_of(topic) in fail))
        ]
        self._settled.update(range(len(topics)))
        if self._request.key == DELETE_TOPICS:
            owed = self._leave_deletions(left, charged, now_ms)
        elif len(topics) > LARGE_TOPICS:
            owed = self._leave_many(left, charged, now_ms)
        else:
            owed = sum([self._leave_one(index, charged.get(index, 0), now_ms) for index in left])
        self._left(now_ms)
        return owed

    def _leave_one(self, index: int, charged: int, now_ms: int) -> int:
        """A creation or a growth."""
        topic = self._request.topics[index]
        if index in self._under_way:
            fresh = self._fresh(self._under_way[index][0], now_ms)
            return 0 if fresh is None else max(0, self._at_most(topic, fresh, now_ms) - charged)
        cost = self._at_most(topic, self.possible(topic, now_ms), now_ms)
        if cost:
            self.goes_up(index, now_ms)
        return cost

    def _leave_many(self, left: list[int], charged: Mapping[int, int], now_ms: int) -> int:
        """The same in one look at each: so many topics must not hold others up."""
        asked = paid = 0
        for index in left:
            asked += max(0, self._after(self._request.topics[index], now_ms))
            paid += charged.get(index, 0)
        return max(0, min(asked, self._shared.settings.mutation_partitions_max) - paid)

    def _leave_deletions(self, left: list[int], charged: Mapping[int, int], now_ms: int) -> int:
        """Deletions, however many: in one look at each, too."""
        topics, under_way = self._request.topics, self._under_way
        keys = [
            under_way[index][0]
            if index in under_way
            else topics[index].name or self._key(topics[index])
            for index in left
        ]
        paid = [charged[index] if index in charged else 0 for index in left]  # noqa: SIM401  (no call)
        return self._known.may_be_deleted(keys, paid, now_ms)

    def _hidden(self) -> Set[str | bytes]:
        """Topics that are not for this user to see: a broker deletes none of them for it."""
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return {key for key, facts in self.facts.items() if facts.error_code == refused}

    def _left(self, now_ms: int) -> None:
        self._known.left([key for key, _ in self._under_way.values()], now_ms)
        self._under_way.clear()

    def _at_most(self, topic: TopicAsk, there: Possible, now_ms: int) -> int:
        """What a creation or a growth may cost, carried out soon."""
        after = self._after(topic, now_ms)
        return after if self._request.key == CREATE_TOPICS else max(0, after - there.least)

    def _seen(self, topic: TopicAsk, result: TopicResult) -> int | None:
        """How many partitions the gateway has seen the topic have."""
        name = topic.name or result.name
        return None if name is None else self._shared.facts.seen_partitions(name)

    def _default(self, now_ms: int) -> int:
        known = self._shared.facts.default_partitions(now_ms)
        return known if known is not None else self._shared.settings.default_partitions


def key_of(topic: TopicAsk) -> str | bytes:
    """What identifies a topic within one request: its name, else its id."""
    return topic.name if topic.name is not None else topic.topic_id or b""
