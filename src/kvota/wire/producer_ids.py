"""Reads producer ids from the batches of a Produce request, and nothing else of them.

Ids stand in the head of each batch (magic 2, Produce v3 or higher), which is never compressed: no record is
decoded and nothing is copied. Source: KIP-98; Kafka ``DefaultRecordBatch``, ``ByteBufferLogInputStream``.
"""

import struct
from struct import Struct
from typing import NamedTuple

from kvota.model.errors import ProtocolError
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes, read_uvarint

_FLEXIBLE_FROM = APIS[PRODUCE].flexible_from
BATCHES_FROM = 3  # before it there are message sets of magic 0 or 1, without ids
TOPIC_ID_FROM = 13

_TEXT_LENGTH, _COUNT = Struct(">h").unpack_from, Struct(">i").unpack_from
# Bytes behind the base offset and this field.
_LENGTH = Struct(">i").unpack_from
_LENGTH_AT, _BEFORE_LENGTH_COUNTS = 8, 12
# Length, magic, id.
_HEAD_OF_BATCH = Struct(">8xi4xb26xq").unpack_from
_MAGIC_AT, _MAGIC = 16, 2
BATCH_BYTES_MIN = 61
# Id, epoch, base sequence.
_PRODUCER = Struct(">qhi").unpack_from
_PRODUCER_AT = 43

# A compact array with one item; of what is no such request.
_ONE = 2
_NO_BATCH = 0, 0, 0, 0
_NOT_ONE = 0, 0, -1

# No client comes near these; a broker refuses a partition with two batches.
PARTITIONS_MAX = 100_000
# Kafka's own limit: no broker has a topic with a longer name, so it stores nothing there, and no id.
TOPIC_NAME_BYTES_MAX = 249
# What is before the topic of a request that is read in place: a transactional id, acks, timeout, counts.
_BEFORE_TOPIC_BYTES_MAX = 512
BATCHES_OF_PARTITION_MAX = 10
BATCHES_MAX = 100_000
# Partition, length of its records.
_PARTITION_BYTES_MIN = 4 + 1
_TOPIC_BYTES_MIN = 1 + 1 + 1  # name, count, tags


# A topic and a partition, as ``BatchProducer`` has them.
Place = tuple[bytes, int]


class BatchProducer(NamedTuple):
    """Who made a batch.

    Attributes:
        topic: its name in UTF-8, from v13 on the topic's id (16 bytes).
        partition: as it stands there.
        producer_id: -1 for a batch without one; brokers give out 0 to 2**63-1, clients may send anything.
        epoch: of the producer.
        base_sequence: number of the batch's first record in this partition.
    """

    topic: bytes
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int

    @property
    def place(self) -> Place:
        """Where it goes."""
        return self.topic, self.partition


def producers(frame: Bytes, body_at: int, version: int) -> list[BatchProducer]:
    """Who made each whole batch of magic 2 of a whole request, in the order of the request.

    What a broker finds no batch in has no id here, either: records that are null or empty, older
    message sets, a batch that is cut or says a length that does not fit, and what comes behind it; and all that
    is for a topic with a longer name than there can be.

    Args:
        frame: the request, size field included.
        body_at: where its body begins (``headers.request_body_offset``).
        version: of the request, 0 to 13.

    Raises:
        ProtocolError: it is no such request, or has more partitions or batches than are taken.
    """
    return at_once(producers_in_steps(frame, body_at, version))


