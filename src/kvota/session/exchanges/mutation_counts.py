"""How many partitions a topic of a mutation request costs: before it goes up, and as it turned out."""

from kvota.session.facts import TopicCounts
from kvota.session.shared import Shared
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


class MutationCounts:
    """What is known of the topics of one request: from Metadata, and from what has passed here lately.

    What has passed here is believed first: a broker's Metadata lags behind the controller. What was changed past this
    gateway in the same moment is charged afterwards.

    Attributes:
        facts: what Metadata has said of them; a broker's Metadata lags behind the controller.
    """

    def __init__(self, shared: Shared, request: MutationRequest) -> None:
        self._shared = shared
        self._request = request
        self._named: set[str | bytes] = set()
        self._named_twice: set[str | bytes] = set()
        self.facts: dict[str | bytes, TopicFacts] = {}

    def read(self) -> Steps[None]:
        """Look through the topics; due before anything is asked here."""
        for number, topic in enumerate(self._request.topics):
            key = key_of(topic)
            (self._named_twice if key in self._named else self._named).add(key)
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
        self._named.clear()

    @property
    def _known(self) -> TopicCounts:
        return self._shared.facts.topics

    def is_named_twice(self, topic: TopicAsk) -> bool:
        """True where the request says more than one thing of the topic: Kafka refuses them all."""
        return key_of(topic) in self._named_twice

    def existing(self, topic: TopicAsk, now_ms: int) -> int | None:
        """How many partitions the topic has; None: it is not there, or not for this user to see."""
        key = key_of(topic)
        facts = self.facts.get(key)
        if facts is not None and facts.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None
        if self._known.is_gone(key, now_ms):
            return None
        return self._known.fresh(key, now_ms) or self._told(key)

    def _told(self, key: str | bytes) -> int | None:
        """How many partitions Metadata says the topic has."""
        facts = self.facts.get(key)
        return None if facts is None or facts.error_code != ErrorCode.NONE else facts.partitions

    def before(self, topic: TopicAsk, now_ms: int) -> int | None:
        """What the topic will cost, None when it would fail anyway (it then goes up uncharged)."""
        if self.is_named_twice(topic):
            return None
        if self._request.key == CREATE_TOPICS:
            return self.new_topic(topic, now_ms) if self._is_creatable(topic, now_ms) else None
        existing = self.existing(topic, now_ms)
        if existing is None or self._request.key == DELETE_TOPICS:
            return existing
        return topic.partitions - existing if topic.partitions > existing else None

    def _is_creatable(self, topic: TopicAsk, now_ms: int) -> bool:
        key = key_of(topic)
        if self._known.fresh(key, now_ms) is not None:
            return False
        facts = self.facts.get(key)
        return self._known.is_gone(key, now_ms) or facts is None or facts.error_code in _CREATABLE

    def new_topic(self, topic: TopicAsk, now_ms: int) -> int | None:
        """How many partitions a topic would be created with; None: Kafka refuses such a count."""
        if topic.assignments:
            # Kafka refuses a count beside a list of assignments.
            return topic.assignments if topic.partitions in {-1, topic.assignments} else None
        if topic.partitions == -1:
            return self._default(now_ms)
        return topic.partitions if topic.partitions > 0 else None

    def done(
        self, topic: TopicAsk, result: TopicResult, charged: int | None, now_ms: int
    ) -> int | None:
        """What a topic cost that the broker has created, grown or deleted; it is remembered.

        Args:
            topic: as it was asked for.
            result: the broker's answer for it, without an error.
            charged: what it was charged before; None: nothing, for it was expected to fail.
            now_ms: when.

        Returns:
            None: as it was charged.
        """
        if self._request.key == CREATE_TOPICS:
            told = result.partitions if result.partitions > 0 else charged
            made = told or self.new_topic(topic, now_ms) or 1
            self._known.changed(topic.name, result.topic_id, made, now_ms)
            return made
        key = key_of(topic)
        there = self._known.fresh(key, now_ms)
        if there is None and charged is None:
            # Who deletes a topic need not be allowed to ask about it.
            there = self._told(key) or self._known.last(key) or self._seen(topic, result)
            there = there or max(1, self._default(now_ms))
        if self._request.key == CREATE_PARTITIONS:
            self._known.changed(topic.name, None, topic.partitions, now_ms)
            return None if there is None else max(1, topic.partitions - there)
        self._known.deleted(topic.name or result.name, topic.topic_id or result.topic_id, now_ms)
        return there

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
