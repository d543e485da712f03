"""Which alterations are taken, and with which words others are refused.

The tables are those of Kafka's own tests: ``ClientQuotaControlManagerTest``, ``ClientQuotasRequestTest``.
"""

from math import inf, nan

import pytest
from tests.unit.quota_api.written import Entity, Values, alteration

from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.quota_api.alteration import CHANGES_MAX, Judged, host_names, judge
from kvota.quota_api.entity import quota_entity
from kvota.wire import client_quotas as wire
from kvota.wire.client_quotas import Part
from kvota.wire.steps import at_once

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION, CONNECTION = (
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
USER = QuotaEntity(user="user-1")
NO_COMBINATION = (
    "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
)


def judged(
    *entries: tuple[Entity, Values],
    quotas: ClientQuotas | None = None,
    unknown_hosts: frozenset[str] = frozenset(),
) -> Judged:
    request = at_once(wire.scan_alteration(alteration(*entries)))
    return at_once(judge(request.entries, quotas or ClientQuotas(), unknown_hosts))


def message(entity: Entity, values: Values, **more: frozenset[str]) -> str | None:
    """What is said of one entry; None: it is taken."""
    found = judged((entity, values), **more)  # type: ignore[arg-type]
    (result,) = found.results
    assert result.error_code == (0 if result.message is None else 42)
    assert result.message is None or not found.changes
    return result.message


# ------------------------------------------------------------------ entities


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"user": ""}, "Empty user not supported"),
        ({"client-id": ""}, "Empty client-id not supported"),
        ({"ip": ""}, "Empty ip not supported"),
        ({"foo": "bar"}, "Unhandled client quota entity type: foo"),
        ({"": "name"}, "Unhandled client quota entity type: "),
        ({"user": "user-1", "foo": "bar"}, "Unhandled client quota entity type: foo"),
        ({"foo": "bar", "ip": "1.2.3.4"}, "Unhandled client quota entity type: foo"),
        ({"user": "user-1", "ip": "1.2.3.4"}, NO_COMBINATION),
        ({"client-id": "user-1", "ip": "1.2.3.4"}, NO_COMBINATION),
        ({"user": None, "client-id": None, "ip": None}, NO_COMBINATION),
        ({}, "Invalid empty client quota entity"),
    ],
)
def test_entities_that_cannot_be(entity: dict[str, str | None], words: str) -> None:
    assert message(entity, {PRODUCER: 10_000.0}) == words


@pytest.mark.parametrize(
    "entity",
    [
        {kind: name for kind, name in (("user", user), ("client-id", client)) if name != "absent"}
        for user in ("absent", "u", None, "<default>")
        for client in ("absent", "c", None)
        if (user, client) != ("absent", "absent")
    ],
)
def test_every_combination_of_names_and_defaults(entity: dict[str, str | None]) -> None:
    found = judged((entity, {REQUEST: 50.5}))

    (change,) = found.changes
    assert (change.key, change.value) == (REQUEST, 50.5)
    assert change.entity == quota_entity(entity)


def test_of_a_type_that_is_named_twice_the_last_name_counts() -> None:
    found = judged(([("user", "a"), ("user", None)], {PRODUCER: 1.0}))

    assert found.changes == [KeyChange(QuotaEntity(user=DEFAULT), PRODUCER, 1.0)]
    assert found.results[0].parts == (Part("user", None),)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", None])
def test_an_ip_that_somebody_knows(name: str | None) -> None:
    assert message({"ip": name}, {CONNECTION: 5.0}) is None


@pytest.mark.parametrize("name", ["example.invalid", "not a valid host because it has spaces"])
def test_an_ip_that_nobody_knows(name: str) -> None:
    words = message({"ip": name}, {CONNECTION: 5.0}, unknown_hosts=frozenset({name}))

    assert words == f"{name} is not a valid IP or resolvable host."


def test_names_that_must_be_looked_up_before() -> None:
    entries = [
        ({"ip": "a"}, {}),
        ({"ip": None}, {}),
        ({"ip": ""}, {}),
        ([("ip", "x"), ("ip", "b")], {}),
        ({"user": "ip"}, {}),
        ({}, {}),
    ]
    request = at_once(wire.scan_alteration(alteration(*entries)))

    assert host_names(request.entries) == {"a", "b"}