def producers_in_steps(frame: Bytes, body_at: int, version: int) -> Steps[list[BatchProducer]]:
    """Returns the same, found a little at a time.

    Raises:
        ProtocolError: as ``producers``.
    """
    found: list[BatchProducer] = []
    if version < BATCHES_FROM:
        return found
    scanner = Scanner(
        frame,
        body_at,
        len(frame),
        flexible=version >= _FLEXIBLE_FROM,
        what=f"Produce v{version} request",
        items_max=PARTITIONS_MAX,
    )
    scanner.skip_text()  # transactional id
    scanner.skip(2 + 4)  # acks, timeout
    for _ in range(scanner.count(_TOPIC_BYTES_MIN)):
        topic = topic_of(scanner, version)
        for _ in range(scanner.count(_PARTITION_BYTES_MIN)):
            partition = scanner.int32()
            records_bytes = scanner.uvarint() - 1 if scanner.flexible else scanner.int32()
            if records_bytes > 0:
                at = scanner.skip(records_bytes)
                if len(topic) <= TOPIC_NAME_BYTES_MAX:
                    found.extend(_of_partition(scanner, at, topic, partition))
                    if len(found) > BATCHES_MAX:
                        msg = f"{scanner.what}: more than {BATCHES_MAX} batches"
                        raise ProtocolError(msg)
            elif records_bytes < -1:
                problem = f"records of {records_bytes} bytes"
                raise scanner.fault(problem)
            scanner.skip_tags()
            if scanner.is_step_done():
                yield None
        scanner.skip_tags()
        if scanner.is_step_done():
            yield None
    scanner.skip_tags()
    scanner.finish()
    return found


def few_producers(
    frame: Bytes, body_at: int, version: int, *, at_most: int
) -> list[BatchProducer] | None:
    """The same, of a request with so few batches and no more partitions than are looked at in one step; else None.

    Raises:
        ProtocolError: as ``producers``.
    """
    try:
        next(producers_in_steps(frame, body_at, version))
    except StopIteration as done:
        found: list[BatchProducer] = done.value
        return found if len(found) <= at_most else None
    return None


def only_batch_at(data: Bytes, body: int, version: int, frame_end: int) -> tuple[int, int, int]:
    """Where the only batch of a request stands, of which perhaps only the beginning is here.

    It is asked of every Produce whose ids are looked at, so it reads in place; ``only_producer`` reads on.

    Args:
        data: has the request, and perhaps others behind it.
        body: where the request's body begins (``headers.request_body_offset``).
        version: of the request, 3 to 13.
        frame_end: offset behind the request, perhaps beyond ``data``.

    Returns:
        Where the topic's name or id begins and ends, and where the batch begins; its whole head is
        here. The last is -1 where the request has not exactly one batch of magic 2, or that cannot be seen
        yet; and where a name in it is longer than names are: what is found may be remembered.
    """
    here = min(len(data), frame_end)
    try:
        if version >= _FLEXIBLE_FROM:
            name_at, name_end, batch, length = _flexible_batch(data, body, version, here)
        else:
            name_at, name_end, batch, length = _plain_batch(data, body)
        is_one = (
            0 < name_at <= name_end < batch
            and name_end - name_at <= TOPIC_NAME_BYTES_MAX
            and name_at - body <= _BEFORE_TOPIC_BYTES_MAX
            and batch + BATCH_BYTES_MIN <= here
            and batch + length <= frame_end
            and _LENGTH(data, batch + _LENGTH_AT)[0] == length - _BEFORE_LENGTH_COUNTS
            and length >= BATCH_BYTES_MIN
            and data[batch + _MAGIC_AT] == _MAGIC
        )
    except (IndexError, struct.error, ProtocolError):
        return _NOT_ONE
    return (name_at, name_end, batch) if is_one else _NOT_ONE


def _flexible_batch(data: Bytes, body: int, version: int, here: int) -> tuple[int, int, int, int]:
    """Begin and end of the topic, begin and length of the records of the first partition, if it is the only one."""
    at = body + 1
    if data[body]:  # transactional id
        length, at = read_uvarint(data, body, here)
        at += length - 1
    at += 2 + 4  # acks, timeout
    if data[at] != _ONE:
        return _NO_BATCH
    if version >= TOPIC_ID_FROM:
        name_at, name_end = at + 1, at + 1 + TOPIC_ID_BYTES
    else:
        length, name_at = read_uvarint(data, at + 1, here)
        name_end = name_at + length - 1
    if data[name_end] != _ONE:
        return _NO_BATCH
    length, batch = read_uvarint(data, name_end + 1 + 4, here)
    return name_at, name_end, batch, length - 1


