"""What the gateway has learnt about the cluster by asking on a caller's connection, and from answers."""

from collections import OrderedDict
from dataclasses import dataclass

from kvota.model.cluster_view import ClusterView

# Kafka's longest topic name. What is longer names no topic.
NAME_CHARS_MAX = 249


@dataclass(slots=True)
class _Count:
    """How many partitions a topic had (0: it was deleted), and when an answer to a mutation has said so."""

    partitions: int
    changed_ms: int


class TopicCounts:
    """Partitions of topics, by name and by id: those that changed last through this gateway.

    A broker's Metadata lags behind the controller: a topic made through one node may not be known, or
    be known as it was before, when the next node is asked. 20,000 keys (each is a name of at most 249
    characters, or an id) take about 10 MB; the oldest go first.
    """

    KEYS_MAX = 20_000
    # Metadata lags by less, or the broker is cut off; what somebody changes past the gateway is
    # believed from then on.
    FRESH_MS = 10_000

    def __init__(self) -> None:
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._counts: OrderedDict[str | bytes, _Count] = OrderedDict()

    def changed(
        self, name: str | None, topic_id: bytes | None, partitions: int, now_ms: int
    ) -> None:
        """A topic has been made, or has grown: it has so many partitions."""
        known = self._counts.get(name) if name is not None and topic_id is None else None
        count = known or _Count(partitions, now_ms)
        # One that has grown is told by its name alone; its id knows, too.
        count.partitions, count.changed_ms = partitions, now_ms
        for key in (name, topic_id):
            if key is None or len(key) > NAME_CHARS_MAX:
                continue
            self._counts.pop(key, None)
            self._counts[key] = count
            if len(self._counts) > self.KEYS_MAX:
                self._counts.popitem(last=False)

    def deleted(self, name: str | None, topic_id: bytes | None, now_ms: int) -> None:
        """A topic is gone. Its name may come again, its id does not."""
        if topic_id is not None:
            self._counts.pop(topic_id, None)
        if name is not None:
            self._counts.pop(name, None)
            self.changed(name, None, 0, now_ms)

    def last(self, key: str | bytes) -> int | None:
        """How many partitions the topic with this name or id had last; None: it is gone, or nobody remembers."""
        count = self._counts.get(key)
        return None if count is None else count.partitions or None

    def fresh(self, key: str | bytes, now_ms: int) -> int | None:
        """The same where it has changed so lately that a broker's Metadata may not say so."""
        return self.last(key) if self._is_fresh(key, now_ms) else None

    def is_gone(self, key: str | bytes, now_ms: int) -> bool:
        """True where it was deleted so lately that a broker's Metadata may not say so."""
        return self._is_fresh(key, now_ms) and self.last(key) is None

    def _is_fresh(self, key: str | bytes, now_ms: int) -> bool:
        count = self._counts.get(key)
        return count is not None and abs(now_ms - count.changed_ms) < self.FRESH_MS


class ClusterFacts:
    """Shared by all connections; a fact is asked for again after ``FRESH_MS``.

    Attributes:
        topics: what mutations that have passed have made of topics.
        cluster: as the gateway has seen it itself last; empty where it does not look.
    """

    # num.partitions only changes with a broker's restart.
    FRESH_MS = 600_000

    def __init__(self) -> None:
        self.topics = TopicCounts()
        self.cluster = ClusterView()
        self._default_partitions: int | None = None
        self._asked_ms: int | None = None

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

    def _fresh(self, now_ms: int) -> bool:
        return self._asked_ms is not None and abs(now_ms - self._asked_ms) < self.FRESH_MS
