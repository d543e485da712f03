"""Requests of an admin client that name thousands of things, made in one go; without their header."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from kvota.wire.apis import ALTER_CLIENT_QUOTAS, CREATE_TOPICS, METADATA
from kvota.wire.client_quotas import Entry
from kvota.wire.encode import encode_count, encode_float64, encode_int32, encode_text
from kvota.wire.headers import is_flexible
from kvota.wire.scanner import TOPIC_ID_BYTES

_TOPICS_HAVE_IDS_FROM = 10
_NO_ID = bytes(TOPIC_ID_BYTES)
_COUNTS = Struct(">ih")


class Creation(NamedTuple):
    """One topic of a CreateTopics request; -1: as the cluster has it, or as the assignments say."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]]
    configs: Mapping[str, str | None]


def metadata_body(version: int, names: Sequence[str]) -> bytes:
    """Makes a Metadata request of v4 or newer that asks for some topics by name, and creates none."""
    flexible = is_flexible(METADATA, version)
    before = _NO_ID if version >= _TOPICS_HAVE_IDS_FROM else b""
    tags = b"\0" if flexible else b""
    parts = [encode_count(len(names), flexible=flexible)]
    for name in names:
        parts += (before, encode_text(name, flexible=flexible), tags)
    # Nothing is created. Operations that the user may carry out are not asked for: the cluster's, each topic's.
    wants = 1 + (8 <= version <= 10) + (version >= 8)
    return b"".join((*parts, bytes(wants), tags))


def alteration_body(version: int, entries: Iterable[Entry], *, validate_only: bool) -> bytes:
    """Makes an AlterClientQuotas request."""
    flexible = is_flexible(ALTER_CLIENT_QUOTAS, version)
    tags = b"\0" if flexible else b""
    # Types and keys repeat.
    texts: dict[str, bytes] = {}

    def known(text: str) -> bytes:
        if text not in texts:
            texts[text] = encode_text(text, flexible=flexible)
        return texts[text]

    made = [_alteration(entry, known, flexible=flexible) for entry in entries]
    count = encode_count(len(made), flexible=flexible)
    return b"".join((count, *made, bytes((validate_only,)), tags))


def _alteration(entry: Entry, known: Callable[[str], bytes], *, flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    parts = [encode_count(len(entry.parts), flexible=flexible)]
    for part in entry.parts:
        parts += (known(part.type), encode_text(part.name, flexible=flexible), tags)
    parts.append(encode_count(len(entry.operations), flexible=flexible))
    for key, value in entry.operations:
        parts += (known(key), encode_float64(value or 0.0), bytes((value is None,)), tags)
    return b"".join((*parts, tags))


def creation_body(
    version: int, topics: Iterable[Creation], *, timeout_ms: int, validate_only: bool
) -> bytes:
    """Makes a CreateTopics request of v1 or newer.

    Raises:
        OverflowError: a name, a broker or a number has no room in it; ``struct.error`` for counts.
    """
    flexible = is_flexible(CREATE_TOPICS, version)
    tags = b"\0" if flexible else b""
    made = [_creation(topic, flexible=flexible, tags=tags) for topic in topics]
    end = (encode_int32(timeout_ms), bytes((validate_only,)), tags)
    return b"".join((encode_count(len(made), flexible=flexible), *made, *end))


def _creation(topic: Creation, *, flexible: bool, tags: bytes) -> bytes:
    parts = [
        encode_text(topic.name, flexible=flexible),
        _COUNTS.pack(topic.num_partitions, topic.replication_factor),
        encode_count(len(topic.assignments), flexible=flexible),
    ]
    for partition, brokers in topic.assignments.items():
        parts += (encode_int32(partition), encode_count(len(brokers), flexible=flexible))
        parts += (*map(encode_int32, brokers), tags)
    parts.append(encode_count(len(topic.configs), flexible=flexible))
    for name, value in topic.configs.items():
        parts += (encode_text(name, flexible=flexible), encode_text(value, flexible=flexible), tags)
    return b"".join((*parts, tags))