def _plain_batch(data: Bytes, body: int) -> tuple[int, int, int, int]:
    """The same before v9."""
    at = body + 2 + max(0, _TEXT_LENGTH(data, body)[0]) + 2 + 4
    if _COUNT(data, at)[0] != 1:
        return _NO_BATCH
    name_at = at + 4 + 2
    name_end = name_at + _TEXT_LENGTH(data, at + 4)[0]
    if name_end < name_at or _COUNT(data, name_end)[0] != 1:
        return _NO_BATCH
    return name_at, name_end, name_end + 4 + 4 + 4, _COUNT(data, name_end + 4 + 4)[0]


def producer_id_at(data: Bytes, batch: int) -> int:
    """The producer id of a batch whose head is here."""
    producer_id: int = _PRODUCER(data, batch + _PRODUCER_AT)[0]
    return producer_id


def id_behind(data: Bytes, at: int, frame_end: int, flexible: bool) -> int | None:  # noqa: FBT001  (hot)
    """The producer id of a partition's records whose length stands at ``at``.

    None: they are not one batch of magic 2, or its head is not here. What stands before them, and that
    nothing comes behind but tags, ``only_batch_at`` has found of a request that is the same up to there.
    """
    try:
        if flexible:
            records_bytes, at = read_uvarint(data, at, frame_end)
            records_bytes -= 1
        else:
            records_bytes, at = _COUNT(data, at)[0], at + 4
        length, magic, producer_id = _HEAD_OF_BATCH(data, at)
    except (struct.error, ProtocolError):
        return None
    if (
        length != records_bytes - _BEFORE_LENGTH_COUNTS
        or magic != _MAGIC
        or records_bytes < BATCH_BYTES_MIN
        or at + records_bytes > frame_end
    ):
        return None
    found: int = producer_id
    return found


def only_producer(data: Bytes, body: int, version: int, frame_end: int) -> BatchProducer | None:
    """Who made the only batch of a request; None: as the last of ``only_batch_at``, or the topic is no UTF-8."""
    name_at, name_end, batch = only_batch_at(data, body, version, frame_end)
    if batch < 0:
        return None
    partition: int = _COUNT(data, name_end + (1 if version >= _FLEXIBLE_FROM else 4))[0]
    topic = bytes(data[name_at:name_end])
    if version < TOPIC_ID_FROM and not _is_text(topic):
        return None
    return BatchProducer(topic, partition, *_PRODUCER(data, batch + _PRODUCER_AT))


def _is_text(topic: bytes) -> bool:
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return True


def topic_of(scanner: Scanner, version: int) -> bytes:
    """The topic that a Produce request or its answer names next: its name, from v13 on its id."""
    if version >= TOPIC_ID_FROM:
        return scanner.take(TOPIC_ID_BYTES)
    return scanner.name().encode()


def _of_partition(scanner: Scanner, at: int, topic: bytes, partition: int) -> list[BatchProducer]:
    data, end = scanner.data, scanner.at
    found: list[BatchProducer] = []
    while end - at >= BATCH_BYTES_MIN:
        length: int = _LENGTH(data, at + _LENGTH_AT)[0]
        behind = at + _BEFORE_LENGTH_COUNTS + length
        if length < BATCH_BYTES_MIN - _BEFORE_LENGTH_COUNTS or behind > end:
            break
        if data[at + _MAGIC_AT] != _MAGIC:
            break
        if len(found) == BATCHES_OF_PARTITION_MAX:
            msg = f"{scanner.what}: more than {BATCHES_OF_PARTITION_MAX} batches in one partition"
            raise ProtocolError(msg)
        found.append(BatchProducer(topic, partition, *_PRODUCER(data, at + _PRODUCER_AT)))
        at = behind
    return found
