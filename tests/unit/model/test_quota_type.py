"""One table says all that differs between quota types; here is what it must be consistent in."""

import pytest

from kvota.model.quota_type import (
    BYTE_RATE_TYPES,
    CLUSTER_NODE_ID,
    CONFIGURABLE_TYPES,
    FACTS,
    TYPE_OF_KEY,
    Algorithm,
    QuotaType,
    Scope,
    Unit,
    counter_node_id,
    types_counted_by,
)


def test_every_quota_type_has_its_facts() -> None:
    assert list(FACTS) == list(QuotaType)


def test_kafkas_keys_lead_to_the_types_that_can_be_configured() -> None:
    assert dict(TYPE_OF_KEY) == {
        "producer_byte_rate": QuotaType.PRODUCE,
        "consumer_byte_rate": QuotaType.FETCH,
        "request_percentage": QuotaType.REQUEST,
        "controller_mutation_rate": QuotaType.CONTROLLER_MUTATION,
    }
    assert tuple(TYPE_OF_KEY.values()) == CONFIGURABLE_TYPES


def test_types_without_a_key_cannot_be_configured() -> None:
    without = {quota_type for quota_type in QuotaType if FACTS[quota_type].config_key is None}

    assert without == set(QuotaType) - set(CONFIGURABLE_TYPES)


def test_byte_rates_are_those_of_bandwidth() -> None:
    assert BYTE_RATE_TYPES == (QuotaType.PRODUCE, QuotaType.FETCH)
    assert {FACTS[quota_type].unit for quota_type in BYTE_RATE_TYPES} == {Unit.BYTES_PER_S}


@pytest.mark.parametrize("quota_type", QuotaType)
def test_a_floor_is_above_nothing_and_within_kafkas_keys(quota_type: QuotaType) -> None:
    facts = FACTS[quota_type]

    # Whole numbers from 1 on for byte rates; the others are doubles. No throttle of request time is narrowed.
    floors = {Unit.BYTES_PER_S: 1.0, Unit.PERCENT: 0.0}
    assert facts.floor == floors.get(facts.unit, 1e-6)


@pytest.mark.parametrize("quota_type", QuotaType)
def test_a_window_has_a_number_of_samples_and_their_length(quota_type: QuotaType) -> None:
    samples, seconds = FACTS[quota_type].window_properties

    assert samples.endswith("quota.window.num")
    assert seconds == samples.removesuffix("num") + "size.seconds"


def test_bandwidth_is_counted_per_broker_and_mutations_per_cluster() -> None:
    assert {of_type for of_type in QuotaType if FACTS[of_type].scope is Scope.CLUSTER} == {
        QuotaType.REQUEST,  # the gateway has one thread for all brokers
        QuotaType.CONTROLLER_MUTATION,
        QuotaType.PRODUCER_ID,
    }
    assert counter_node_id(QuotaType.FETCH, 7) == 7
    assert counter_node_id(QuotaType.CONTROLLER_MUTATION, 7) == CLUSTER_NODE_ID == -1


def test_each_configurable_type_is_counted_by_its_first_algorithm() -> None:
    by_rate = types_counted_by(Algorithm.SAMPLED_RATE)
    by_bucket = types_counted_by(Algorithm.TOKEN_BUCKET)

    assert by_rate == (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST)
    assert by_bucket == (QuotaType.CONTROLLER_MUTATION,)
    assert {*by_rate, *by_bucket} == set(CONFIGURABLE_TYPES)
