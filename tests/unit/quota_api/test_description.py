"""Which quotas a filter finds, and with which words one is refused.

The entities and the numbers of matches are those of Kafka's ``ClientQuotasRequestTest``.
"""

import pytest
from tests.unit.quota_api.written import DESCRIBE, description

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.quota_api.description import Descriptions, matching, refusal
from kvota.testing.frames import decoded
from kvota.wire.client_quotas import ANY, EXACT, Filter, description_answer, scan_filter
from kvota.wire.client_quotas import DEFAULT as DEFAULT_NAME
from kvota.wire.headers import is_flexible
from kvota.wire.steps import at_once

REQUEST, CONNECTION = "request_percentage", "connection_creation_rate"
USERS_AND_CLIENTS: list[tuple[EntityName, EntityName, float]] = [
    ("user-1", "client-id-1", 50.50),
    ("user-2", "client-id-1", 51.51),
    ("user-3", "client-id-2", 52.52),
    (DEFAULT, "client-id-1", 53.53),
    ("user-1", DEFAULT, 54.54),
    ("user-3", DEFAULT, 55.55),
    ("user-1", None, 56.56),
    ("user-2", None, 57.57),
    ("user-3", None, 58.58),
    (DEFAULT, None, 59.59),
    (None, "client-id-2", 60.60),
]
QUOTAS = ClientQuotas(
    {QuotaEntity(user, client): {REQUEST: value} for user, client, value in USERS_AND_CLIENTS}
    | {QuotaEntity(ip="1.2.3.4"): {CONNECTION: 10.0}, QuotaEntity(ip="2.3.4.5"): {CONNECTION: 20.0}}
)
Component = tuple[str, int, str | None]


def asked(*components: Component, strict: bool) -> Filter:
    return scan_filter(description(*components, strict=strict))


def found(*components: Component, strict: bool) -> list[QuotaEntity]:
    wanted = asked(*components, strict=strict)
    assert refusal(wanted) is None
    found = at_once(matching(wanted, QUOTAS))
    assert all(values == QUOTAS.entries()[entity] for entity, values in found)
    return [entity for entity, _ in found]


@pytest.mark.parametrize(
    ("components", "strict", "matches"),
    [
        ([("user", EXACT, "user-1")], False, 3),
        ([("user", EXACT, "unknown")], False, 0),
        ([("client-id", EXACT, "client-id-2")], False, 2),
        ([("user", DEFAULT_NAME, None)], False, 2),
        ([("user", EXACT, "user-2")], True, 1),
        ([("client-id", EXACT, "client-id-1")], True, 0),
        ([("user", ANY, None)], True, 4),
        ([("user", ANY, None)], False, 10),
        ([("client-id", ANY, None)], True, 1),
        ([("client-id", ANY, None)], False, 7),
        ([("ip", ANY, None)], False, 2),
        ([("ip", ANY, None)], True, 2),
        ([], False, 13),
        ([], True, 0),
        ([("user", ANY, None), ("client-id", ANY, None)], True, 6),
        ([("user", EXACT, "user-3"), ("client-id", DEFAULT_NAME, None)], True, 1),
        ([("user", EXACT, "user-3"), ("client-id", ANY, None)], False, 2),
        ([("user", EXACT, "")], True, 0),
        ([("user", EXACT, "<default>")], True, 0),
    ],
)
def test_how_many_match(components: list[Component], *, strict: bool, matches: int) -> None:
    assert len(found(*components, strict=strict)) == matches


@pytest.mark.parametrize("entity", QUOTAS.entries())
def test_each_entity_is_found_by_its_names(entity: QuotaEntity) -> None:
    named = (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
    components: list[Component] = [
        (kind, DEFAULT_NAME, None) if name is DEFAULT else (kind, EXACT, str(name))
        for kind, name in named
        if name is not None
    ]

    assert found(*components, strict=True) == [entity]
    assert entity in found(*components, strict=False)


INVALID, UNSUPPORTED = 42, 35
NO_COMBINATION = (
    "Invalid entity filter component combination. IP filter component should not be used with user or "
    "clientId filter component."
)


@pytest.mark.parametrize(
    ("components", "error_code", "words"),
    [
        ([("", EXACT, "a")], INVALID, "Invalid empty entity type."),
        (
            [("user", EXACT, "a"), ("user", ANY, None)],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("other", EXACT, "name")], UNSUPPORTED, "Unsupported entity type other"),
        (
            [("user", EXACT, None)],
            INVALID,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT_NAME, "a")],
            INVALID,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", ANY, "")],
            INVALID,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], INVALID, "Unknown match type 3"),
        ([("user", -1, "a")], INVALID, "Unknown match type -1"),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID, NO_COMBINATION),
        ([("client-id", ANY, None), ("ip", ANY, None)], INVALID, NO_COMBINATION),
        # The first fault decides.
        ([("other", 3, None), ("", 0, None)], UNSUPPORTED, "Unsupported entity type other"),
        ([("ip", ANY, None), ("user", 9, None)], INVALID, "Unknown match type 9"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_refused(components: list[Component], error_code: int, words: str, *, strict: bool) -> None:
    assert refusal(asked(*components, strict=strict)) == (error_code, words)


def test_many_quotas_are_looked_through_in_steps() -> None:
    quotas = ClientQuotas({QuotaEntity(f"u{n}"): {REQUEST: 1.0} for n in range(12_000)})
    nothing = asked(("client-id", EXACT, "c"), strict=False)
    everything = asked(strict=False)
    descriptions = Descriptions()

    assert len(list(matching(nothing, quotas))) == 10
    assert len(list(matching(everything, quotas))) == 10
    for steps in 96, 6:  # the second time they are known
        found = at_once(matching(everything, quotas))
        assert len(list(descriptions.encoded(found, of=12_000, flexible=True))) == steps


@pytest.mark.parametrize("version", [0, 1])
def test_what_was_described_before_is_described_as_it_is_now(version: int) -> None:
    descriptions = Descriptions()
    users = [QuotaEntity(f"u{n}") for n in range(3_000)]
    quotas = ClientQuotas({user: {REQUEST: 1.0} for user in users})

    def described() -> dict[str, dict[str, float]]:
        found = at_once(matching(asked(strict=False), quotas))
        entries = at_once(
            descriptions.encoded(found, of=len(quotas), flexible=is_flexible(DESCRIBE, version))
        )
        answer = decoded(description_answer(7, version, entries, throttle_ms=0), DESCRIBE, version)
        return {
            each.entity[0].entity_name: {value.key: value.value for value in each.values}
            for each in answer.entries
        }

    assert described() == {user.user: {REQUEST: 1.0} for user in users}
    changed = KeyChange(users[5], REQUEST, 2.0)
    quotas = quotas.with_changes([changed])
    assert described() == {user.user: {REQUEST: 1.0} for user in users} | {"u5": {REQUEST: 2.0}}
    quotas = quotas.with_changes([KeyChange(user, REQUEST, None) for user in users[10:]])
    quotas = quotas.with_changes([KeyChange(users[2_000], REQUEST, 3.0)])
    left = {user.user: {REQUEST: 1.0} for user in users[:10]} | {"u5": {REQUEST: 2.0}}
    assert described() == left | {"u2000": {REQUEST: 3.0}}
    assert described() == left | {"u2000": {REQUEST: 3.0}}
