"""The frames that attacks send, made by hand: an attack says what no client library would say.

Sizes are in bytes. What a helper does not take as an argument is what a plain client sends.
"""

import struct
import time
from collections.abc import Sequence
from functools import cache

from kafka.record import MemoryRecordsBuilder

from kvota.testing.frames import decoded

PRODUCE, FETCH, METADATA = 0, 1, 3
API_VERSIONS = 18
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

_PRODUCE_VERSION, _FETCH_VERSION, _METADATA_VERSION = 8, 11, 8
_CREATE_TOPICS_VERSION, _STRICT_CREATE_TOPICS_VERSION, _DELETE_TOPICS_VERSION = 4, 7, 3
_STRICT_DELETE_TOPICS_VERSION = 5
_MANY_PARTITIONS_VERSION = 11
_RESULTS = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}


def frame(key: int, version: int, body: bytes, *, client_id: str, correlation: int = 1) -> bytes:
    """A request with a header of version 1, or 2 where the body is flexible (``body`` begins with its tags)."""
    head = struct.pack(">hhi", key, version, correlation) + _text(client_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def correlated(request: bytes, correlation: int) -> bytes:
    """The same request under another correlation id."""
    return request[:8] + struct.pack(">i", correlation) + request[12:]


def produce(topic: str, value_bytes: int, *, client_id: str, acks: int = 1) -> bytes:
    """Produce v8 of one record to partition 0."""
    records = _records(value_bytes)
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _text(topic)
    body += struct.pack(">iii", 1, 0, len(records)) + records
    return frame(PRODUCE, _PRODUCE_VERSION, body, client_id=client_id)


def produce_of_many(topic: str, partitions: int, *, client_id: str) -> bytes:
    """Produce v11 that names so many partitions, without records; the topic's own are the first."""
    named = b"".join(struct.pack(">i", index) + b"\1\0" for index in range(partitions))
    body = b"\0\0" + struct.pack(">hi", 1, 30_000)  # header tags, no transactional id
    body += b"\2" + _compact_length(len(topic.encode())) + topic.encode()
    body += _compact_length(partitions) + named + b"\0\0"
    return frame(PRODUCE, _MANY_PARTITIONS_VERSION, body, client_id=client_id)


def fetch(
    topic: str,
    max_bytes: int,
    *,
    client_id: str,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    offset: int = 0,
) -> bytes:
    """Fetch v11 of partition 0 from an offset on, without a session."""
    body = struct.pack(">iiii", -1, max_wait_ms, min_bytes, max_bytes) + b"\0"
    body += struct.pack(">iii", 0, -1, 1) + _text(topic)
    body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, max_bytes) + struct.pack(">ih", 0, 0)
    return frame(FETCH, _FETCH_VERSION, body, client_id=client_id)


def metadata(*, client_id: str) -> bytes:
    """Metadata v8 that asks for no topic."""
    body = struct.pack(">i", 0) + b"\0\0\0"
    return frame(METADATA, _METADATA_VERSION, body, client_id=client_id)


def metadata_of(names: Sequence[str], *, client_id: str, creates: bool) -> bytes:
    """Metadata v8 of some topics; ``creates``: the broker may make those that it does not know."""
    body = struct.pack(">i", len(names)) + b"".join(map(_text, names)) + bytes([creates, 0, 0])
    return frame(METADATA, _METADATA_VERSION, body, client_id=client_id)


def versions(*, client_id: str) -> bytes:
    """ApiVersions v0."""
    return frame(API_VERSIONS, 0, b"", client_id=client_id)


