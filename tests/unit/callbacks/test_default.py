"""Which counter, which limit: spec table of eight levels, and Kafka's ClientQuotaManagerTest."""

import pytest

from kvota.callbacks import ClientQuotaCallback, DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags, tags_text

_P = QuotaType.PRODUCE


def _callback(*entities: QuotaEntity) -> DefaultQuotaCallback:
    limits = {entity: {_P: float(n + 1)} for n, entity in enumerate(entities)}
    return DefaultQuotaCallback(ConfiguredQuotas(limits))


def _tags(user: str, client_id: str) -> Tags:
    return {"user": user, "client-id": client_id}


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
        (_BOTH, _tags("u", "c")),
        (_U_ANY_CLIENT, _tags("u", "c")),
        (_USER, _tags("u", "")),
        (_ANY_USER_C, _tags("u", "c")),
        (_BOTH_DEFAULT, _tags("u", "c")),
        (_USER_DEFAULT, _tags("u", "")),
        (_CLIENT, _tags("", "c")),
        (_CLIENT_DEFAULT, _tags("", "c")),
    ],
)
def test_each_level_counts_on_its_own_tags(entity: QuotaEntity, tags: Tags) -> None:
    callback = _callback(entity, *_ELSE)

    assert callback.quota_metric_tags(_P, "u", "c") == tags
    assert callback.quota_limit(_P, tags) == 1.0
    assert callback.deciding_entity(_P, tags) == entity


@pytest.mark.parametrize(
    ("entities", "tags"),
    [
        ((), _tags("", "c")),
        ((QuotaEntity(client_id="y"),), _tags("", "c")),
        ((QuotaEntity(user="x"),), _tags("u", "")),
        ((QuotaEntity(user="x", client_id="y"),), _tags("u", "c")),
        ((QuotaEntity(user="x"), QuotaEntity(client_id="y")), _tags("", "c")),
    ],
)
def test_the_kinds_that_exist_choose_for_clients_nobody_matches(
    entities: tuple[QuotaEntity, ...], tags: Tags
) -> None:
    callback = _callback(*entities)

    assert callback.quota_metric_tags(_P, "u", "c") == tags
    assert callback.quota_limit(_P, tags) is None


def test_the_first_and_the_last_quota_of_a_kind_move_everybody() -> None:
    callback = _callback(_USER_DEFAULT)
    y = QuotaEntity(client_id="y")
    seen = [callback.quota_metric_tags(_P, "u", "")]

    callback.update_quota(_P, y, 5.0)
    seen.append(callback.quota_metric_tags(_P, "u", "y"))
    callback.remove_quota(_P, y)
    seen.append(callback.quota_metric_tags(_P, "u", "y"))
    callback.update_quota(_P, y, 5.0)
    callback.remove_quota(_P, _USER_DEFAULT)
    seen.append(callback.quota_metric_tags(_P, "u", "y"))

    assert seen == [_tags("u", ""), _tags("u", ""), _tags("u", ""), _tags("", "y")]


def test_removing_the_last_quota_of_a_type_switches_it_off() -> None:
    quotas = ConfiguredQuotas({_USER: {_P: 10.0, QuotaType.FETCH: 20.0}})
    callback = DefaultQuotaCallback(quotas)

    callback.remove_quota(_P, _USER)

    assert not callback.enabled(_P)
    assert callback.enabled(QuotaType.FETCH)
    assert callback.quota_metric_tags(_P, "u", "c") == _tags("", "c")
    assert callback.initial_quotas == quotas  # nobody else's quotas are touched


def test_removing_what_was_never_set_changes_nothing() -> None:
    callback = _callback(_USER)

    callback.remove_quota(_P, QuotaEntity(client_id="c"))
    callback.remove_quota(QuotaType.FETCH, _USER)

    assert callback.enabled(_P)
    assert not callback.enabled(QuotaType.FETCH)
    assert callback.quota_metric_tags(_P, "u", "c") == _tags("u", "")
    assert not callback.quota_reset_required(_P)


