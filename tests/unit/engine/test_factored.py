"""Whom a factor reaches: all clients of a type, with and without a quota, but those who are excluded."""

import pytest
from tests.unit.engine.team_callback import TeamCallback

from kvota.callbacks import DefaultQuotaCallback, StaticQuotaCallback
from kvota.engine import Factored, Lane, QuotaEngine
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

P, F = QuotaType.PRODUCE, QuotaType.FETCH
DISKS = Factored(frozenset({P}), frozenset({"mirror"}))
ALICE = ConfiguredQuotas({QuotaEntity(user="alice"): {P: 1000.0}})
OF_CLIENTS = ConfiguredQuotas({QuotaEntity(client_id="app"): {P: 1000.0}})


def engine(quotas: ConfiguredQuotas, factored: Factored = DISKS) -> QuotaEngine:
    return QuotaEngine(DefaultQuotaCallback(quotas), {}, factored=factored)


def lane(engine: QuotaEngine, user: str, quota_type: QuotaType = P) -> Lane:
    found = engine.lane(quota_type, 1, user, "app", 0)
    assert found is not None
    return found


@pytest.mark.parametrize("quotas", [ConfiguredQuotas(), ALICE], ids=["no quota", "of another user"])
def test_a_factor_of_0_stops_who_has_no_quota_and_a_greater_one_leaves_him_alone(
    quotas: ConfiguredQuotas,
) -> None:
    of = engine(quotas)
    of.set_factor(P, 0.5)
    assert lane(of, "bob").limit is None

    version = lane(of, "bob").version
    of.set_factor(P, 0.0)
    assert (lane(of, "bob").limit, lane(of, "bob").is_shut) == (0.0, True)
    assert lane(of, "bob").version > version  # whoever keeps it asks again
    assert lane(of, "carol").is_shut  # who comes later
    assert lane(of, "bob", F).limit is None

    of.set_factor(P, 1.0)
    assert (lane(of, "bob").limit, lane(of, "bob").is_shut) == (None, False)


def test_who_is_excluded_is_counted_apart_and_goes_on() -> None:
    of = engine(OF_CLIENTS)
    of.set_factor(P, 0.0)

    assert lane(of, "bob").is_shut
    assert (lane(of, "mirror").limit, lane(of, "mirror").is_shut) == (1000.0, False)
    assert lane(of, "mirror").tags == "client-id=app,user=,excluded-principal-quota-key=true"
    assert lane(of, "bob").tags == "client-id=app,user="


def test_the_quota_of_who_is_excluded_changes_as_all_others() -> None:
    of = engine(OF_CLIENTS)
    before = lane(of, "mirror")

    of.apply([QuotaChange(QuotaEntity(client_id="app"), P, 50.0)])

    assert (before.limit, lane(of, "bob").limit) == (50.0, 50.0)


def test_a_callback_that_is_asked_elsewhere_is_asked_by_its_own_tags() -> None:
    callback = TeamCallback(red=7.0)
    of = QuotaEngine(callback, {}, factored=DISKS)
    of.set_factor(P, 0.0)
    for user in ("bob", "mirror"):
        question = of.question(P, 1, user, "app")
        of.learn(question, question.ask(callback))

    assert lane(of, "bob").is_shut
    assert not lane(of, "mirror").is_shut
    assert "excluded-principal-quota-key" not in lane(of, "mirror").tag_values
    remembered = of.remembered(P, "mirror", "app")
    assert remembered is not None
    assert remembered.text == lane(of, "mirror").tags


def test_the_static_callback_says_itself_who_is_excluded() -> None:
    prefix = "client.quota.callback.static"
    callback = StaticQuotaCallback()
    callback.configure({f"{prefix}.excluded.principal.name.list": "User:operator"})
    of = QuotaEngine(callback, {}, factored=Factored(frozenset({P})))

    of.set_factor(P, 0.0)

    assert lane(of, "bob").is_shut  # as Strimzi has it: no limit at all times 0 is 0
    assert not lane(of, "operator").is_shut


def test_others_may_be_excluded_while_it_runs() -> None:
    of = engine(ConfiguredQuotas())
    of.set_factor(P, 0.0)
    mirror, bob = lane(of, "mirror"), lane(of, "bob")
    versions = mirror.version, bob.version

    of.replace_factored(Factored(frozenset({P}), frozenset({"bob"})))

    assert (mirror.version, bob.version) > versions
    assert (lane(of, "mirror").is_shut, lane(of, "bob").is_shut) == (True, False)


def test_without_it_nothing_is_counted_that_has_no_quota() -> None:
    of = engine(ConfiguredQuotas(), Factored())
    of.set_factor(P, 0.0)

    assert lane(of, "bob").limit is None