def create_topics(
    names: Sequence[str], partitions: int, *, client_id: str, strict: bool = False
) -> bytes:
    """CreateTopics v4, one replica each; v7 where ``strict``: what is over its quota is refused."""
    if strict:
        topics = b"".join(
            _compact_length(len(name))
            + name.encode()
            + struct.pack(">ih", partitions, 1)
            + b"\1\1\0"
            for name in names
        )
        body = b"\0" + _compact_length(len(names)) + topics + struct.pack(">i", 30_000) + b"\0\0"
        return frame(CREATE_TOPICS, _STRICT_CREATE_TOPICS_VERSION, body, client_id=client_id)
    topics = b"".join(_text(name) + struct.pack(">ihii", partitions, 1, 0, 0) for name in names)
    body = struct.pack(">i", len(names)) + topics + struct.pack(">i", 30_000) + b"\0"
    return frame(CREATE_TOPICS, _CREATE_TOPICS_VERSION, body, client_id=client_id)


def create_partitions(name: str, partitions: int, *, client_id: str) -> bytes:
    """CreatePartitions v1 of one topic: so many in all."""
    body = struct.pack(">i", 1) + _text(name) + struct.pack(">iii", partitions, -1, 30_000) + b"\0"
    return frame(CREATE_PARTITIONS, 1, body, client_id=client_id)


def delete_topics(names: Sequence[str], *, client_id: str, strict: bool = False) -> bytes:
    """DeleteTopics v3; v5 where ``strict``: what is over its quota is refused."""
    if strict:
        topics = b"".join(_compact_length(len(name)) + name.encode() for name in names)
        body = b"\0" + _compact_length(len(names)) + topics + struct.pack(">i", 30_000) + b"\0"
        return frame(DELETE_TOPICS, _STRICT_DELETE_TOPICS_VERSION, body, client_id=client_id)
    body = struct.pack(">i", len(names)) + b"".join(map(_text, names)) + struct.pack(">i", 30_000)
    return frame(DELETE_TOPICS, _DELETE_TOPICS_VERSION, body, client_id=client_id)


def sasl_handshake(mechanism: str, *, client_id: str) -> bytes:
    """SaslHandshake v1: tokens follow in SaslAuthenticate."""
    return frame(SASL_HANDSHAKE, 1, _text(mechanism), client_id=client_id)


def sasl_authenticate(token: bytes, *, client_id: str) -> bytes:
    """SaslAuthenticate v1."""
    body = struct.pack(">i", len(token)) + token
    return frame(SASL_AUTHENTICATE, 1, body, client_id=client_id)


def plain_login(user: str, secret: str, *, client_id: str) -> bytes:
    """Both requests of a PLAIN login, ready to have more behind them in one segment."""
    token = f"\0{user}\0{secret}".encode()
    handshake = sasl_handshake("PLAIN", client_id=client_id)
    return handshake + sasl_authenticate(token, client_id=client_id)


# ------------------------------------------------------------------ answers


def error_of_produce(answer: bytes) -> int:
    """The error of partition 0 in a whole Produce v8 answer to one partition."""
    (length,) = struct.unpack_from(">h", answer, 12)
    (code,) = struct.unpack_from(">h", answer, 14 + length + 8)
    return int(code)


def partitions_of_topics(answer: bytes) -> int:
    """How many partitions the topics of a Metadata v8 answer have in all."""
    topics = decoded(answer, METADATA, _METADATA_VERSION).topics
    return sum(len(topic.partitions) for topic in topics)


def errors_of_topics(request: bytes, answer: bytes) -> list[int]:
    """The error of each topic in the answer to a topic mutation."""
    key, version = request[5], request[7]
    results = getattr(decoded(answer, key, version), _RESULTS[key])
    return [result.error_code.value for result in results]


def errors_by_topic(request: bytes, answer: bytes) -> dict[str, int]:
    """The same by the topics' names."""
    key, version = request[5], request[7]
    results = getattr(decoded(answer, key, version), _RESULTS[key])
    return {result.name: result.error_code.value for result in results}


# ------------------------------------------------------------------ parts


@cache
def _records(value_bytes: int) -> bytes:
    builder = MemoryRecordsBuilder(2, 0, value_bytes + 1_000)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=bytes(value_bytes))
    builder.close()
    return bytes(builder.buffer())


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _compact_length(length: int) -> bytes:
    number, out = length + 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
