"""One case per reason a tenant can get."""

from dataclasses import replace

import pytest

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.plan import Observed, Plan, PlanLine, Reason, make_plan

MB = 1_000_000.0
RELAXED = Guardrails(hours_min=0, events_min=50, keeps_median=False, floors={})


def tenant(user: str, need_mb: float | None, current_mb: float | None = None) -> Observed:
    return Observed(
        quota_type=QuotaType.PRODUCE,
        entity=QuotaEntity(user=user),
        need=None if need_mb is None else need_mb * MB,
        rate_p50=0.1 * MB,
        events=5_000,
        hours=48.0,
        current=None if current_mb is None else current_mb * MB,
    )


def line_of(plan: Plan, user: str) -> PlanLine:
    return next(line for line in plan.lines if line.entity.user == user)


def planned(
    *observed: Observed, capacity_mb: float = 20.0, rules: Guardrails | None = None
) -> Plan:
    return make_plan(observed, {QuotaType.PRODUCE: capacity_mb * MB}, rules)


def test_who_needs_little_gets_it_with_headroom_and_the_hog_gets_its_share() -> None:
    plan = planned(tenant("orders", 2.0), tenant("analytics", 38.0), capacity_mb=10.0)

    orders, analytics = line_of(plan, "orders"), line_of(plan, "analytics")
    assert (orders.proposed, orders.reason, orders.behaves) == (2.4 * MB, Reason.NEED, True)
    assert (analytics.proposed, analytics.reason, analytics.behaves) == (
        7.6 * MB,
        Reason.SHARE,
        False,
    )
    assert analytics.evidence == "would need 38.0 MB/s; its fair share is 7.60 MB/s"


def test_spare_capacity_is_reported_and_not_handed_out() -> None:
    plan = planned(tenant("orders", 2.0), tenant("other", 3.0), capacity_mb=20.0)

    assert [line.proposed for line in plan.lines] == [2.4 * MB, 3.6 * MB]
    assert plan.spare[QuotaType.PRODUCE] == pytest.approx(14 * MB)


def test_a_raise_stops_at_twice_the_quota_in_force() -> None:
    line = line_of(planned(tenant("orders", 9.0, current_mb=2.0)), "orders")

    assert (line.proposed, line.reason, line.guardrails) == (4 * MB, Reason.STEP, ("step_up",))


def test_a_cut_stops_at_half_the_quota_in_force() -> None:
    line = line_of(planned(tenant("orders", 1.0, current_mb=8.0)), "orders")

    assert (line.proposed, line.reason, line.guardrails) == (4 * MB, Reason.STEP, ("step_down",))


def test_nobody_is_cut_below_its_usual_rate() -> None:
    busy = replace(tenant("batch", 30.0), rate_p50=15 * MB)

    line = line_of(planned(busy, tenant("orders", 8.0), capacity_mb=20.0), "batch")

    assert (line.proposed, line.reason) == (15 * MB, Reason.FLOOR)


def test_the_relaxed_form_may_cut_below_the_usual_rate() -> None:
    busy = replace(tenant("batch", 30.0), rate_p50=15 * MB)

    plan = planned(busy, tenant("orders", 8.0), capacity_mb=20.0, rules=RELAXED)

    assert (line_of(plan, "batch").proposed, line_of(plan, "batch").reason) == (
        10.4 * MB,
        Reason.SHARE,
    )


def test_who_was_throttled_keeps_what_it_has() -> None:
    slowed = replace(tenant("orders", 1.0, current_mb=8.0), is_censored=True)

    line = line_of(planned(slowed), "orders")

    assert (line.proposed, line.reason) == (8 * MB, Reason.CENSORED)


def test_a_day_and_a_thousand_requests_are_asked_for() -> None:
    young = replace(tenant("orders", 1.0), hours=3.0)

    line = line_of(planned(young), "orders")

    assert (line.proposed, line.reason) == (None, Reason.TOO_LITTLE_DATA)
    assert line.evidence == "5,000 requests in 3.0 h; a change needs 1,000 requests and 24 h"


def test_an_exempt_user_is_left_alone_and_its_need_is_set_aside() -> None:
    rules = Guardrails(exempt_users=frozenset({"__internal"}))

    plan = planned(
        tenant("__internal", 12.0), tenant("orders", 30.0), capacity_mb=20.0, rules=rules
    )

    assert line_of(plan, "__internal").reason is Reason.EXEMPT
    assert not line_of(plan, "__internal").is_change
    assert line_of(plan, "orders").proposed == 8 * MB


def test_a_quota_that_is_right_is_kept_to_the_byte() -> None:
    line = line_of(planned(tenant("orders", 2.0, current_mb=2.4001)), "orders")

    assert (line.proposed, line.reason, line.is_change) == (2.4001 * MB, Reason.KEPT, False)


def test_without_a_good_candidate_nothing_is_proposed() -> None:
    line = line_of(planned(tenant("orders", None, current_mb=2.0)), "orders")

    assert (line.proposed, line.reason) == (2 * MB, Reason.KEPT)


def test_weight_decides_how_the_rest_is_shared() -> None:
    heavy = replace(tenant("gold", 50.0), weight=3.0)

    plan = planned(heavy, tenant("bronze", 50.0), capacity_mb=20.0)

    assert [line.proposed for line in plan.lines] == [5 * MB, 15 * MB]


def test_lower_bounds_above_the_capacity_are_reported_as_a_lack() -> None:
    plan = planned(
        replace(tenant("a", 30.0), rate_p50=15 * MB), replace(tenant("b", 30.0), rate_p50=15 * MB)
    )

    assert plan.spare[QuotaType.PRODUCE] == pytest.approx(-10 * MB)


def test_mutations_keep_fractions() -> None:
    slow = replace(tenant("ci", None), quota_type=QuotaType.CONTROLLER_MUTATION, need=0.21)

    plan = make_plan([slow], {QuotaType.CONTROLLER_MUTATION: 1.0}, RELAXED)

    assert plan.lines[0].proposed == 0.252
