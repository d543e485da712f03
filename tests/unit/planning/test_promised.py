"""What quotas add up to, which may be more than what tenants take of a capacity."""

from dataclasses import replace

import pytest

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need
from kvota.planning.observed import Observed
from kvota.planning.plan import Sharing, make_plan
from kvota.planning.promised import Promised, promised

KB, MB = 1e3, 1e6


def tenant(
    user: str, need: float, *, brokers: tuple[int, ...] = (1,), current: float | None = None
) -> Observed:
    return Observed(
        quota_type=QuotaType.PRODUCE,
        entity=QuotaEntity(user=user),
        needs=dict.fromkeys(brokers, Need(need, None, None, 1)),
        rate_usual=0.0,
        events=5_000,
        hours=48.0,
        current=current,
    )


def test_one_that_comes_down_a_step_counts_little_and_promises_much() -> None:
    capacity = {QuotaType.PRODUCE: 1.0 * MB}

    plan = make_plan([tenant("fallen", 2 * KB, current=4 * MB)], capacity)

    assert plan.spare[QuotaType.PRODUCE] >= 0.99 * MB
    assert promised(plan.lines, 1) == {
        QuotaType.PRODUCE: Promised(node_id=1, rate=2 * MB, unlimited=0)
    }


def test_what_is_promised_is_of_the_broker_where_it_is_most_through_all_gateways() -> None:
    one_gateway = replace(tenant("b", 100 * KB, brokers=(1, 2)), evenness={1: 1 / 3, 2: 1 / 3})
    young = replace(tenant("young", 100 * KB, brokers=(2,)), hours=1.0)
    observed = [tenant("a", 200 * KB, brokers=(1,)), one_gateway, tenant("c", 300 * KB), young]

    plan = make_plan(observed, {QuotaType.PRODUCE: 9 * MB}, sharing=Sharing(gateways=3))

    assert promised(plan.lines, 3)[QuotaType.PRODUCE] == Promised(
        node_id=1, rate=pytest.approx(3 * 1.2 * 600 * KB), unlimited=0
    )
    assert promised([line for line in plan.lines if 2 in line.node_ids], 3) == {
        QuotaType.PRODUCE: Promised(node_id=2, rate=pytest.approx(3 * 120 * KB), unlimited=1)
    }


def test_who_has_no_quota_is_counted_beside_what_is_promised() -> None:
    exempt = Guardrails(exempt_users=frozenset({"internal"}))

    plan = make_plan([tenant("internal", MB), tenant("a", MB)], {QuotaType.PRODUCE: 9 * MB}, exempt)

    assert promised(plan.lines, 1)[QuotaType.PRODUCE] == Promised(
        node_id=1, rate=1.2 * MB, unlimited=1
    )
