"""The table of APIs against kio's classes, which are generated from Kafka's message definitions."""

from dataclasses import fields

import pytest
from kio.schema.index import api_key_map

from kvota.testing.kafka_messages import payload_type, versions
from kvota.wire import refusals
from kvota.wire.addresses import _REWRITES
from kvota.wire.apis import (
    APIS,
    NEVER,
    Treatment,
    name_of,
)

KEYS = sorted(APIS)
# Where we stop below what kio knows, each for the reason in apis.py.
LEFT_OUT_FROM_KIO = {55: 1}
BETWEEN_BROKERS = {*range(4, 8), 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}
SHARE_GROUP_KEYS = {76, 77, 78, 79}
KEYS_AND_VERSIONS = [(key, version) for key in KEYS for version in versions(key)]


def untagged_names(key: int, version: int) -> list[str]:
    answer = payload_type(key, version, "response")
    return [field.name for field in fields(answer) if "tag" not in field.metadata]


def test_every_api_of_clients_is_in_the_table() -> None:
    left_out = set(api_key_map) - set(APIS)

    assert left_out == BETWEEN_BROKERS & set(api_key_map)


def test_the_table_has_no_api_that_kio_lacks() -> None:
    assert set(APIS) - set(api_key_map) == set()


@pytest.mark.parametrize("key", KEYS)
def test_the_highest_version_is_that_of_kafka_4_3_or_lower_for_a_reason(key: int) -> None:
    assert APIS[key].version_max == LEFT_OUT_FROM_KIO.get(key, versions(key)[-1])


@pytest.mark.parametrize("key", KEYS)
def test_the_lowest_version_reaches_down_to_the_first_brokers(key: int) -> None:
    # v0 of share groups was Kafka 4.0's early access, which kio does not know either.
    assert APIS[key].version_min == (1 if key in SHARE_GROUP_KEYS else 0)


@pytest.mark.parametrize(("key", "version"), KEYS_AND_VERSIONS)
def test_flexible_versions_are_kafkas(key: int, version: int) -> None:
    request = payload_type(key, version, "request")

    assert (version >= APIS[key].flexible_from) == request.__flexible__


@pytest.mark.parametrize(("key", "version"), KEYS_AND_VERSIONS)
def test_an_answer_has_a_throttle_time_where_the_table_says_so(key: int, version: int) -> None:
    names = untagged_names(key, version)

    assert (version >= APIS[key].throttle_from) == ("throttle_time" in names)


# DescribeConfigs has addresses within the values of settings, where no field says so.
@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key, version in KEYS_AND_VERSIONS if key != 32]
)
def test_an_answer_with_hosts_and_ports_is_rewritten_or_its_version_left_out(
    key: int, version: int
) -> None:
    module = payload_type(key, version, "response").__module__
    with open(module_file(module), encoding="utf-8") as source:  # noqa: PTH123 - a module's file
        text = source.read()
    has_addresses = "    port: " in text and "    host: " in text

    is_left_out = version > APIS[key].version_max
    # The endpoints of Kafka Streams are the applications' own, no brokers'.
    is_streams = key in {88, 89}
    assert (version >= APIS[key].addresses_from or is_left_out or is_streams) == has_addresses


def module_file(name: str) -> str:
    import importlib  # noqa: PLC0415 - one use

    found = importlib.import_module(name).__file__
    assert found is not None
    return found


def test_only_produce_may_announce_the_size_of_kafkas_largest_request() -> None:
    largest = {key for key, api in APIS.items() if api.request_bytes_max > 8 * 2**20}

    assert largest == {0}
    assert APIS[0].request_bytes_max == 100 * 2**20


def test_before_a_login_little_may_be_announced() -> None:
    assert [APIS[key].request_bytes_max for key in (17, 18, 36)] == [8192, 8192, 512 * 1024]


def test_an_unknown_key_has_a_name_for_messages() -> None:
    assert (name_of(1), name_of(83)) == ("Fetch", "key 83")


def test_every_api_with_addresses_has_a_function_that_rewrites_them() -> None:
    assert {api.key for api in APIS.values() if api.addresses_from != NEVER} == set(_REWRITES)


def keys_of(treatment: Treatment) -> set[int]:
    return {api.key for api in APIS.values() if api.treatment is treatment}


def test_what_decides_on_a_connection_is_read_whole_and_what_names_brokers_is_rewritten() -> None:
    logins_and_versions, mutations, error_texts = {17, 18, 36}, {19, 20, 37}, {33, 44}
    quotas = {48, 49}

    assert keys_of(Treatment.EXCHANGE) == logins_and_versions | mutations | error_texts | quotas
    assert keys_of(Treatment.REWRITE) == {3, 10, 32, 60, 79} | refusals.KEYS
    assert (keys_of(Treatment.PRODUCE), keys_of(Treatment.FETCH)) == ({0}, {1})
    assert keys_of(Treatment.SHARE_FETCH) == {78}
    assert keys_of(Treatment.COUNTED) == {24, 25, 28}


def test_no_answer_with_addresses_is_passed_on_as_it_is() -> None:
    named = {api.key for api in APIS.values() if api.addresses_from != NEVER}

    assert not named & (
        keys_of(Treatment.PASS) | keys_of(Treatment.EXCHANGE) | keys_of(Treatment.COUNTED)
    )
