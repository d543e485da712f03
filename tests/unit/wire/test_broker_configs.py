"""A broker's settings with addresses are hidden in DescribeConfigs answers of every version."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    mutate,
    part_type,
    payload_type,
    to_frame,
    versions,
)
from kvota.wire.addresses import rewrite

DESCRIBE_CONFIGS = 32
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
VERSIONS = versions(DESCRIBE_CONFIGS)
ADDRESSES = (
    "advertised.host.name",
    "advertised.listeners",
    "advertised.port",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "host.name",
    "listeners",
    "port",
    "rlmm.config.remote.log.metadata.common.client.bootstrap.servers",
    "zookeeper.connect",
)
OTHERS = (
    "",
    "advertised.listeners.not",
    "controller.listener.names",
    "early.start.listeners",
    "listener.security.protocol.map",
    "num.partitions",
    "report",
    "x" * 130,
)
VALUES = (None, "", "PLAINTEXT://broker-1.inside:9092", "9092", "b" * 200)


def never_asked(node_id: int, host: str, port: int) -> tuple[str, int]:
    raise AssertionError(node_id, host, port)


def random_answer(rng: Random, version: int) -> Any:
    """An answer of several resources with settings and synonyms of both sorts."""
    answer = payload_type(DESCRIBE_CONFIGS, version, "response")
    random = RandomMessages(rng)

    def synonym() -> Any:
        kind = part_type(answer, "DescribeConfigsSynonym")
        name = rng.choice((*ADDRESSES, *OTHERS))
        return random.entity(kind, name=name, value=rng.choice(VALUES))

    def config() -> Any:
        given: dict[str, object] = {"name": rng.choice((*ADDRESSES, *OTHERS))}
        given["value"] = rng.choice(VALUES)
        if version >= 1:
            given["synonyms"] = tuple(synonym() for _ in range(rng.randrange(4)))
        return random.entity(part_type(answer, "DescribeConfigsResourceResult"), **given)

    def result() -> Any:
        return random.entity(
            part_type(answer, "DescribeConfigsResult"),
            resource_type=rng.choice((BROKER, BROKER, TOPIC, BROKER_LOGGER, CLIENT_METRICS, GROUP)),
            configs=tuple(config() for _ in range(rng.randrange(6))),
        )

    results = tuple(result() for _ in range(rng.randrange(4)))
    return random.entity(answer, results=results)


def expected(payload: Any) -> Any:
    """The kio message with its addresses hidden by kio's own means."""
    return replace(payload, results=tuple(map(hidden_in_result, payload.results)))


def hidden_in_result(result: Any) -> Any:
    if result.resource_type != BROKER:
        return result
    return replace(result, configs=tuple(map(hidden_in_config, result.configs)))


def hidden_in_config(config: Any) -> Any:
    hides = config.name in ADDRESSES
    if hides and config.value:
        config = replace(config, value=None, is_sensitive=True)
    if not hasattr(config, "synonyms"):
        return config
    return replace(
        config,
        synonyms=tuple(
            replace(s, value=None) if s.value and (hides or s.name in ADDRESSES) else s
            for s in config.synonyms
        ),
    )


@given(version=st.sampled_from(VERSIONS), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=400)
def test_only_the_values_of_addresses_change(version: int, seed: int) -> None:
    payload = random_answer(Random(seed), version)
    frame = to_frame(payload, correlation_id=seed % 1000)

    answer = rewrite(frame, DESCRIBE_CONFIGS, version, never_asked)

    assert from_frame(answer, DESCRIBE_CONFIGS, version, "response") == expected(payload)
    assert answer == to_frame(expected(payload), correlation_id=seed % 1000)


def answer_of(
    version: int,
    *names: str,
    value: str | None = "PLAINTEXT://10.1.2.3:9092",
    resource_type: int = BROKER,
) -> bytes:
    """One resource, each setting with the same value, and once more as its own synonym."""
    random = RandomMessages(Random(1))
    answer = payload_type(DESCRIBE_CONFIGS, version, "response")
    result = random.entity(
        part_type(answer, "DescribeConfigsResult"),
        resource_type=resource_type,
        configs=tuple(config_of(answer, name, value) for name in names),
    )
    return to_frame(random.entity(answer, results=(result,)))