def test_setting_a_quota_again_counts_it_once() -> None:
    callback = _callback(_USER)

    callback.update_quota(_P, _USER, 7.0)
    callback.remove_quota(_P, _USER)

    assert not callback.enabled(_P)


@pytest.mark.parametrize("default", [_U_ANY_CLIENT, _BOTH_DEFAULT, _CLIENT_DEFAULT])
def test_an_empty_client_id_escapes_client_defaults(default: QuotaEntity) -> None:
    callback = _callback(default)

    assert callback.quota_limit(_P, callback.quota_metric_tags(_P, "u", "")) is None


def test_an_empty_client_id_of_a_matched_pair_has_its_limit_looked_up_at_the_user() -> None:
    callback = _callback(_U_ANY_CLIENT, _USER)

    tags = callback.quota_metric_tags(_P, "u", "")

    assert tags == _tags("u", "")
    assert callback.quota_limit(_P, tags) == 2.0


def test_a_user_called_default_is_no_default() -> None:
    callback = _callback(QuotaEntity(user="<default>"))

    assert callback.quota_metric_tags(_P, "<default>", "c") == _tags("<default>", "")
    assert callback.quota_limit(_P, _tags("<default>", "")) == 1.0
    assert callback.quota_limit(_P, _tags("u", "")) is None


def test_a_user_is_compared_as_people_write_it() -> None:
    callback = _callback(QuotaEntity(user="CN=é, O=x"))

    tags = callback.quota_metric_tags(_P, "CN=é, O=x", "c")

    assert callback.quota_limit(_P, tags) == 1.0
    assert tags_text(tags) == "client-id=,user=CN%3D%C3%A9%2C%20O%3Dx"


def test_tags_that_say_nothing_of_user_and_client_have_no_limit() -> None:
    callback = _callback(_USER_DEFAULT, _CLIENT_DEFAULT)

    assert callback.quota_limit(_P, {}) is None
    assert callback.quota_limit(_P, {"group": "g"}) is None


# Which changes may lead clients to other counters: (configured, changed, its new limit, reset).
@pytest.mark.parametrize(
    ("configured", "entity", "limit", "resets"),
    [
        ((), _USER, 1.0, True),  # the first quota at all
        ((_USER,), _USER, None, True),  # the last one
        ((_USER,), _USER, 9.0, False),  # another limit
        ((_USER,), QuotaEntity(user="v"), 1.0, False),  # one more of the only kind
        ((_USER, QuotaEntity(user="v")), _USER, None, False),
        ((_USER,), _CLIENT, 1.0, True),  # another kind
        ((_USER, _CLIENT), _CLIENT, None, True),
        ((_USER, _CLIENT), QuotaEntity(user="v"), 1.0, True),  # among several kinds
        ((_USER, QuotaEntity(user="v"), _CLIENT), _USER, None, True),
        ((_USER, _CLIENT), _USER, 9.0, False),
    ],
)
def test_a_reset_is_asked_for_where_clients_may_belong_to_other_counters(
    configured: tuple[QuotaEntity, ...], entity: QuotaEntity, limit: float | None, resets: bool
) -> None:
    callback = _callback(*configured)
    before = callback.quota_reset_required(_P)

    if limit is None:
        callback.remove_quota(_P, entity)
    else:
        callback.update_quota(_P, entity, limit)

    assert not before
    assert not callback.quota_reset_required(QuotaType.FETCH)
    assert [callback.quota_reset_required(_P) for _ in range(2)] == [resets, False]


def test_it_is_a_callback_that_answers_at_once() -> None:
    callback = DefaultQuotaCallback()

    callback.configure({})
    callback.close()

    assert isinstance(callback, ClientQuotaCallback)
    assert callback.answers_at_once
    assert not callback.update_cluster_metadata({"topic": [1, 2, -1]})
    assert not any(callback.enabled(quota_type) for quota_type in QuotaType)
