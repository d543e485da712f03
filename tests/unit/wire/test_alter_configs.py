"""AlterConfigs and IncrementalAlterConfigs in every version: read, cut down by slices, answered."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.frames import decoded
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    mutate,
    part_type,
    payload_type,
    to_frame,
    versions,
)
from kvota.wire.alter_configs import (
    AlterConfigsRequest,
    Result,
    own_answer,
    request_for,
    scan_request,
    with_results,
)
from kvota.wire.steps import at_once

LEGACY, INCREMENTAL = 33, 44
VERSIONS = [(key, version) for key in (LEGACY, INCREMENTAL) for version in versions(key)]
NUM = "quota.window.num"
BROKER, TOPIC = 4, 2
ALL, ONE, ORDERS = (BROKER, ""), (BROKER, "1"), (TOPIC, "orders")


def asked(key: int, version: int, *resources: tuple[int, str, dict[str, str | None]]) -> Any:
    """Settings of these resources, each with what a later version may add."""
    random = RandomMessages(Random(1))
    kind = payload_type(key, version, "request")
    resource, config = part_type(kind, "AlterConfigsResource"), part_type(kind, "AlterableConfig")
    operation = {"config_operation": 0} if key == INCREMENTAL else {}
    return random.entity(
        kind,
        validate_only=True,
        resources=tuple(
            random.entity(
                resource,
                resource_type=of_type,
                resource_name=name,
                configs=tuple(
                    random.entity(config, name=each, value=value, **operation)
                    for each, value in settings.items()
                ),
            )
            for of_type, name, settings in resources
        ),
    )


def scanned(message: Any, key: int) -> AlterConfigsRequest:
    return at_once(scan_request(to_frame(message), key))


def resources_of(
    frame: bytes | None, key: int, version: int
) -> list[tuple[int, str, dict[str, Any]]]:
    assert frame is not None
    return [
        (each.resource_type, each.resource_name, {one.name: one.value for one in each.configs})
        for each in from_frame(frame, key, version, "request").resources
    ]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_request_is_read(key: int, version: int) -> None:
    request = scanned(asked(key, version, (*ALL, {NUM: "5", "a": None}), (*ORDERS, {})), key)

    assert [each.key for each in request.resources] == [ALL, ORDERS]
    assert [each[:3] for each in request.resources[0].operations] == [(NUM, "5", 0), ("a", None, 0)]
    assert request.validate_only
    assert request.replaces == (key == LEGACY)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_what_is_left_of_a_request(key: int, version: int) -> None:
    message = asked(
        key, version, (*ALL, {NUM: "5", "a": "1"}), (*ORDERS, {NUM: "7"}), (*ONE, {"b": "2"})
    )
    request = scanned(message, key)
    without = {ALL: lambda name: name == NUM}

    assert request_for(request, left_out=(), without={}) == to_frame(message)
    trimmed = request_for(request, left_out=[ONE], without=without)
    # The same name is a topic's own business.
    assert resources_of(trimmed, key, version) == [(*ALL, {"a": "1"}), (*ORDERS, {NUM: "7"})]
    assert request_for(request, left_out=[ALL, ONE, ORDERS], without=without) is None


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_answers_of_our_own_and_beside_a_brokers(key: int, version: int) -> None:
    results = [Result(ALL, 42, "no"), Result(ONE, 0, None)]
    own = at_once(own_answer(key, version, 7, results, throttle_ms=3))

    answer = decoded(own, key, version)
    assert answer.throttle_time.total_seconds() == 0.003
    brokers = at_once(own_answer(key, version, 7, [Result(ORDERS, 0, None)], throttle_ms=5))
    both = decoded(at_once(with_results(brokers, key, version, results)), key, version)
    for found, expected in ((answer, results), (both, [*results, Result(ORDERS, 0, None)])):
        assert [
            ((each.resource_type, each.resource_name), int(each.error_code), each.error_message)
            for each in found.responses
        ] == expected
    assert both.throttle_time.total_seconds() == 0.005


def test_a_text_is_cut_to_what_a_string_may_have() -> None:
    (told,) = decoded(
        at_once(own_answer(33, 0, 1, [Result(ALL, 42, "ä" * 20_000)], throttle_ms=0)), 33, 0
    ).responses

    assert len(told.error_message.encode()) == 32_766


@given(seed=st.integers(0, 2**32), which=st.sampled_from(VERSIONS))
def test_damaged_requests_are_read_or_refused(seed: int, which: tuple[int, int]) -> None:
    key, version = which
    frame = to_frame(asked(key, version, (*ALL, {NUM: "5", "a": None}), (*ORDERS, {"b": "c"})))
    with suppress(ProtocolError):
        at_once(scan_request(mutate(frame, Random(seed)), key))
