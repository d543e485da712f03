"""Reads producer ids from the batches of a Produce request, and nothing else of them.

Ids stand in the head of each batch (magic 2, Produce v3 or higher), which is never compressed: no record is
decoded and nothing is copied. Source: KIP-98; Kafka ``DefaultRecordBatch``, ``ByteBufferLogInputStream``.
"""

from struct import Struct
from typing import NamedTuple

from kvota.model.errors import ProtocolError
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes

_FLEXIBLE_FROM = APIS[PRODUCE].flexible_from
_BATCHES_FROM = 3  # before it there are message sets of magic 0 or 1, without ids
_TOPIC_ID_FROM = 13

# Bytes behind the base offset and this field.
_LENGTH = Struct(">i").unpack_from
_LENGTH_AT, _BEFORE_LENGTH_COUNTS = 8, 12
_MAGIC_AT, _MAGIC = 16, 2
_BATCH_BYTES_MIN = 61
# Id, epoch, base sequence.
_PRODUCER = Struct(">qhi").unpack_from
_PRODUCER_AT = 43

# No client comes near these; a broker refuses a partition with two batches.
PARTITIONS_MAX = 100_000
BATCHES_OF_PARTITION_MAX = 10
# Partition, length of its records.
_PARTITION_BYTES_MIN = 4 + 1
_TOPIC_BYTES_MIN = 1 + 1 + 1  # name, count, tags


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


def producers(frame: Bytes, body_at: int, version: int) -> list[BatchProducer]:
    """Who made each whole batch of magic 2 of a whole request, in the order of the request.

    What a broker finds no batch in has no id here, either: records that are null or empty, older
    message sets, a batch that is cut or says a length that does not fit, and what comes behind it.

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
    if version < _BATCHES_FROM:
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
        topic = _topic(scanner, version)
        for _ in range(scanner.count(_PARTITION_BYTES_MIN)):
            partition = scanner.int32()
            records_bytes = scanner.uvarint() - 1 if scanner.flexible else scanner.int32()
            if records_bytes > 0:
                at = scanner.skip(records_bytes)
                found.extend(_of_partition(scanner, at, topic, partition))
            elif records_bytes < -1:
                problem = f"records of {records_bytes} bytes"
                raise scanner.fault(problem)
            scanner.skip_tags()
            if scanner.is_step_done():
                yield None
        scanner.skip_tags()
    scanner.skip_tags()
    scanner.finish()
    return found


def _topic(scanner: Scanner, version: int) -> bytes:
    if version >= _TOPIC_ID_FROM:
        return scanner.take(TOPIC_ID_BYTES)
    return scanner.name().encode()


def _of_partition(scanner: Scanner, at: int, topic: bytes, partition: int) -> list[BatchProducer]:
    data, end = scanner.data, scanner.at
    found: list[BatchProducer] = []
    while end - at >= _BATCH_BYTES_MIN:
        length: int = _LENGTH(data, at + _LENGTH_AT)[0]
        behind = at + _BEFORE_LENGTH_COUNTS + length
        if length < _BATCH_BYTES_MIN - _BEFORE_LENGTH_COUNTS or behind > end:
            break
        if data[at + _MAGIC_AT] != _MAGIC:
            break
        if len(found) == BATCHES_OF_PARTITION_MAX:
            msg = f"{scanner.what}: more than {BATCHES_OF_PARTITION_MAX} batches in one partition"
            raise ProtocolError(msg)
        found.append(BatchProducer(topic, partition, *_PRODUCER(data, at + _PRODUCER_AT)))
        at = behind
    return found
