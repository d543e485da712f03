"""Precedence of quotas, as a law over any set of configured entities."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.engine import QuotaTable, QuotaType
from kvota.model.quota_entity import DEFAULT, QuotaEntity

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


@_CALM
@given(entities=_ENTITIES)
def test_the_most_specific_quota_wins(entities: set[QuotaEntity]) -> None:
    limit_of = {entity: float(n + 1) for n, entity in enumerate(_LEVELS + _OTHERS)}
    table = QuotaTable({entity: {QuotaType.PRODUCE: limit_of[entity]} for entity in entities})
    expected = next((limit_of[level] for level in _LEVELS if level in entities), None)

    tags = table.tags(QuotaType.PRODUCE, "alice", "app")

    assert table.limit(QuotaType.PRODUCE, tags) == expected


@_CALM
@given(entities=_ENTITIES, more=_ENTITIES)
def test_setting_and_removing_comes_back_to_the_same_table(
    entities: set[QuotaEntity], more: set[QuotaEntity]
) -> None:
    table = QuotaTable({entity: {QuotaType.FETCH: 7.0} for entity in entities})
    changed = table
    for entity in more - entities:
        changed = changed.with_quota(entity, QuotaType.FETCH, 9.0)

    for entity in more - entities:
        changed = changed.with_quota(entity, QuotaType.FETCH, None)

    assert changed.entries() == table.entries()
    assert changed.enabled(QuotaType.FETCH) == bool(entities)
    assert changed.tags(QuotaType.FETCH, "alice", "app") == table.tags(
        QuotaType.FETCH, "alice", "app"
    )
