"""Precedence of quotas, as a law over any set of configured entities."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType

# KIP-55's order, most specific first, as seen by user "alice" with client id "app".
pytestmark = pytest.mark.timeout(90)

# On a busy machine a slow example is no fault of the code.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_LEVELS = (
    QuotaEntity(user="alice", client_id="app"),
    QuotaEntity(user="alice", client_id=DEFAULT),
    QuotaEntity(user="alice"),
    QuotaEntity(user=DEFAULT, client_id="app"),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity(user=DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
)
# Others' quotas may change which kinds exist and so alice's counter, never her limit.
_OTHERS = (
    QuotaEntity(user="bob", client_id="app"),
    QuotaEntity(user="bob", client_id=DEFAULT),
    QuotaEntity(user="bob"),
    QuotaEntity(user=DEFAULT, client_id="other"),
    QuotaEntity(client_id="other"),
)
_ENTITIES = st.sets(st.sampled_from(_LEVELS + _OTHERS))
_CLIENTS = [("alice", "app"), ("alice", ""), ("bob", "other"), ("carol", "app")]


def _callback(entities: set[QuotaEntity], limit: float = 7.0) -> DefaultQuotaCallback:
    of_type = {entity: {QuotaType.FETCH: limit} for entity in entities}
    return DefaultQuotaCallback(ConfiguredQuotas(of_type))


@_CALM
@given(entities=_ENTITIES)
def test_the_most_specific_quota_wins(entities: set[QuotaEntity]) -> None:
    limit_of = {entity: float(n + 1) for n, entity in enumerate(_LEVELS + _OTHERS)}
    quotas = ConfiguredQuotas(
        {entity: {QuotaType.PRODUCE: limit_of[entity]} for entity in entities}
    )
    callback = DefaultQuotaCallback(quotas)
    expected = next((limit_of[level] for level in _LEVELS if level in entities), None)

    tags = callback.quota_metric_tags(QuotaType.PRODUCE, "alice", "app")

    assert callback.quota_limit(QuotaType.PRODUCE, tags) == expected


@_CALM
@given(entities=_ENTITIES, more=_ENTITIES)
def test_setting_and_removing_comes_back_to_the_same_answers(
    entities: set[QuotaEntity], more: set[QuotaEntity]
) -> None:
    untouched, changed = _callback(entities), _callback(entities)
    for entity in more - entities:
        changed.update_quota(QuotaType.FETCH, entity, 9.0)

    for entity in more - entities:
        changed.remove_quota(QuotaType.FETCH, entity)

    assert changed.enabled(QuotaType.FETCH) == bool(entities)
    tags = [changed.quota_metric_tags(QuotaType.FETCH, *client) for client in _CLIENTS]
    assert tags == [untouched.quota_metric_tags(QuotaType.FETCH, *client) for client in _CLIENTS]
    assert [changed.quota_limit(QuotaType.FETCH, one) for one in tags] == [
        untouched.quota_limit(QuotaType.FETCH, one) for one in tags
    ]


@_CALM
@given(entities=_ENTITIES, after=_ENTITIES)
def test_changes_one_by_one_lead_where_a_new_callback_begins(
    entities: set[QuotaEntity], after: set[QuotaEntity]
) -> None:
    changed, fresh = _callback(entities), _callback(after, 9.0)

    for entity in after:
        changed.update_quota(QuotaType.FETCH, entity, 9.0)
    for entity in entities - after:
        changed.remove_quota(QuotaType.FETCH, entity)

    for client in _CLIENTS:
        tags = changed.quota_metric_tags(QuotaType.FETCH, *client)
        assert tags == fresh.quota_metric_tags(QuotaType.FETCH, *client)
        assert changed.quota_limit(QuotaType.FETCH, tags) == fresh.quota_limit(
            QuotaType.FETCH, tags
        )


@_CALM
@given(entities=_ENTITIES, entity=st.sampled_from(_LEVELS + _OTHERS), is_removed=st.booleans())
def test_nobody_moves_without_a_reset_being_asked_for(
    entities: set[QuotaEntity], entity: QuotaEntity, is_removed: bool
) -> None:
    callback = _callback(entities)
    before = [callback.quota_metric_tags(QuotaType.FETCH, *client) for client in _CLIENTS]
    was_enabled = callback.enabled(QuotaType.FETCH)

    if is_removed:
        callback.remove_quota(QuotaType.FETCH, entity)
    else:
        callback.update_quota(QuotaType.FETCH, entity, 9.0)

    moved = was_enabled != callback.enabled(QuotaType.FETCH) or before != [
        callback.quota_metric_tags(QuotaType.FETCH, *client) for client in _CLIENTS
    ]
    assert callback.quota_reset_required(QuotaType.FETCH) or not moved
