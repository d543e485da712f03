"""The gateway's settings among a broker's, in DescribeConfigs answers of every version."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kvota.model.broker_settings import DescribedSetting, Kind, Source
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
from kvota.wire.broker_configs import AskedBrokers, asked_brokers
from kvota.wire.described_settings import with_settings
from kvota.wire.steps import at_once

DESCRIBE_CONFIGS = 32
VERSIONS = versions(DESCRIBE_CONFIGS)
TOPIC, BROKER = 2, 4
NUM, CLASS, SECRET = (
    "quota.window.num",
    "client.quota.callback.class",
    "client.quota.callback.my.secret",
)
DYNAMIC, STATIC, DEFAULT = (
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.STATIC_BROKER_CONFIG,
    Source.DEFAULT_CONFIG,
)
SETTINGS = (
    DescribedSetting(
        name=NUM, kind=Kind.INT, values=((DYNAMIC, "5"), (STATIC, "7"), (DEFAULT, "11"))
    ),
    DescribedSetting(name=CLASS, kind=Kind.CLASS, values=()),
    DescribedSetting(
        name=SECRET,
        kind=Kind.STRING,
        values=((STATIC, "hush"),),
        is_sensitive=True,
        is_read_only=True,
    ),
)


def answer(version: int, *resources: tuple[int, str, int, Sequence[str]]) -> Any:
    """A broker's: each setting has a synonym and what a later version may add."""
    random = RandomMessages(Random(3))
    kind = payload_type(DESCRIBE_CONFIGS, version, "response")
    result, config = (
        part_type(kind, name) for name in ("DescribeConfigsResult", "DescribeConfigsResourceResult")
    )
    return random.entity(
        kind,
        results=tuple(
            random.entity(
                result,
                error_code=ErrorCode(error_code),
                resource_type=of_type,
                resource_name=name,
                configs=tuple(random.entity(config, name=each) for each in names),
            )
            for of_type, name, error_code, names in resources
        ),
    )


def told(
    message: Any, version: int, *, names: dict[str, frozenset[str] | None], synonyms: bool = True
) -> Any:
    asked = AskedBrokers(tuple(names.items()), has_synonyms=synonyms and version >= 1)
    frame = at_once(with_settings(to_frame(message), version, asked, SETTINGS))
    return from_frame(frame, DESCRIBE_CONFIGS, version, "response")


@pytest.mark.parametrize("version", VERSIONS)
def test_of_one_broker_there_are_all(version: int) -> None:
    broker = answer(version, (BROKER, "1", 0, ["a", NUM, "b", "client.quota.callback.theirs"]))

    (result,) = told(broker, version, names={"1": None}).results

    before = {each.name: each for each in broker.results[0].configs}
    assert [each.name for each in result.configs] == ["a", "b", NUM, CLASS, SECRET]
    assert list(result.configs[:2]) == [before["a"], before["b"]]
    num, of_class, secret = result.configs[2:]
    assert [each.value for each in (num, of_class, secret)] == ["5", None, None]
    assert [each.is_sensitive for each in (num, of_class, secret)] == [False, False, True]
    assert [each.read_only for each in (num, of_class, secret)] == [False, False, True]
    if version == 0:
        assert [each.is_default for each in (num, of_class, secret)] == [False, True, False]
        return
    assert [each.config_source for each in (num, of_class, secret)] == [3, 5, 4]
    assert [(each.name, each.value, each.source) for each in num.synonyms] == [
        (NUM, "5", 3),
        (NUM, "7", 4),
        (NUM, "11", 5),
    ]
    assert of_class.synonyms == ()
    assert [(each.value, each.source) for each in secret.synonyms] == [(None, 4)]
    if version >= 3:
        assert [each.config_type for each in (num, of_class, secret)] == [3, 8, 2]
        assert num.documentation == before[NUM].documentation
        assert of_class.documentation is None


@pytest.mark.parametrize("version", VERSIONS)
def test_of_all_brokers_there_is_what_is_set_dynamically(version: int) -> None:
    brokers = answer(version, (BROKER, "", 0, ["a", "client.quota.callback.theirs"]))

    (result,) = told(brokers, version, names={"": None}).results

    assert [each.name for each in result.configs] == ["a", NUM]
    if version >= 1:
        assert [(each.value, each.source) for each in result.configs[1].synonyms] == [("5", 3)]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_asked_for(version: int) -> None:
    names = {"1": frozenset({CLASS}), "": frozenset({CLASS})}
    both = answer(version, (BROKER, "1", 0, ["a", CLASS]), (BROKER, "", 0, ["a"]))

    results = told(both, version, names=names, synonyms=False).results

    assert [[each.name for each in result.configs] for result in results] == [["a", CLASS], ["a"]]
    assert version == 0 or results[0].configs[1].synonyms == ()


def test_a_broker_that_is_asked_for_several_times_has_several_answers() -> None:
    asked = AskedBrokers(
        (("1", frozenset({NUM})), ("1", frozenset()), ("", None), ("1", None)), has_synonyms=True
    )
    broker = answer(
        4,
        (BROKER, "1", 0, []),
        (TOPIC, "1", 0, ["a"]),
        (BROKER, "1", 0, ["b"]),
        (BROKER, "", 0, []),
        (BROKER, "1", 0, ["b"]),
    )

    told = at_once(with_settings(to_frame(broker), 4, asked, SETTINGS))

    results = from_frame(told, DESCRIBE_CONFIGS, 4, "response").results
    names = [[each.name for each in result.configs] for result in results]
    assert names == [[NUM], ["a"], ["b"], [NUM], ["b", NUM, CLASS, SECRET]]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_else_stays_as_it_is(version: int) -> None:
    others = answer(
        version, (TOPIC, "1", 0, [NUM, "a"]), (BROKER, "1", 31, []), (BROKER, "7", 0, [NUM])
    )

    assert told(others, version, names={"1": None}) == others


@given(seed=st.integers(0, 2**32), version=st.sampled_from(VERSIONS))
def test_damaged_answers_are_made_or_refused(seed: int, version: int) -> None:
    frame = to_frame(answer(version, (BROKER, "1", 0, ["a", NUM]), (BROKER, "", 0, ["b"])))
    asked = AskedBrokers((("1", None), ("", None)), has_synonyms=True)
    with suppress(ProtocolError):
        at_once(with_settings(mutate(frame, Random(seed)), version, asked, SETTINGS))


@given(seed=st.integers(0, 2**32), version=st.sampled_from(VERSIONS))
def test_damaged_requests_are_read_or_refused(seed: int, version: int) -> None:
    kind = payload_type(DESCRIBE_CONFIGS, version, "request")
    resource = part_type(kind, "DescribeConfigsResource")
    random = RandomMessages(Random(seed))
    asked = (
        random.entity(resource, resource_type=of_type, configuration_keys=keys)
        for of_type, keys in ((BROKER, (NUM, "a")), (TOPIC, None), (BROKER, None))
    )
    frame = to_frame(random.entity(kind, resources=tuple(asked)))
    assert asked_brokers(frame, version, {NUM}) is not None
    with suppress(ProtocolError):
        asked_brokers(mutate(frame, Random(seed)), version, {NUM})
