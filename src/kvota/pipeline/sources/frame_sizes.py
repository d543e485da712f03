"""The bytes that a broker charges for a Produce and a Fetch, from what its request log shows of them. Pure.

Kafka charges a Produce with its header and body, as received, and a Fetch with four bytes and the body of its answer:
the log has all but the records themselves, of which it has the size. Sources: Kafka's message definitions
(``ProduceRequest.json``, ``FetchResponse.json``), ``FetchResponse.sizeOf``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_Json = Mapping[str, Any]

_PRODUCE_FLEXIBLE, _PRODUCE_BY_TOPIC_ID, _PRODUCE_HAS_TRANSACTION = 9, 13, 3
_FETCH_FLEXIBLE, _FETCH_BY_TOPIC_ID = 12, 13
_TOPIC_ID_BYTES = 16

# Tagged fields of an answered partition, each with its tag and its size of a byte: KIP-595, KIP-630, KIP-951.
# A partition without them has eight fields; older ones have fewer.
_PLAIN_FIELDS = 7
_PARTITION_TAGS = {"divergingEpoch": 2 + 13, "currentLeader": 2 + 9, "snapshotId": 2 + 13}


def produce_bytes(version: int, client_id: str | None, request: _Json) -> int:
    """Return the bytes that a Produce is charged: its frame without the four bytes of its length.

    Args:
        version: of the request.
        client_id: of its header; None where it has none.
        request: as the log has it.

    Raises:
        KeyError, TypeError: the log shows no Produce.
    """
    flexible = version >= _PRODUCE_FLEXIBLE
    topics: Sequence[_Json] = request["topicData"]
    # Key, version, correlation id, length of the client id; acks, timeout.
    size = 10 + (0 if client_id is None else text_bytes(client_id)) + 6
    if version >= _PRODUCE_HAS_TRANSACTION:
        size += _nullable_text(request["transactionalId"], flexible=flexible)
    if not flexible:
        size += 4
        for topic in topics:
            size += 2 + text_bytes(topic["name"]) + 4
            for partition in topic["partitionData"]:
                size += 8 + (partition.get("recordsSizeInBytes") or 0)
        return size
    size += 2 + varint_bytes(len(topics) + 1)  # tags of the header and of the body
    for topic in topics:
        partitions = topic["partitionData"]
        size += _compact_name(topic, "name", by_id=version >= _PRODUCE_BY_TOPIC_ID)
        size += varint_bytes(len(partitions) + 1) + 1
        for partition in partitions:
            size += 5 + _compact_records(partition.get("recordsSizeInBytes"))
    return size


def fetch_bytes(version: int, response: _Json) -> int:
    """Return the bytes that a Fetch is charged: its answer's frame, but for a tag byte of the header if there is one.

    Endpoints of other brokers, which an answer may end with, are not charged.

    Args:
        version: of the request.
        response: as the log has it.

    Raises:
        KeyError, TypeError: the log shows no answer of a Fetch.
    """
    topics: Sequence[_Json] = response["responses"]
    size = 4 + (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
    if version >= _FETCH_FLEXIBLE:
        size += varint_bytes(len(topics) + 1) + 1
        for topic in topics:
            partitions = _partitions_of(topic)
            size += _compact_name(topic, "topic", by_id=version >= _FETCH_BY_TOPIC_ID)
            size += varint_bytes(len(partitions) + 1) + 1
            for partition in partitions:
                size += _compact_partition(partition)
        return size
    size += 4
    fixed = 18 + (12 if version >= 4 else 0) + (8 if version >= 5 else 0) + (version >= 11) * 4
    for topic in topics:
        size += 2 + text_bytes(topic["topic"]) + 4
        for partition in _partitions_of(topic):
            aborted = partition.get("abortedTransactions") or ()
            size += fixed + 16 * len(aborted) + (_records_of(partition) or 0)
    return size


def text_bytes(text: str) -> int:
    """Return how many bytes a text has in UTF-8; half a surrogate pair has three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def varint_bytes(number: int) -> int:
    """Return how many bytes an unsigned varint has.

    >>> [varint_bytes(number) for number in (0, 127, 128, 16383, 16384, 2**31)]
    [1, 1, 2, 2, 3, 5]
    """
    return 1 if number < 128 else (number.bit_length() + 6) // 7


def _compact_name(topic: _Json, name: str, *, by_id: bool) -> int:
    if by_id:
        return _TOPIC_ID_BYTES
    length = text_bytes(topic[name])
    return varint_bytes(length + 1) + length


def _nullable_text(text: str | None, *, flexible: bool) -> int:
    length = 0 if text is None else text_bytes(text)
    if not flexible:
        return 2 + length
    return 1 if text is None else varint_bytes(length + 1) + length


def _compact_records(records_bytes: int | None) -> int:
    return 1 if records_bytes is None else varint_bytes(records_bytes + 1) + records_bytes


def _compact_partition(partition: _Json) -> int:
    """Return the bytes of an answered partition: 36 and its records, where nothing was aborted and nothing is tagged."""
    aborted = partition.get("abortedTransactions")
    size = 36 if not aborted else 35 + varint_bytes(len(aborted) + 1) + 17 * len(aborted)
    if len(partition) > _PLAIN_FIELDS:
        size += sum(tag_bytes for tag, tag_bytes in _PARTITION_TAGS.items() if tag in partition)
    records_bytes: int | None = partition.get("recordsSizeInBytes")
    if records_bytes is None:
        return size + _compact_records(partition.get("recordSetSizeInBytes"))
    return size + varint_bytes(records_bytes + 1) + records_bytes


def _partitions_of(topic: _Json) -> Sequence[_Json]:
    """Return the answered partitions; older Kafkas have another name for them, and for the size of records."""
    found: Sequence[_Json] | None = topic.get("partitions")
    return topic["partitionResponses"] if found is None else found


def _records_of(partition: _Json) -> int | None:
    found: int | None = partition.get("recordsSizeInBytes")
    return partition.get("recordSetSizeInBytes") if found is None else found
