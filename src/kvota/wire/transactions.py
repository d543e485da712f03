"""Requests that bring a producer id to a broker without a batch: its coordinators write for it then.

AddPartitionsToTxn has the transaction coordinator write an end marker with the id to each partition, and
AddOffsetsToTxn to one of ``__consumer_offsets``; the group coordinator writes a TxnOffsetCommit there.
"""

from struct import Struct

from kvota.wire.apis import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT
from kvota.wire.encode import encode_count, encode_int16, encode_int32
from kvota.wire.headers import encode_answer, is_flexible, request_scanner
from kvota.wire.producer_ids import PARTITIONS_MAX
from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps
from kvota.wire.varint import Bytes

# From here on an AddPartitionsToTxn is a broker's, and has several transactions.
_BATCHED_FROM = 4
# Of a TxnOffsetCommit.
_MEMBER_FROM, _LEADER_EPOCH_FROM = 3, 2
# The least that these take in a request.
_TRANSACTION_BYTES_MIN, _TOPIC_BYTES_MIN, _NUMBER_BYTES, _COMMIT_BYTES_MIN = 14, 2, 4, 13
_PARTITION_RESULT = Struct(">ih").pack


def has_one_transaction(key: int, version: int) -> bool:
    """True where a request of this API has one producer id, which ``producer_id`` finds at its front."""
    return key != ADD_PARTITIONS_TO_TXN or version < _BATCHED_FROM


def producer_id(frame: bytes, key: int) -> int:
    """The id in a whole request frame of one transaction; what stands behind it is not looked at.

    Raises:
        ProtocolError: the frame ends before.
    """
    scanner = request_scanner(frame, key)
    _skip_names(scanner, key)
    return scanner.int64()


def producer_ids_in_steps(frame: bytes, version: int) -> Steps[list[int]]:
    """The ids of an AddPartitionsToTxn of several transactions, but for those that are only verified.

    Raises:
        ProtocolError: it is no such request, or has more than ``PARTITIONS_MAX`` transactions, topics and
            partitions.
    """
    scanner = request_scanner(frame, ADD_PARTITIONS_TO_TXN, items_max=PARTITIONS_MAX)
    assert version >= _BATCHED_FROM
    found = []
    for _ in range(scanner.count(_TRANSACTION_BYTES_MIN)):
        scanner.skip_text()  # transactional id
        found_id = scanner.int64()
        scanner.skip(2)  # epoch
        if not scanner.boolean():
            found.append(found_id)
        for _ in range(scanner.count(_TOPIC_BYTES_MIN)):
            scanner.skip_text()
            scanner.skip(_NUMBER_BYTES * max(0, scanner.count(_NUMBER_BYTES)))
            scanner.skip_tags()
            if scanner.is_step_done():
                yield None
        scanner.skip_tags()
        if scanner.is_step_done():
            yield None
    scanner.skip_tags()
    scanner.finish()
    return found


def refusal_in_steps(
    frame: bytes,
    *,
    key: int,
    version: int,
    correlation_id: int,
    error_code: int,
    throttle_ms: int,
) -> Steps[bytes]:
    """Makes the answer to a whole request that did not go on: the same error for all that it names.

    Raises:
        ProtocolError: it is no such request, or has more than ``PARTITIONS_MAX`` topics and partitions.
    """
    flexible = is_flexible(key, version)
    parts: list[Bytes] = [encode_int32(throttle_ms)]
    if key == ADD_OFFSETS_TO_TXN:
        parts.append(encode_int16(error_code))
    elif not has_one_transaction(key, version):
        # As a broker refuses all of it: an error, and no results.
        parts += encode_int16(error_code), encode_count(0, flexible=flexible)
    else:
        parts.append((yield from _refused_topics(frame, key, version, error_code)))
    parts.append(b"\0" * flexible)
    return encode_answer(key, version, correlation_id, b"".join(parts))


def _refused_topics(frame: bytes, key: int, version: int, error_code: int) -> Steps[bytearray]:
    scanner = request_scanner(frame, key, items_max=PARTITIONS_MAX)
    flexible = scanner.flexible
    tags = b"\0" * flexible
    _skip_names(scanner, key)
    scanner.skip(8 + 2)  # producer id and epoch
    commits = key == TXN_OFFSET_COMMIT
    if commits and version >= _MEMBER_FROM:
        scanner.skip(4)  # generation
        scanner.skip_text()  # member
        scanner.skip_text()  # instance
    topics = max(0, scanner.count(_TOPIC_BYTES_MIN))
    told = bytearray(encode_count(topics, flexible=flexible))
    for _ in range(topics):
        name_at = scanner.at
        scanner.skip_text()
        told += frame[name_at : scanner.at]
        partitions = max(0, scanner.count(_COMMIT_BYTES_MIN if commits else _NUMBER_BYTES))
        told += encode_count(partitions, flexible=flexible)
        for _ in range(partitions):
            told += _PARTITION_RESULT(scanner.int32(), error_code)
            told += tags
            if commits:
                scanner.skip(8 + 4 * (version >= _LEADER_EPOCH_FROM))  # offset
                scanner.skip_text()  # metadata
                scanner.skip_tags()
            if scanner.is_step_done():
                yield None
        scanner.skip_tags()
        told += tags
        if scanner.is_step_done():
            yield None
    scanner.skip_tags()
    scanner.finish()
    return told


def _skip_names(scanner: Scanner, key: int) -> None:
    scanner.skip_text()  # transactional id
    if key == TXN_OFFSET_COMMIT:
        scanner.skip_text()  # group