def config_of(answer: Any, name: str, value: str | None) -> Any:
    random = RandomMessages(Random(2))
    given: dict[str, object] = {"name": name, "value": value, "is_sensitive": False}
    if answer.__version__ >= 1:
        synonym = part_type(answer, "DescribeConfigsSynonym")
        given["synonyms"] = (random.entity(synonym, name=name, value=value),)
    return random.entity(part_type(answer, "DescribeConfigsResourceResult"), **given)


def configs_in(frame: bytes, version: int) -> Sequence[Any]:
    (result,) = from_frame(frame, DESCRIBE_CONFIGS, version, "response").results
    configs: Sequence[Any] = result.configs
    return configs


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ADDRESSES)
def test_each_setting_with_addresses_is_hidden(version: int, name: str) -> None:
    frame = answer_of(version, "num.partitions", name)

    answer = rewrite(frame, DESCRIBE_CONFIGS, version, never_asked)

    shown, hidden = configs_in(answer, version)
    assert (shown.value, shown.is_sensitive) == ("PLAINTEXT://10.1.2.3:9092", False)
    assert (hidden.value, hidden.is_sensitive) == (None, True)
    assert answer.count(b"10.1.2.3") == (1 if version == 0 else 2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("value", [None, ""])
def test_a_setting_without_a_value_stays_as_it_is(version: int, value: str | None) -> None:
    frame = answer_of(version, *ADDRESSES, value=value)

    assert rewrite(frame, DESCRIBE_CONFIGS, version, never_asked) is frame


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource_type", [TOPIC, BROKER_LOGGER, CLIENT_METRICS, GROUP])
def test_settings_of_other_resources_stay_as_they_are(version: int, resource_type: int) -> None:
    frame = answer_of(version, *ADDRESSES, resource_type=resource_type)

    assert rewrite(frame, DESCRIBE_CONFIGS, version, never_asked) is frame


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_names_no_such_setting_is_not_read(version: int) -> None:
    frame = b"not even a frame, whose report speaks of listeners and ports"

    assert rewrite(frame, DESCRIBE_CONFIGS, version, never_asked) is frame


def test_tags_that_nobody_knows_survive_at_every_level() -> None:
    tags = b"\x01\x05\x02ab"
    synonym = b"\x05port" + b"%s" + b"\x05" + tags
    config = b"\x05port" + b"%s" + b"\0\x04%s" + b"\x02" + synonym + b"\x03\x04doc" + tags
    result = b"\0\0" + b"\0" + b"\x04" + b"\x021" + b"\x02" + config + tags
    frame = bytes(4) + b"\0\0\0\x07" + tags + bytes(4) + b"\x02" + result + tags
    full = sized(frame % (b"\x059092", b"\0", b"\x059092"))

    answer = rewrite(full, DESCRIBE_CONFIGS, 4, never_asked)

    assert answer == sized(frame % (b"\0", b"\1", b"\0"))


def sized(frame: bytes) -> bytes:
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_cut_behind_an_address_is_refused(version: int) -> None:
    frame = answer_of(version, "listeners", "advertised.listeners")
    shortest = frame.index(b"listeners") + len(b"listeners")

    for cut in range(shortest, len(frame)):
        with pytest.raises(ProtocolError, match=f"DescribeConfigs v{version} answer"):
            rewrite(sized(frame[:cut]), DESCRIBE_CONFIGS, version, never_asked)


def test_bytes_behind_the_last_field_are_refused() -> None:
    frame = sized(answer_of(4, "listeners") + b"\0")

    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        rewrite(frame, DESCRIBE_CONFIGS, 4, never_asked)


@given(version=st.sampled_from(VERSIONS), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=300)
def test_damaged_answers_are_read_or_refused_with_a_reason(version: int, seed: int) -> None:
    rng = Random(seed)
    frame = mutate(to_frame(random_answer(rng, version)), rng)

    assert outcome_of(frame, version) in {"read", "refused"}


def outcome_of(frame: bytes, version: int) -> str:
    try:
        answer = rewrite(frame, DESCRIBE_CONFIGS, version, never_asked)
    except ProtocolError as fault:
        return "refused" if str(fault) else "refused without a reason"
    return "read" if len(answer) <= len(frame) else "grown"
