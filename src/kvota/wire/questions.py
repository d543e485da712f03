"""Asks a broker which topics there are, and for its settings: the gateway's own questions.

The versions are ones that every broker takes for whom the question arises: Metadata v4 (0.11) for
names, v12 (3.1) for ids, v10 (2.8: the first with ids) for all topics, DescribeConfigs v1 (1.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvota.wire.address_rewrite import ADDRESS_BYTES_MIN, BROKERS_MAX
from kvota.wire.apis import DESCRIBE_CONFIGS, METADATA
from kvota.wire.broker_configs import BROKER_CONFIGS_MAX, BROKER_RESOURCE
from kvota.wire.encode import encode_count, encode_text
from kvota.wire.headers import answer_scanner, encode_request
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import STEP_PARTS, Steps, at_once
from kvota.wire.varint import Bytes

# Answers are matched by their place; any value does.
OWN_CORRELATION = 0x6B_76_6F_74
METADATA_NAMES_VERSION = 4
METADATA_IDS_VERSION = 12
METADATA_ALL_VERSION = 10
DESCRIBE_CONFIGS_VERSION = 1

Broker = tuple[int, str, int]  # node id, host, port

_NO_AUTO_CREATION = b"\0"
_NO_AUTHORIZED_OPERATIONS = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic of a Metadata answer."""

    name: str | None  # None: asked for by an id that the broker does not know
    topic_id: bytes | None  # None: the version has no ids
    error_code: int
    partitions: int
    at: int = -1  # offset of the error code in the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """A Metadata answer, with its topics by name and by id."""

    brokers: tuple[Broker, ...]
    topics: dict[str | bytes, TopicFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsAnswer:
    """The first resource of a DescribeConfigs answer."""

    error_code: int
    values: dict[str, str | None]  # None: sensitive, so not in the answer


def metadata_by_name(correlation_id: int, names: Sequence[str]) -> bytes:
    """Makes a Metadata v4 request frame that creates no topic; no names: it asks for brokers."""
    return at_once(metadata_by_name_in_steps(correlation_id, names))


def metadata_by_name_in_steps(
    correlation_id: int, names: Sequence[str], *, creates: bool = False
) -> Steps[bytes]:
    """Makes such a request frame, a little at a time; ``creates``: the broker may create the topics."""
    body = bytearray(encode_count(len(names), flexible=False))
    for number, name in enumerate(names):
        body += encode_text(name, flexible=False)
        if number % STEP_PARTS == STEP_PARTS - 1:
            yield
    body += b"\1" if creates else _NO_AUTO_CREATION
    return encode_request(METADATA, METADATA_NAMES_VERSION, correlation_id, bytes(body))


def metadata_id_version(broker_version_max: int) -> int:
    """Returns the version that asks for ids: v12 for these topics, or v10 for all there are."""
    by_id = broker_version_max >= METADATA_IDS_VERSION
    return METADATA_IDS_VERSION if by_id else METADATA_ALL_VERSION


def metadata_by_id(
    correlation_id: int, topic_ids: Sequence[bytes], broker_version_max: int
) -> bytes:
    """Makes a Metadata request frame of ``metadata_id_version(broker_version_max)``.

    A broker ignores names where ids are asked for: names need a question of their own.
    """
    version = metadata_id_version(broker_version_max)
    if version == METADATA_ALL_VERSION:
        topics = encode_count(-1, flexible=True)
        operations = _NO_AUTHORIZED_OPERATIONS * 2  # of the cluster (until v10), of the topics
    else:
        no_name = encode_text(None, flexible=True)
        entries = (topic_id + no_name + b"\0" for topic_id in topic_ids)
        topics = encode_count(len(topic_ids), flexible=True) + b"".join(entries)
        operations = _NO_AUTHORIZED_OPERATIONS
    body = topics + _NO_AUTO_CREATION + operations + b"\0"
    return encode_request(METADATA, version, correlation_id, body)


def scan_brokers(frame: Bytes, version: int) -> tuple[Broker, ...]:
    """Reads the brokers of a whole Metadata answer frame of any version.

    Raises:
        ProtocolError: it is no such answer, or names more than ``BROKERS_MAX``.
    """
    return _brokers(answer_scanner(frame, METADATA, version), version)


def scan_metadata(frame: Bytes, version: int) -> MetadataAnswer:
    """Reads a whole Metadata answer frame of any version.

    Raises:
        ProtocolError: as ``scan_brokers``.
    """
    return at_once(scan_metadata_in_steps(frame, version))


def scan_metadata_in_steps(frame: Bytes, version: int) -> Steps[MetadataAnswer]:
    """Reads a whole Metadata answer frame, a little at a time.

    Raises:
        ProtocolError: as ``scan_brokers``.
    """
    scanner = answer_scanner(frame, METADATA, version)
    brokers = _brokers(scanner, version)
    if version >= 2:
        scanner.skip_text()  # cluster id
    if version >= 1:
        scanner.skip(4)  # controller id
    topics: dict[str | bytes, TopicFacts] = {}
    for _ in range(scanner.count(8)):
        topic = yield from _topic(scanner, version)
        if topic.name is not None:
            topics[topic.name] = topic
        if topic.topic_id is not None:
            topics[topic.topic_id] = topic
        if scanner.is_step_done():
            yield
    return MetadataAnswer(brokers=brokers, topics=topics)


def describe_broker_configs(correlation_id: int, broker: str, keys: Iterable[str] | None) -> bytes:
    """Makes a DescribeConfigs v1 request frame.

    ``broker`` is the asked broker's own id, or empty for what is set for all of them; ``keys`` are the settings
    that are asked for, None: all.
    """
    names = None if keys is None else list(keys)
    body = b"".join(
        (
            encode_count(1, flexible=False),
            bytes((BROKER_RESOURCE,)),
            encode_text(broker, flexible=False),
            encode_count(-1 if names is None else len(names), flexible=False),
            *(encode_text(name, flexible=False) for name in names or ()),
            b"\0",  # no synonyms
        )
    )
    return encode_request(DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, correlation_id, body)


def scan_configs(frame: Bytes) -> ConfigsAnswer:
    """Reads a whole DescribeConfigs v1 answer frame.

    Raises:
        ProtocolError: it is no such answer.
    """
    version = DESCRIBE_CONFIGS_VERSION
    scanner = answer_scanner(frame, DESCRIBE_CONFIGS, version, items_max=BROKER_CONFIGS_MAX)
    scanner.skip(4)  # throttle
    if scanner.count(11) < 1:
        problem = "no resource in the answer"
        raise scanner.fault(problem)
    error_code = scanner.int16()
    scanner.skip_text()  # error message
    scanner.skip(1)  # resource type
    scanner.skip_text()  # resource name
    values: dict[str, str | None] = {}
    for _ in range(scanner.count(11)):
        name = scanner.name()
        values[name] = scanner.text()
        scanner.skip(1 + 1 + 1)  # read only, source, sensitive
        for _ in range(scanner.count(5)):  # synonyms: name, value, source
            scanner.skip_text()
            scanner.skip_text()
            scanner.skip(1)
    return ConfigsAnswer(error_code=error_code, values=values)


def _brokers(scanner: Scanner, version: int) -> tuple[Broker, ...]:
    if version >= 3:
        scanner.skip(4)  # throttle
    count = scanner.count(ADDRESS_BYTES_MIN)
    if count > BROKERS_MAX:
        problem = f"{count} addresses; at most {BROKERS_MAX} are taken"
        raise scanner.fault(problem)
    return tuple(_broker(scanner, version) for _ in range(count))


def _broker(scanner: Scanner, version: int) -> Broker:
    broker = (scanner.int32(), scanner.name(), scanner.int32())
    if version >= 1:
        scanner.skip_text()  # rack
    scanner.skip_tags()
    return broker


def _topic(scanner: Scanner, version: int) -> Steps[TopicFacts]:
    at = scanner.at
    error_code = scanner.int16()
    name = scanner.text()
    topic_id = scanner.take(TOPIC_ID_BYTES) if version >= 10 else None
    if version >= 1:
        scanner.skip(1)  # internal
    partitions = scanner.count(13)
    for _ in range(partitions):
        scanner.skip(2 + 4 + 4 + (4 if version >= 7 else 0))  # error, index, leader, epoch
        for _ in range(3 if version >= 5 else 2):  # replicas, in sync, offline
            scanner.skip(4 * max(0, scanner.count(4)))
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
    if version >= 8:
        scanner.skip(4)  # authorized operations
    scanner.skip_tags()
    return TopicFacts(
        name=name,
        topic_id=topic_id,
        error_code=error_code,
        partitions=max(0, partitions),
        at=at,
    )
