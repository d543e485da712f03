"""Reads the whole of a cluster out of one Metadata answer after the other, a little at a time.

A cluster of 200,000 partitions says 8 MB each time it is asked, and hardly anything of it is new. So the bytes
of each topic are kept: a topic whose bytes are as they were is not read again.
"""

from struct import Struct
from types import MappingProxyType

from kvota.model.cluster_view import NO_LEADER, ClusterView, TopicView
from kvota.wire.apis import METADATA
from kvota.wire.cluster_brokers import brokers_in_steps
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import is_flexible
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import STEP_PARTS, Steps

# Which versions are read. The lowest creates no topic that is only asked about; 4.x brokers have all of them.
VERSIONS = (4, 12)
_IDS_FROM, _EPOCH_FROM, _OFFLINE_FROM, _OPERATIONS_FROM = 10, 7, 5, 8
# So many partitions are read, or topics compared with what they were, in one step of a millisecond or so.
_WORK_PER_STEP = 2 * STEP_PARTS

# Error, index, leader, and the leader's epoch.
_OLD_PARTITION, _PARTITION = Struct(">hii"), Struct(">hiii")


class ClusterReader:
    """Makes a ``ClusterView`` of each answer to a question about all topics.

    The view is the same object as before where nothing has changed, and so is each topic in it.
    """

    def __init__(self) -> None:
        self._view = ClusterView()
        self._version = -1
        self._body = b""
        # All bytes of each topic by those of its name, and what they mean (not of a topic with an error). Apart,
        # so that the garbage collector has little to walk over.
        self._bytes: dict[bytes, bytes] = {}
        self._topics: dict[bytes, TopicView] = {}
        self._work = 0

    def read_in_steps(self, frame: bytes, version: int) -> Steps[ClusterView]:
        """Read an answer, without the size before it.

        Raises:
            ProtocolError: it is no such answer, or names more than ``BROKERS_MAX`` brokers; what was read before
                stays.
        """
        flexible = is_flexible(METADATA, version)
        what = f"Metadata v{version} answer"
        scanner = Scanner(frame, 4, len(frame), flexible=flexible, what=what)
        scanner.skip_tags()
        scanner.skip(4)  # throttle
        body_at = scanner.at
        is_same = len(frame) - body_at == len(self._body) and frame.startswith(self._body, body_at)
        if is_same and version == self._version:
            return self._view
        head = yield from brokers_in_steps(scanner, version)
        known = self._bytes if version == self._version else {}
        read, topics = yield from self._read_topics(scanner, frame, version, known)
        by_name = {topic.name: topic for topic in topics.values()}
        yield
        self._bytes, self._topics, self._version = read, topics, version
        self._body = frame[body_at:]
        yield
        view = ClusterView(
            cluster_id=head.cluster_id,
            brokers=MappingProxyType({broker.node_id: broker for broker in head.brokers}),
            topics=MappingProxyType(by_name),
        )
        if view != self._view:
            self._view = view
        return self._view

    def _read_topics(
        self, scanner: Scanner, frame: bytes, version: int, known: dict[bytes, bytes]
    ) -> Steps[tuple[dict[bytes, bytes], dict[bytes, TopicView]]]:
        """Read all topics but those that are as they were."""
        read: dict[bytes, bytes] = {}
        topics: dict[bytes, TopicView] = {}
        for _ in range(scanner.count(8)):
            start = scanner.at
            scanner.skip(2)
            scanner.skip_text()
            key = frame[start + 2 : scanner.at]
            before = known.get(key)
            if before is not None and frame.startswith(before, start):
                scanner.at = start + len(before)
                topic = self._topics.get(key)
            else:
                scanner.at = start
                topic = yield from self._read_topic(scanner, version)
                before = frame[start : scanner.at]
            read[key] = before
            if topic is not None:
                topics[key] = topic
            if self._is_enough(1):
                yield
        return read, topics

    def _read_topic(self, scanner: Scanner, version: int) -> Steps[TopicView | None]:
        error_code = scanner.int16()
        name = scanner.name()
        id_bytes = scanner.take(TOPIC_ID_BYTES) if version >= _IDS_FROM else b""
        is_internal = scanner.boolean()
        count = scanner.count(13)
        leaders: list[int] = []
        others: dict[int, int] = {}
        while count > 0:
            now = min(count, _WORK_PER_STEP)
            _read_partitions(scanner, version, now, leaders, others)
            count -= now
            if self._is_enough(now):
                yield
        if version >= _OPERATIONS_FROM:
            scanner.skip(4)
        scanner.skip_tags()
        if error_code != ErrorCode.NONE:
            return None
        if others:
            others |= dict(enumerate(leaders))
            leaders = [others[index] for index in sorted(others)]
        return TopicView(name, tuple(leaders), id_bytes, is_internal)

    def _is_enough(self, work: int) -> bool:
        """True when a step has done as much as one may."""
        self._work += work
        if self._work < _WORK_PER_STEP:
            return False
        self._work = 0
        return True


def _read_partitions(
    scanner: Scanner, version: int, count: int, leaders: list[int], others: dict[int, int]
) -> None:
    """Read so many partitions: their leaders, and by their index those that do not come in order.

    Of almost all each list has fewer than 127 brokers, and there are no tags.
    """
    shape = _PARTITION if version >= _EPOCH_FROM else _OLD_PARTITION
    lists = range(3 if version >= _OFFLINE_FROM else 2)  # replicas, in sync, offline
    data, unpack, size = scanner.data, shape.unpack_from, shape.size
    flexible = scanner.flexible
    for _ in range(count):
        fields = unpack(data, scanner.skip(size))
        index, leader = fields[1], fields[2]
        if leader < 0:
            leader = NO_LEADER
        if index == len(leaders):
            leaders.append(leader)
        else:
            others[index] = leader
        if not flexible:
            for _ in lists:
                scanner.skip(4 * max(0, scanner.count(4)))
            continue
        at = scanner.at
        for _ in lists:
            length = data[at] if at < scanner.end else 0
            if not 0 < length < 0x80:
                scanner.at = at
                scanner.skip(4 * max(0, scanner.count(4)))
                at = scanner.at
            else:
                at += 4 * length - 3
        scanner.at = at
        scanner.skip_tags()