# ------------------------------------------------------------------ keys and values


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"not.a.quota.key": 0.0, REQUEST: 99.9}, "not.a.quota.key"),
        ({REQUEST: 99.9, "not.a.quota.key": 0.0}, "not.a.quota.key"),
        ({"bad": 1.0}, "bad"),
        ({"": 1.0}, ""),
        ({CONNECTION: 1.0}, CONNECTION),
    ],
)
def test_keys_that_a_user_does_not_have(values: dict[str, float], key: str) -> None:
    assert message({"user": "user-1"}, values) == f"Invalid configuration key {key}"


@pytest.mark.parametrize(
    ("name", "entity"), [("u", QuotaEntity(user="u")), (None, QuotaEntity(user=DEFAULT))]
)
def test_a_user_and_the_default_user_may_have_a_quota_on_new_producer_ids(
    name: str | None, entity: QuotaEntity
) -> None:
    found = judged(({"user": name}, {PRODUCER_IDS_KEY: 0.5}))

    assert found.changes == [KeyChange(entity, PRODUCER_IDS_KEY, 0.5)]
    assert found.results[0].message is None


@pytest.mark.parametrize(
    "entity",
    [
        {"client-id": "c"},
        {"client-id": None},
        {"user": "u", "client-id": "c"},
        {"user": None, "client-id": None},
        {"ip": "1.2.3.4"},
        {"ip": None},
    ],
)
def test_only_users_may_have_a_quota_on_new_producer_ids(entity: dict[str, str | None]) -> None:
    words = f"Invalid configuration key {PRODUCER_IDS_KEY}"
    assert message(entity, {PRODUCER_IDS_KEY: 100.0}) == words


@pytest.mark.parametrize("key", [PRODUCER, CONSUMER, REQUEST, MUTATION])
def test_keys_that_an_ip_does_not_have(key: str) -> None:
    assert message({"ip": "1.2.3.4"}, {key: 1.0}) == f"Invalid configuration key {key}"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (PRODUCER, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (CONSUMER, -2.0, "Quota consumer_byte_rate must be greater than 0"),
        (REQUEST, 0.0, "Quota request_percentage must be greater than 0"),
        (MUTATION, -inf, "Quota controller_mutation_rate must be greater than 0"),
        (CONSUMER, 1234.0, None),
        (
            CONSUMER,
            36893488147419103232.4,
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (PRODUCER, inf, "Proposed value for producer_byte_rate is too large for a LONG."),
        (PRODUCER, 2.0**63, None),
        (CONSUMER, 2.245, "consumer_byte_rate cannot be a fractional value."),
        (PRODUCER, 10000.5, "producer_byte_rate cannot be a fractional value."),
        (CONSUMER, 1235.0000001, None),
        (CONSUMER, 1234.9999999, "consumer_byte_rate cannot be a fractional value."),
        (REQUEST, 56.62367, None),
        (REQUEST, inf, None),
        (MUTATION, 5e-324, None),
        (PRODUCER, nan, None),
        (REQUEST, nan, None),
    ],
)
def test_values(key: str, value: float, words: str | None) -> None:
    assert message({"user": "user-1"}, {key: value}) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2_147_483_647.0, None),
        (2_147_483_648.0, "Proposed value for connection_creation_rate is too large for an INT."),
        (1.5, "connection_creation_rate cannot be a fractional value."),
        (nan, None),
    ],
)
def test_values_of_connection_rates(value: float, words: str | None) -> None:
    assert message({"ip": None}, {CONNECTION: value}) == words


@pytest.mark.parametrize("value", [1.0, None])
def test_a_key_that_is_there_twice(value: float | None) -> None:
    words = message({"user": "user-1"}, [(PRODUCER, 1.0), (PRODUCER, value)])

    assert words == "Ignoring duplicate entity ClientQuotaEntity(entries={user=user-1})"


def test_an_entry_is_taken_whole_or_not_at_all_and_does_not_touch_others() -> None:
    found = judged(
        ({"user": "a"}, {PRODUCER: 1.0, CONSUMER: 0.0}),
        ({"user": "b"}, {PRODUCER: 1.0}),
    )

    assert [change.entity.user for change in found.changes] == ["b"]
    assert sorted(result.error_code for result in found.results) == [0, 42]


