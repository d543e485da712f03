"""What changes between two sets of quotas, and whom it reaches."""

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaType
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.diff import changes, effects, with_plan
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need
from kvota.planning.observed import Observed
from kvota.planning.plan import make_plan

ALICE = QuotaEntity(user="alice")


def test_changes_name_old_and_new_of_every_quota_that_differs() -> None:
    old = ConfiguredQuotas({ALICE: {QuotaType.PRODUCE: 4e6, QuotaType.FETCH: 1e6}})
    new = ConfiguredQuotas(
        {
            ALICE: {QuotaType.PRODUCE: 8e6, QuotaType.FETCH: 1e6},
            QuotaEntity(client_id=DEFAULT): {QuotaType.CONTROLLER_MUTATION: 5.0},
        }
    )

    assert [str(change) for change in changes(old, new)] == [
        "+ the default client-id CONTROLLER_MUTATION none -> 5.00 /s",
        "~ user-principal 'alice' PRODUCE 4.00 MB/s -> 8.00 MB/s",
    ]


def test_a_removed_quota_is_a_change_to_none() -> None:
    old = ConfiguredQuotas({ALICE: {QuotaType.PRODUCE: 4e6}})

    assert [str(change) for change in changes(old, ConfiguredQuotas())] == [
        "- user-principal 'alice' PRODUCE 4.00 MB/s -> none"
    ]


def test_the_first_quota_of_a_kind_moves_clients_it_does_not_name() -> None:
    old = ConfiguredQuotas({QuotaEntity(client_id="app"): {QuotaType.PRODUCE: 1e6}})
    new = old.with_changes([QuotaChange(ALICE, QuotaType.PRODUCE, 5e6)])

    found = effects(
        DefaultQuotaCallback(old),
        DefaultQuotaCallback(new),
        [("bob", "app"), ("alice", "app"), ("bob", "x")],
        [QuotaType.PRODUCE],
    )

    assert [str(effect) for effect in found] == [
        "alice / app: PRODUCE 1.00 MB/s -> 5.00 MB/s, on another counter"
    ]


def test_a_more_specific_quota_keeps_a_client_from_the_new_one() -> None:
    old = ConfiguredQuotas({QuotaEntity(user="alice", client_id="app"): {QuotaType.PRODUCE: 1e6}})
    new = old.with_changes([QuotaChange(ALICE, QuotaType.PRODUCE, 5e6)])

    found = effects(
        DefaultQuotaCallback(old),
        DefaultQuotaCallback(new),
        [("alice", "app"), ("alice", "other")],
        [QuotaType.PRODUCE],
    )

    assert [(effect.client_id, effect.new_limit) for effect in found] == [("other", 5e6)]


def test_a_plan_touches_only_the_quotas_it_changes() -> None:
    table = ConfiguredQuotas(
        {ALICE: {QuotaType.FETCH: 1e6}, QuotaEntity(user="bob"): {QuotaType.PRODUCE: 3e6}}
    )
    observed = Observed(
        quota_type=QuotaType.PRODUCE,
        entity=ALICE,
        needs={0: Need(2e6, None, None, 1)},
        rate_usual=0.0,
        events=5000,
        hours=48,
        current=None,
    )
    plan = make_plan([observed], {QuotaType.PRODUCE: 10e6}, Guardrails())

    after = with_plan(table, plan)

    assert after.entries()[ALICE] == {QuotaType.FETCH: 1e6, QuotaType.PRODUCE: 2.4e6}
    assert after.entries()[QuotaEntity(user="bob")] == {QuotaType.PRODUCE: 3e6}
