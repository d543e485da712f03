"""What the gateway has learnt about the cluster by asking on a caller's connection, and from answers."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from kvota.model.cluster_view import ClusterView

# Kafka's longest topic name. What is longer names no topic.
NAME_CHARS_MAX = 249


class Possible(NamedTuple):
    """How many partitions a topic may have while nobody can know better.

    Attributes:
        least: if it is there.
        most: the same; 0: it is not.
        may_be_gone: true where it need not be there.
    """

    least: int
    most: int
    may_be_gone: bool

    @classmethod
    def exactly(cls, partitions: int) -> "Possible":
        """So many; 0: the topic is gone."""
        if 0 <= partitions < len(_EXACTLY):
            return _EXACTLY[partitions]
        return cls(partitions, partitions, partitions == 0)

    def or_else(self, partitions: int) -> "Possible":
        """As it is, or so many; 0: it may be gone."""
        if partitions == 0:
            return self if self.may_be_gone else Possible(self.least, self.most, may_be_gone=True)
        least = min(self.least or partitions, partitions)
        return Possible(least, max(self.most, partitions), self.may_be_gone)


# What most topics have is one object for all of them: tens of thousands more are work for the garbage collector.
_EXACTLY = tuple(Possible(count, count, count == 0) for count in range(65))


@dataclass(slots=True)
class _Topic:
    """What is known of one topic, and since when.

    Attributes:
        settled: what it may be without ``afters``.
        under_way: so many mutations of it have gone up and are not answered.
        afters: how many partitions it has when they are carried out, each, and those whose answer nobody awaits; 0: it is
            gone. Beyond ``AFTERS_MAX`` of them the further ones are in ``settled``.
        overlap: they, or one whose answer nobody awaits, do: in which order they are carried out nobody knows.
        left_ms: when somebody last went away before the answer; None: nobody has.
    """

    # Each is looked at for each mutation: thousands at a time must not hold others up.
    AFTERS_MAX: ClassVar[int] = 8

    settled: Possible
    changed_ms: int
    under_way: int = 0
    afters: list[int] = field(default_factory=list)
    overlap: bool = False
    left_ms: int | None = None

    @property
    def possible(self) -> Possible:
        """What it may be now."""
        possible = self.settled
        for after in self.afters:
            possible = possible.or_else(after)
        return possible

    def begins(self, after: int) -> None:
        """One more is under way."""
        self.under_way += 1
        if len(self.afters) < self.AFTERS_MAX:
            self.afters.append(after)
        else:
            self.settled = self.settled.or_else(after)

    def ends(self, after: int) -> None:
        """One less is."""
        self.under_way = max(0, self.under_way - 1)
        if after in self.afters:
            self.afters.remove(after)

    def is_certain(self, partitions: int) -> None:
        """It has so many, whatever was sent before."""
        self.settled = Possible.exactly(partitions)
        self.afters.clear()


class TopicCounts:
    """Partitions of topics, by name and by id: those that changed last through this gateway.

    A broker's Metadata lags behind the controller: a topic made through one node may not be known, or
    be known as it was before, when the next node is asked. And of two mutations of one topic that are under way at the
    same time, or whose answer nobody awaits, nobody can say which came first: then all counts are possible that it may
    have had. 20,000 keys (each is a name of at most 249 characters, or an id) take about 15 MB; the oldest go first.
    """

    KEYS_MAX = 20_000
    # Metadata lags by less, or the broker is cut off; what somebody changes past the gateway is
    # believed from then on.
    FRESH_MS = 10_000

    def __init__(self) -> None:
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._topics: OrderedDict[str | bytes, _Topic] = OrderedDict()

    # ------------------------------------------------------------------ what happens

    def goes_up(
        self, key: str | bytes, told: int | None, after: int, now_ms: int, asked_ms: int
    ) -> None:
        """A mutation of a topic goes up: ``ended`` or ``refused`` is due, with the same ``after``, or ``left``.

        Args:
            key: its name or its id.
            told: how many partitions Metadata says it has.
            after: how many it has when this is carried out; 0: it is gone.
            now_ms: when.
            asked_ms: when Metadata was asked.
        """
        topic = self._topics.get(key)
        if topic is None:
            topic = _Topic(Possible.exactly(told or 0), now_ms)
            self._keep(key, topic)
        elif not self._is_fresh(topic, now_ms, asked_ms):
            topic.is_certain(told or 0)
        topic.overlap = topic.under_way > 0 or self._was_left(topic, now_ms)
        topic.begins(after)
        topic.changed_ms = now_ms

    def ended(self, key: str | bytes, after: int, became: int, now_ms: int) -> Possible | None:
        """What went up was carried out, and the topic has become ``became`` by it.

        Returns:
            What it may have been before; None: nobody remembers.
        """
        topic = self._topics.get(key)
        if topic is None:
            self._keep(key, _Topic(Possible.exactly(became), now_ms))
            return None
        topic.ends(after)
        was = topic.possible
        if topic.overlap:
            topic.settled = topic.settled.or_else(became)
        else:
            topic.is_certain(became)
        topic.changed_ms = now_ms
        return was

    def refused(self, key: str | bytes, after: int, now_ms: int) -> None:
        """It was not: the topic has not become what it would have been."""
        topic = self._topics.get(key)
        if topic is not None:
            topic.ends(after)
            topic.changed_ms = now_ms

    def left(self, keys: Iterable[str | bytes], now_ms: int) -> None:
        """Nobody awaits the answers of what went up: it is carried out, or is not, some time soon."""
        for topic in map(self._topics.get, keys):
            if topic is not None:
                topic.under_way -= topic.under_way > 0
                topic.overlap = True
                topic.left_ms = topic.changed_ms = now_ms

    def may_be_deleted(self, keys: Iterable[str | bytes], paid: Iterable[int], now_ms: int) -> int:
        """Nobody awaits the answers of deletions, whatever was expected of them: they are carried out, or are not.

        One look at each, and no call: tens of thousands at a time must not hold others up.

        Args:
            keys: the names or ids.
            paid: how many partitions each was charged for.
            now_ms: when.

        Returns:
            How many they may have at most beyond that, as far as they are remembered.
        """
        total = 0
        for topic, charged in zip(map(self._topics.get, keys), paid, strict=True):
            if topic is None:
                continue
            most = topic.settled.most
            for after in topic.afters:
                if after > most:  # noqa: PLR1730  (no call)
                    most = after
            if not most:
                continue
            if most > charged:
                total += most - charged
            if not topic.settled.may_be_gone and 0 not in topic.afters:
                topic.settled = topic.settled.or_else(0)
            topic.overlap = True
            topic.left_ms = topic.changed_ms = now_ms
        return total

    def happened(self, key: str | bytes, after: int, now_ms: int) -> None:
        """One was carried out that had been expected to fail."""
        topic = self._topics.get(key)
        if topic is None:
            self._keep(key, _Topic(Possible.exactly(after), now_ms))
            return
        is_alone = not topic.under_way and not self._was_left(topic, now_ms)
        if is_alone:
            topic.is_certain(after)
        else:
            topic.settled = topic.settled.or_else(after)
        topic.overlap = not is_alone
        topic.changed_ms = now_ms

    def is_named(self, name: str, topic_id: bytes) -> None:
        """The topic with this id is the one with this name."""
        topic = self._topics.get(name)
        if topic is not None:
            self._keep(topic_id, topic)

    def forget_id(self, topic_id: bytes) -> None:
        """The topic is gone: its name may come again, its id does not."""
        self._topics.pop(topic_id, None)

    # ------------------------------------------------------------------ what is known

    def fresh(self, key: str | bytes, now_ms: int, asked_ms: int) -> Possible | None:
        """What the topic may be, where it has changed so lately that a broker's Metadata may not say so.

        Its answer may have been long on its way: what counts is when it was asked.
        """
        topic = self._topics.get(key)
        if topic is None or not self._is_fresh(topic, now_ms, asked_ms):
            return None
        return topic.possible

    def last(self, key: str | bytes) -> int | None:
        """How many partitions the topic may have had last; None: it is gone, or nobody remembers."""
        topic = self._topics.get(key)
        return None if topic is None else topic.possible.most or None

    def has(self, key: str | bytes) -> bool:
        """True where anything is remembered of a topic with this name or id."""
        return key in self._topics

    def _is_fresh(self, topic: _Topic, now_ms: int, asked_ms: int) -> bool:
        fresh_ms = self.FRESH_MS + max(0, now_ms - asked_ms)
        return topic.under_way > 0 or abs(now_ms - topic.changed_ms) < fresh_ms

    def _was_left(self, topic: _Topic, now_ms: int) -> bool:
        return topic.left_ms is not None and abs(now_ms - topic.left_ms) < self.FRESH_MS

    def _keep(self, key: str | bytes, topic: _Topic) -> None:
        if len(key) > NAME_CHARS_MAX:
            return
        self._topics.pop(key, None)
        self._topics[key] = topic
        if len(self._topics) > self.KEYS_MAX:
            self._topics.popitem(last=False)


class ClusterFacts:
    """Shared by all connections; a fact is asked for again after ``FRESH_MS``.

    Attributes:
        topics: what mutations that have passed have made of topics.
        cluster: as the gateway has seen it itself last; empty where it does not look.
        cluster_is_old: it looks, and nobody has answered for a while, or ever.
    """

    # num.partitions, and auto.create.topics.enable, only change with a broker's restart.
    FRESH_MS = 600_000

    def __init__(self) -> None:
        self.topics = TopicCounts()
        self.cluster = ClusterView()
        self.cluster_is_old = False
        self._default_partitions: int | None = None
        self._asked_ms: int | None = None
        # By broker: whether it creates the topics that it is asked for, and when it has told.
        self._creates_topics: dict[int, tuple[bool, int]] = {}

    def seen_partitions(self, name: str | bytes) -> int | None:
        """How many partitions the gateway has seen a topic of this name have; None: none."""
        topic = self.cluster.topics.get(name) if isinstance(name, str) else None
        return None if topic is None else len(topic.leaders)

    def default_partitions(self, now_ms: int) -> int | None:
        """The cluster's num.partitions, None where it is not known."""
        return self._default_partitions if self._fresh(now_ms) else None

    def should_ask(self, now_ms: int) -> bool:
        """True when nobody has been told lately."""
        return not self._fresh(now_ms)

    def learn_default_partitions(self, partitions: int | None, now_ms: int) -> None:
        """Keep what a broker has told; None: it would not tell this caller, perhaps another one."""
        if partitions is not None:
            self._default_partitions = partitions
            self._asked_ms = now_ms

    def creates_topics(self, node_id: int, now_ms: int) -> bool | None:
        """A broker's auto.create.topics.enable, None where it is not known."""
        creates, told_ms = self._creates_topics.get(node_id, (None, 0))
        return creates if abs(now_ms - told_ms) < self.FRESH_MS else None

    def learn_creates_topics(self, node_id: int, creates: bool, now_ms: int) -> None:  # noqa: FBT001
        """Keep what a broker has told."""
        self._creates_topics[node_id] = creates, now_ms

    def _fresh(self, now_ms: int) -> bool:
        return self._asked_ms is not None and abs(now_ms - self._asked_ms) < self.FRESH_MS
