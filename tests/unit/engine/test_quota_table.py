"""Which counter, which limit: spec table of eight levels, and Kafka's ClientQuotaManagerTest."""

import pytest

from kvota.engine import QuotaTable, QuotaType
from kvota.engine.sanitising import sanitise, tags_text
from kvota.model.quota_entity import DEFAULT, QuotaEntity

_P = QuotaType.PRODUCE


def _table(*entities: QuotaEntity) -> QuotaTable:
    return QuotaTable({entity: {_P: float(n + 1)} for n, entity in enumerate(entities)})


_USER = QuotaEntity(user="u")
_USER_DEFAULT = QuotaEntity(user=DEFAULT)
_CLIENT = QuotaEntity(client_id="c")
_CLIENT_DEFAULT = QuotaEntity(client_id=DEFAULT)
_BOTH = QuotaEntity(user="u", client_id="c")
_BOTH_DEFAULT = QuotaEntity(user=DEFAULT, client_id=DEFAULT)
_U_ANY_CLIENT = QuotaEntity(user="u", client_id=DEFAULT)
_ANY_USER_C = QuotaEntity(user=DEFAULT, client_id="c")
# Quotas of somebody else: make it a mixture of kinds without matching.
_ELSE = (QuotaEntity(user="x"), QuotaEntity(user="x", client_id="y"), QuotaEntity(client_id="y"))


@pytest.mark.parametrize(
    ("entity", "tags"),
    [
        (_BOTH, ("u", "c")),
        (_U_ANY_CLIENT, ("u", "c")),
        (_USER, ("u", "")),
        (_ANY_USER_C, ("u", "c")),
        (_BOTH_DEFAULT, ("u", "c")),
        (_USER_DEFAULT, ("u", "")),
        (_CLIENT, ("", "c")),
        (_CLIENT_DEFAULT, ("", "c")),
    ],
)
def test_each_level_counts_on_its_own_tags(entity: QuotaEntity, tags: tuple[str, str]) -> None:
    table = _table(entity, *_ELSE)

    assert table.tags(_P, "u", "c") == tags
    assert table.limit(_P, tags) == 1.0


@pytest.mark.parametrize(
    ("entities", "tags"),
    [
        ((), ("", "c")),
        ((QuotaEntity(client_id="y"),), ("", "c")),
        ((QuotaEntity(user="x"),), ("u", "")),
        ((QuotaEntity(user="x", client_id="y"),), ("u", "c")),
        ((QuotaEntity(user="x"), QuotaEntity(client_id="y")), ("", "c")),
    ],
)
def test_the_kinds_that_exist_choose_for_clients_nobody_matches(
    entities: tuple[QuotaEntity, ...], tags: tuple[str, str]
) -> None:
    table = _table(*entities)

    assert table.tags(_P, "u", "c") == tags
    assert table.limit(_P, tags) is None


def test_the_first_and_the_last_quota_of_a_kind_move_everybody() -> None:
    alone = QuotaTable().with_quota(_USER_DEFAULT, _P, 10.0)
    mixed = alone.with_quota(QuotaEntity(client_id="y"), _P, 5.0)
    again = mixed.with_quota(QuotaEntity(client_id="y"), _P, None)

    assert alone.tags(_P, "u", "") == ("u", "")
    assert mixed.tags(_P, "u", "y") == ("u", "")
    assert mixed.with_quota(_USER_DEFAULT, _P, None).tags(_P, "u", "y") == ("", "y")
    assert again.tags(_P, "u", "y") == ("u", "")


def test_removing_the_last_quota_of_a_type_switches_it_off() -> None:
    table = QuotaTable({_USER: {_P: 10.0, QuotaType.FETCH: 20.0}})

    without = table.with_quota(_USER, _P, None)

    assert not without.enabled(_P)
    assert without.enabled(QuotaType.FETCH)
    assert without.tags(_P, "u", "c") == ("", "c")
    assert table.enabled(_P)  # the old snapshot is untouched


def test_removing_what_was_never_set_changes_nothing() -> None:
    table = QuotaTable().with_quota(_USER, _P, None)

    assert table.entries() == {}
    assert not table.enabled(_P)


@pytest.mark.parametrize("default", [_U_ANY_CLIENT, _BOTH_DEFAULT, _CLIENT_DEFAULT])
def test_an_empty_client_id_escapes_client_defaults(default: QuotaEntity) -> None:
    table = _table(default)

    assert table.limit(_P, table.tags(_P, "u", "")) is None


def test_an_empty_client_id_of_a_matched_pair_has_its_limit_looked_up_at_the_user() -> None:
    table = _table(_U_ANY_CLIENT, _USER)

    tags = table.tags(_P, "u", "")

    assert tags == ("u", "")
    assert table.limit(_P, tags) == 2.0


def test_a_user_called_default_is_no_default() -> None:
    table = _table(QuotaEntity(user="<default>"))

    assert table.tags(_P, "<default>", "c") == ("%3Cdefault%3E", "")
    assert table.limit(_P, ("%3Cdefault%3E", "")) == 1.0
    assert table.limit(_P, ("u", "")) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.Name-1_", "plain.Name-1_"),
        ("a b", "a%20b"),
        ("*~=", "%2A%7E%3D"),
        ("CN=é,O=x", "CN%3D%C3%A9%2CO%3Dx"),
        ("<default>", "%3Cdefault%3E"),
        ("a%2Ab", "a%252Ab"),
        ("\ud800", "%3F"),
        ("", ""),
    ],
)
def test_names_are_encoded_as_kafkas_sanitizer_does(name: str, text: str) -> None:
    assert sanitise(name) == text


def test_tags_of_an_event_are_never_ambiguous() -> None:
    table = _table(_BOTH)

    tags = table.tags(_P, "a,user=b", "client@#$%")

    assert tags[1] == "client@#$%"  # raw, as Kafka's own tags
    assert tags_text(tags) == "client-id=client%40%23%24%25,user=a%2Cuser%3Db"
    assert tags_text(("", "c")) == "client-id=c,user="