def test_an_entity_that_comes_again_is_refused_and_stays_as_it_was_set_first() -> None:
    found = judged(
        ({"user": "a", "client-id": "c"}, {PRODUCER: 1.0}),
        ({"client-id": "c", "user": "a"}, {PRODUCER: 2.0}),
    )

    (result,) = found.results
    words = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=a})"
    assert (result.error_code, result.message) == (42, words)
    assert [change.value for change in found.changes] == [1.0]


# ------------------------------------------------------------------ what changes


def test_alter_and_remove() -> None:
    quotas = ClientQuotas()

    def after(**values: float | None) -> dict[str, float]:
        nonlocal quotas
        found = judged(({"user": "user-1"}, values), quotas=quotas)
        assert [result.error_code for result in found.results] == [0]
        quotas = quotas.with_changes(found.changes)
        return dict(quotas.entries().get(USER, {}))

    assert after(producer_byte_rate=10_000.0) == {PRODUCER: 10_000.0}
    assert after(producer_byte_rate=10_001.0, consumer_byte_rate=20_000.0) == {
        PRODUCER: 10_001.0,
        CONSUMER: 20_000.0,
    }
    assert after(producer_byte_rate=None) == {CONSUMER: 20_000.0}
    assert after(request_percentage=None) == {CONSUMER: 20_000.0}
    assert after(consumer_byte_rate=None) == {}
    assert len(quotas) == 0
    assert after(consumer_byte_rate=None) == {}
    assert after(
        request_percentage=99.0,
        controller_mutation_rate=None,
        producer_byte_rate=10_002.0,
        consumer_byte_rate=20_001.0,
    ) == {REQUEST: 99.0, PRODUCER: 10_002.0, CONSUMER: 20_001.0}


@pytest.mark.parametrize("value", [1000.0, nan, inf])
def test_what_is_so_already_is_no_change(value: float) -> None:
    quotas = ClientQuotas({USER: {REQUEST: value}})

    found = judged(({"user": "user-1"}, {REQUEST: value}), quotas=quotas)

    assert found.changes == []
    assert [result.error_code for result in found.results] == [0]


def test_a_key_that_nobody_knows_can_be_removed_without_effect() -> None:
    found = judged(({"user": "user-1"}, {"foo": None, CONNECTION: None}))

    assert (found.changes, [result.error_code for result in found.results]) == ([], [0])


def test_no_entries_are_no_results() -> None:
    assert judged() == Judged([], [])


def test_more_changes_than_a_controller_takes_fail_as_a_whole() -> None:
    entries = [
        ({"user": f"u{number}"}, {PRODUCER: 1.0, CONSUMER: 1.0})
        for number in range(CHANGES_MAX // 2 + 1)
    ]
    all_but_one = judged(*entries[:-1])
    too_many = judged(*entries, ({"user": "u0"}, {PRODUCER: 1.0}))

    assert len(all_but_one.changes) == CHANGES_MAX
    assert not too_many.changes
    assert len(too_many.results) == len(entries) + 1  # also the entity that is there twice
    assert {(result.error_code, result.message) for result in too_many.results} == {
        (44, "Request parameters do not satisfy the configured policy.")
    }


def test_what_is_so_already_does_not_count_against_the_most() -> None:
    entries = [({"user": f"u{number}"}, {PRODUCER: 1.0}) for number in range(CHANGES_MAX + 1)]
    quotas = ClientQuotas({QuotaEntity(user="u0"): {PRODUCER: 1.0}})

    assert len(judged(*entries, quotas=quotas).changes) == CHANGES_MAX


def test_where_others_alter_too_only_what_differs_counts_against_the_most() -> None:
    entries = [({"user": f"u{number}"}, {PRODUCER: 1.0}) for number in range(CHANGES_MAX + 1)]
    request = at_once(wire.scan_alteration(alteration(*entries)))
    quotas = ClientQuotas({QuotaEntity(user="u0"): {PRODUCER: 1.0}})

    found = at_once(judge(request.entries, quotas, frozenset(), may_lag=True))

    assert len(found.changes) == CHANGES_MAX + 1
    assert {result.error_code for result in found.results} == {0}


def test_answers_come_in_the_order_of_a_brokers_map() -> None:
    names = ["user-1", "user-2", "a", "b", "müller"]

    found = judged(*[({"user": name}, {PRODUCER: 1.0}) for name in names])

    # As a broker of Kafka 4.3.1 answers the same request.
    assert [result.parts[0].name for result in found.results] == [
        "müller",
        "user-2",
        "user-1",
        "b",
        "a",
    ]
