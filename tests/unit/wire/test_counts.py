"""What one message may name at most, so that no walk over it holds up others."""

import struct

import pytest

from kvota.model.errors import ProtocolError
from kvota.wire import addresses, api_versions
from kvota.wire.address_rewrite import BROKERS_MAX, COORDINATORS_MAX
from kvota.wire.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
)
from kvota.wire.broker_configs import (
    ASKED_MAX,
    BROKER_CONFIGS_BYTES_MAX,
    BROKER_CONFIGS_MAX,
    AskedBrokers,
    asked_brokers,
)
from kvota.wire.headers import encode_answer, encode_request
from kvota.wire.scanner import TAGS_MAX
from kvota.wire.varint import uvarint

ADDRESS = struct.pack(">i", 1) + b"\x07broker" + struct.pack(">i", 9092)


def told(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "gateway", 9_000 + node_id


def metadata(count: int) -> bytes:
    body = bytes(4) + uvarint(count + 1) + (ADDRESS + b"\0\0") * count
    return encode_answer(METADATA, 12, 1, body)


def cluster(count: int) -> bytes:
    head = bytes(4 + 2) + b"\0\1" + b"\x02c" + bytes(4)
    body = head + uvarint(count + 1) + (ADDRESS + b"\0\0\0") * count
    return encode_answer(DESCRIBE_CLUSTER, 2, 1, body + bytes(4) + b"\0")


def coordinators(count: int) -> bytes:
    body = bytes(4) + uvarint(count + 1) + (b"\x02g" + ADDRESS + bytes(2) + b"\0\0") * count
    return encode_answer(FIND_COORDINATOR, 4, 1, body + b"\0")


def endpoints(count: int) -> bytes:
    content = uvarint(count + 1) + (ADDRESS + b"\0\0") * count
    return encode_answer(
        PRODUCE, 11, 1, b"\1" + bytes(4) + b"\1\0" + uvarint(len(content)) + content
    )


@pytest.mark.parametrize(
    ("key", "version", "answer_of", "most"),
    [
        (METADATA, 12, metadata, BROKERS_MAX),
        (DESCRIBE_CLUSTER, 2, cluster, BROKERS_MAX),
        (FIND_COORDINATOR, 4, coordinators, COORDINATORS_MAX),
        (PRODUCE, 11, endpoints, BROKERS_MAX),
    ],
)
def test_addresses_in_one_answer(key: int, version: int, answer_of, most: int) -> None:  # type: ignore[no-untyped-def]
    rewritten = addresses.rewrite(answer_of(most), key, version, told)
    assert rewritten.count(b"gateway") == most
    assert b"broker" not in rewritten

    with pytest.raises(ProtocolError, match=f"{most + 1} addresses; at most {most}"):
        addresses.rewrite(answer_of(most + 1), key, version, told)


def test_tagged_fields_in_one_place() -> None:
    def tagged(count: int) -> bytes:
        tags = b"".join(uvarint(number) + b"\0" for number in range(1, count + 1))
        return encode_answer(PRODUCE, 11, 1, b"\1" + bytes(4) + uvarint(count) + tags)

    assert addresses.rewrite(tagged(TAGS_MAX), PRODUCE, 11, told) == tagged(TAGS_MAX)
    with pytest.raises(ProtocolError, match=f"{TAGS_MAX + 1} tagged fields; at most {TAGS_MAX}"):
        addresses.rewrite(tagged(TAGS_MAX + 1), PRODUCE, 11, told)


def test_apis_of_one_broker() -> None:
    body = bytes(2) + uvarint(1_002) + (bytes(6) + b"\0") * 1_001 + bytes(4) + b"\0"
    with pytest.raises(ProtocolError, match="1001 APIs; at most 1000"):
        api_versions.scan(encode_answer(API_VERSIONS, 3, 1, body), 3)


def configs_request(*kinds: int, settings: int = -1, version: int = 4) -> bytes:
    if version >= 4:
        names = uvarint(settings + 1) + b"\x02s" * max(0, settings)
        resources = b"".join(bytes((kind,)) + b"\x02r" + names + b"\0" for kind in kinds)
        body = uvarint(len(kinds) + 1) + resources + b"\0\0\0"
    else:
        names = struct.pack(">i", settings) + b"\0\1s" * max(0, settings)
        resources = b"".join(bytes((kind,)) + b"\0\1r" + names for kind in kinds)
        body = struct.pack(">i", len(kinds)) + resources + b"\0"
    return encode_request(DESCRIBE_CONFIGS, version, 1, body)


NAMES = {"quota.window.num", "s"}


@pytest.mark.parametrize("version", [1, 4])
def test_what_is_asked_of_brokers(version: int) -> None:
    def asked(*kinds: int, settings: int = -1) -> AskedBrokers | None:
        return asked_brokers(
            configs_request(*kinds, settings=settings, version=version), version, NAMES
        )

    assert asked(2, 4) == AskedBrokers((("r", None),), has_synonyms=False)
    assert asked(4, 2, settings=0) == AskedBrokers((("r", None),), has_synonyms=False)
    assert asked(2, 4, settings=3) == AskedBrokers((("r", frozenset("s")),), has_synonyms=False)
    assert asked(2, 8, 2, settings=4) is None
    assert asked() is None


def test_resources_and_settings_asked_for() -> None:
    assert asked_brokers(configs_request(*[2] * (ASKED_MAX // 2), settings=1), 4, NAMES) is None
    with pytest.raises(ProtocolError, match=f"more than {ASKED_MAX} resources and settings"):
        asked_brokers(configs_request(*[2] * (ASKED_MAX // 2), settings=2), 4, NAMES)


def configs(count: int, resources: int = 1) -> bytes:
    config = b"\x0alisteners" + b"\x04abc" + b"\0\5\0" + b"\1" + b"\2\0" + b"\0"
    resource = bytes(2) + b"\0" + b"\x04" + b"\x021" + uvarint(count + 1) + config * count + b"\0"
    body = bytes(4) + uvarint(resources + 1) + resource * resources + b"\0"
    return encode_answer(DESCRIBE_CONFIGS, 4, 1, body)


def test_settings_of_brokers_in_one_answer() -> None:
    most = BROKER_CONFIGS_MAX - 1  # and one resource
    assert b"abc" not in addresses.rewrite(configs(most), DESCRIBE_CONFIGS, 4, told)

    with pytest.raises(ProtocolError, match="more items than one message may have"):
        addresses.rewrite(configs(most + 1), DESCRIBE_CONFIGS, 4, told)


def test_bytes_of_an_answer_with_settings_of_brokers() -> None:
    large = encode_answer(DESCRIBE_CONFIGS, 4, 1, bytes(BROKER_CONFIGS_BYTES_MAX))
    with pytest.raises(ProtocolError, match=f"at most {BROKER_CONFIGS_BYTES_MAX} are taken"):
        addresses.rewrite(large, DESCRIBE_CONFIGS, 4, told)
