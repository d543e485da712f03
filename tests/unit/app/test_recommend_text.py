"""What a plan says of itself, to people and to programs."""

import argparse

import pytest

from kvota.app.cli import recommend
from kvota.app.cli.recommend_text import change_text, notes, plan_json, plan_text
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.pipeline.recommendation import Recommendation
from kvota.planning.diff import Change
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need
from kvota.planning.observed import Observed
from kvota.planning.plan import Sharing, make_plan

ORDERS = QuotaEntity(user="orders")
MB = 1e6


@pytest.mark.parametrize(
    ("own", "now", "text"),
    [
        (None, None, "+ user-principal 'orders' PRODUCE none -> 8.00 MB/s"),
        (
            None,
            4e6,
            "+ user-principal 'orders' PRODUCE 4.00 MB/s (of a default) -> 8.00 MB/s",
        ),
        (4e6, 4e6, "~ user-principal 'orders' PRODUCE 4.00 MB/s -> 8.00 MB/s"),
    ],
)
def test_a_change_names_the_limit_in_force(own: float | None, now: float | None, text: str) -> None:
    assert change_text(Change(ORDERS, QuotaType.PRODUCE, own, 8e6), now) == text


def tenant(user: str, need: float, broker: int, current: float | None = None) -> Observed:
    return Observed(
        quota_type=QuotaType.PRODUCE,
        entity=QuotaEntity(user=user),
        needs={broker: Need(need, None, None, 1)},
        rate_usual=0.0,
        events=5_000,
        hours=48.0,
        current=current,
    )


def found(*observed: Observed, capacity: float, gateways: int = 1) -> Recommendation:
    plan = make_plan(
        observed,
        {QuotaType.PRODUCE: capacity},
        Guardrails(exempt_users=frozenset({"internal"})),
        Sharing(gateways=gateways),
    )
    nothing = ConfiguredQuotas()
    return Recommendation("user", plan, {}, nothing, nothing, (), 0, gateways=gateways)


def test_a_plan_says_what_its_quotas_add_up_to() -> None:
    plan = found(
        tenant("fallen", 2_000.0, 2, current=4 * MB), tenant("a", 0.2 * MB, 1), capacity=1.6 * MB
    )

    assert (
        "\n  promised are 2.00 MB/s of broker 2 if all used their quotas at once: 125% of the capacity"
        in plan_text(plan, raw=False)
    )
    assert plan_json(plan)["promised"] == [
        {"quota_type": "PRODUCE", "node_id": 2, "per_s": 2 * MB, "without_quota": 0}
    ]


def test_who_has_no_quota_is_named_beside_what_is_promised() -> None:
    plan = found(tenant("internal", MB, 1), tenant("a", MB, 1), capacity=9 * MB, gateways=3)

    assert (
        "promised are 3.60 MB/s of broker 1 if all used their quotas at once, besides 1 without a quota: "
        "40% of the capacity" in plan_text(plan, raw=False)
    )


def test_one_broker_fewer_names_the_brokers_and_a_capacity_that_is_enough() -> None:
    observed = [tenant("here", 12 * MB, 1), tenant("there", 12 * MB, 2)]

    plan = found(*observed, capacity=20 * MB)

    assert (
        "with broker 1 away, 8.80 MB/s of PRODUCE would lack on broker 2 (the others share its load evenly); "
        "planned with --capacity PRODUCE=10.0MB/s, all fits into 20.0 MB/s whichever broker is away"
    ) in notes(plan)
    assert plan_json(plan)["one_broker_fewer"] == [
        {
            "quota_type": "PRODUCE",
            "away_node_id": 1,
            "lacking_node_id": 2,
            "lacking_per_s": pytest.approx(8.8 * MB),
            "enough_capacity_per_s": 10 * MB,
        }
    ]
    assert not [note for note in notes(found(*observed, capacity=30 * MB)) if "away" in note]


def test_where_guardrails_keep_too_much_for_one_broker_fewer_they_are_named() -> None:
    plan = found(
        tenant("here", 1 * MB, 1, current=40 * MB),
        tenant("there", 12 * MB, 2, current=40 * MB),
        tenant("too", 12 * MB, 1, current=40 * MB),
        capacity=20 * MB,
    )

    (note,) = [note for note in notes(plan) if "away" in note]
    assert "a smaller --capacity leaves no room for that while guardrails keep quotas" in note
    assert "--step-down, --allow-below-median, --floor" in note


def test_floors_are_options() -> None:
    parser = argparse.ArgumentParser()
    recommend.configure(parser)
    words = ["--events", ".", "--capacity", "PRODUCE=1MB/s", "--floor", "produce=2KB/s"]

    _, wishes = recommend.understood(words)

    assert wishes.guardrails.floors == {
        **Guardrails().floors,
        QuotaType.PRODUCE: 2_000.0,
    }
    assert "CONTROLLER_MUTATION 0.10 /s" in " ".join(parser.format_help().split())
