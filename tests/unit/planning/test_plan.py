"""One case per reason a tenant can get."""

from dataclasses import replace

import pytest

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need
from kvota.planning.observed import Observed
from kvota.planning.plan import Plan, Sharing, make_plan
from kvota.planning.plan_line import PlanLine, Reason, not_confirmed

MB = 1_000_000.0
RELAXED = Guardrails(hours_min=0, events_min=50, keeps_median=False, floors={})


def need(rate: float) -> Need:
    return Need(rate, None, None, 1)


def tenant(
    user: str, need_mb: float | None, current_mb: float | None = None, *, broker: int = 0
) -> Observed:
    return Observed(
        quota_type=QuotaType.PRODUCE,
        entity=QuotaEntity(user=user),
        needs={broker: None if need_mb is None else need(need_mb * MB)},
        rate_usual=0.1 * MB,
        events=5_000,
        hours=48.0,
        current=None if current_mb is None else current_mb * MB,
    )


def line_of(plan: Plan, user: str) -> PlanLine:
    return next(line for line in plan.lines if line.entity.user == user)


def planned(
    *observed: Observed,
    capacity_mb: float = 20.0,
    rules: Guardrails | None = None,
    sharing: Sharing | None = None,
) -> Plan:
    return make_plan(observed, {QuotaType.PRODUCE: capacity_mb * MB}, rules, sharing)


def test_who_needs_little_gets_it_with_headroom_and_the_hog_gets_its_share() -> None:
    plan = planned(tenant("orders", 2.0), tenant("analytics", 38.0), capacity_mb=10.0)

    orders, analytics = line_of(plan, "orders"), line_of(plan, "analytics")
    assert (orders.proposed, orders.reason, orders.behaves) == (2.4 * MB, Reason.NEED, True)
    assert (analytics.proposed, analytics.reason, analytics.behaves) == (
        7.6 * MB,
        Reason.SHARE,
        False,
    )
    assert analytics.evidence == (
        "would need 38.0 MB/s; its fair share is 7.60 MB/s "
        "(a larger --weight, --capacity or --overcommit gives more)"
    )


def test_a_share_that_has_room_for_the_need_alone_says_so() -> None:
    line = line_of(planned(tenant("orders", 9.0), tenant("analytics", 38.0)), "orders")

    assert (line.proposed, line.reason, line.behaves) == (10 * MB, Reason.SHARE, True)
    assert line.evidence == (
        "needs 9.00 MB/s; 10.0 MB/s has room for that, and not for all of the headroom "
        "(a larger --capacity or --overcommit does)"
    )


def test_where_all_needs_fit_nobody_is_cut_for_the_headroom_of_another() -> None:
    plan = planned(tenant("small", 4.0), tenant("large", 15.5))

    # With its headroom the small one would leave 15.2 MB/s. What the needs leave is headroom.
    assert [line.proposed for line in plan.lines] == [15.5 * MB, 4.5 * MB]
    assert all(line.behaves for line in plan.lines)


def test_where_needs_do_not_fit_who_needs_little_keeps_its_headroom() -> None:
    plan = planned(tenant("small", 4.0), tenant("large", 38.0))

    assert [line.proposed for line in plan.lines] == [15.2 * MB, 4.8 * MB]


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
    busy = replace(tenant("batch", 30.0), rate_usual=15 * MB)

    line = line_of(planned(busy, tenant("orders", 8.0), capacity_mb=20.0), "batch")

    assert (line.proposed, line.reason) == (15 * MB, Reason.FLOOR)
    assert "--allow-below-median" in line.evidence


def test_nobody_is_planned_below_the_floor_of_its_type_and_another_floor_can_be_set() -> None:
    quiet = replace(tenant("quiet", 0.001), rate_usual=0.0)

    line = line_of(planned(quiet), "quiet")
    lower = line_of(planned(quiet, rules=Guardrails(floors={QuotaType.PRODUCE: 1_000.0})), "quiet")

    assert (line.proposed, line.reason) == (16_384.0, Reason.FLOOR)
    assert line.evidence == (
        "needs 1.00 KB/s; 16.4 KB/s is not below the floor of its type; --floor PRODUCE=RATE sets another"
    )
    assert (lower.proposed, lower.reason) == (1_200.0, Reason.NEED)


def test_the_relaxed_form_may_cut_below_the_usual_rate() -> None:
    busy = replace(tenant("batch", 30.0), rate_usual=15 * MB)

    plan = planned(busy, tenant("orders", 8.0), capacity_mb=20.0, rules=RELAXED)

    assert (line_of(plan, "batch").proposed, line_of(plan, "batch").reason) == (
        10.4 * MB,
        Reason.SHARE,
    )


def test_who_is_held_back_gets_a_step_more_than_was_seen() -> None:
    slowed = replace(tenant("orders", 4.0, current_mb=4.0), share_throttled=0.3)

    line = line_of(planned(slowed), "orders")

    assert (line.proposed, line.reason) == (8 * MB, Reason.CENSORED)
    assert line.evidence == (
        "was held back for 30% of the time, so it needs ≥ 4.00 MB/s; a step more is 8.00 MB/s "
        "(--step-up allows another)"
    )


def test_a_throttle_once_in_a_while_decides_nothing() -> None:
    once = replace(tenant("orders", 1.0, current_mb=2.0), share_throttled=0.005)

    line = line_of(planned(once), "orders")

    assert (line.proposed, line.reason) == (1.2 * MB, Reason.NEED)


def test_a_hog_held_at_its_quota_and_a_newcomer_share_evenly() -> None:
    hog = replace(tenant("hog", 18.0, current_mb=18.0), rate_usual=18 * MB, share_throttled=0.9)

    plan = planned(hog, tenant("newcomer", 10.0))

    assert [line.proposed for line in plan.lines] == [10 * MB, 10 * MB]
    assert [line.reason for line in plan.lines] == [Reason.SHARE, Reason.SHARE]


def test_a_hog_that_nobody_holds_back_shares_evenly_if_that_is_allowed() -> None:
    hog = replace(tenant("hog", 18.0, current_mb=18.0), rate_usual=17 * MB)
    allowed = Guardrails(keeps_median=False)

    kept = planned(hog, tenant("newcomer", 10.0))
    shared = planned(hog, tenant("newcomer", 10.0), rules=allowed)

    assert line_of(kept, "hog").proposed == 17 * MB
    assert [line.proposed for line in shared.lines] == [10 * MB, 10 * MB]


def test_needs_on_different_brokers_do_not_take_from_each_other() -> None:
    plan = planned(tenant("here", 12.0), tenant("there", 12.0, broker=1))

    assert [line.proposed for line in plan.lines] == [14.4 * MB, 14.4 * MB]


def test_where_one_broker_fewer_is_too_few_it_says_which_and_what_capacity_is_enough() -> None:
    observed = [tenant("here", 9.0), tenant("there", 14.0, broker=1), tenant("too", 5.0, broker=2)]

    lacking = planned(*observed).lacking[QuotaType.PRODUCE]

    # With headroom 10.8, 16.8 and 6 MB/s: without broker 0 half of its load comes to the fullest, broker 1.
    assert (lacking.away, lacking.node_id) == (0, 1)
    assert lacking.rate == pytest.approx((16.8 + 10.8 / 2 - 20) * MB)
    assert lacking.enough == 13.3 * MB
    smaller = planned(*observed, capacity_mb=13.3)
    taken = [(line.proposed or 0.0) / MB for line in smaller.lines]
    assert max(taken) + sorted(taken)[1] / 2 <= 20


def test_of_several_gateways_all_is_counted_where_one_broker_fewer_is_too_few() -> None:
    observed = [tenant("here", 6.0), tenant("there", 6.0, broker=1)]

    how = Sharing(gateways=2, overcommit=0.5, taken={QuotaType.PRODUCE: 2 * MB})
    lacking = planned(*observed, capacity_mb=16.0, sharing=how).lacking[QuotaType.PRODUCE]

    # 14.4 MB/s of each broker through both gateways; of one and a half times the capacity others take 2.
    assert lacking.rate == pytest.approx((2 * 14.4 - 22) * MB)
    assert lacking.enough == pytest.approx((22 / 2 + 2) / 1.5 * MB, rel=0.01)


def test_no_capacity_is_enough_for_one_broker_fewer_where_a_guardrail_keeps_more() -> None:
    observed = [
        replace(tenant(user, 30.0, broker=broker), rate_usual=15 * MB)
        for broker, user in enumerate(("here", "there"))
    ]

    assert planned(*observed).lacking[QuotaType.PRODUCE].enough is None


def test_one_broker_fewer_is_enough_where_there_is_room() -> None:
    plan = planned(tenant("here", 5.0), tenant("there", 5.0, broker=1))

    assert not plan.lacking


def test_each_of_several_gateways_gets_its_part_of_the_capacity() -> None:
    plan = planned(tenant("a", 30.0), tenant("b", 2.0), sharing=Sharing(gateways=2))

    # Two gateways hold each to these: 15.2 and 4.8 MB/s, together 20.
    assert [line.proposed for line in plan.lines] == [7.6 * MB, 2.4 * MB]


def test_who_comes_through_one_of_several_gateways_takes_its_need_once() -> None:
    one = replace(tenant("one", 8.0), evenness={0: 0.5})

    plan = planned(one, tenant("hog", 50.0), sharing=Sharing(gateways=2))

    # At its gateway it is let in 9.6 MB/s, and nothing at the other one; the hog 5.2 MB/s at each of them.
    assert [line.proposed for line in plan.lines] == [5.2 * MB, 9.6 * MB]
    assert line_of(plan, "one").reason is Reason.NEED


def test_a_step_bounds_the_quota_at_the_gateway_where_most_is_needed() -> None:
    one = replace(tenant("one", 8.0, current_mb=3.0), evenness={0: 0.25})

    line = line_of(planned(one, sharing=Sharing(gateways=4)), "one")

    assert (line.proposed, line.reason) == (6 * MB, Reason.STEP)


def test_who_wants_more_than_is_left_could_take_it_at_every_gateway() -> None:
    one = replace(tenant("one", 40.0), evenness={0: 0.5})

    plan = planned(one, tenant("hog", 50.0), sharing=Sharing(gateways=2))

    assert [line.proposed for line in plan.lines] == [5 * MB, 5 * MB]


def test_more_than_there_is_may_be_promised_if_that_is_said() -> None:
    plan = planned(tenant("a", 30.0), tenant("b", 30.0), sharing=Sharing(overcommit=0.5))

    assert [line.proposed for line in plan.lines] == [15 * MB, 15 * MB]


def test_a_day_and_a_thousand_requests_are_asked_for() -> None:
    young = replace(tenant("orders", 1.0), hours=3.0)

    line = line_of(planned(young), "orders")

    assert (line.proposed, line.reason) == (None, Reason.TOO_LITTLE_DATA)
    assert line.evidence == (
        "5,000 requests in 3 h with traffic of its own; a change needs 1,000 requests (--min-events) "
        "and 24 h (--min-hours 0 for a trial)"
    )


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
        replace(tenant("a", 30.0), rate_usual=15 * MB),
        replace(tenant("b", 30.0), rate_usual=15 * MB),
    )

    assert plan.spare[QuotaType.PRODUCE] == pytest.approx(-10 * MB)


@pytest.mark.parametrize(("current_mb", "proposed_mb"), [(None, None), (3.0, 3.0), (1.5, 2.4)])
def test_what_is_not_confirmed_is_not_lowered(
    current_mb: float | None, proposed_mb: float | None
) -> None:
    line = line_of(planned(tenant("orders", 2.0, current_mb=current_mb)), "orders")

    found = not_confirmed(line, "9 % would wait")

    assert line.proposed == 2.4 * MB
    assert found.proposed == (None if proposed_mb is None else proposed_mb * MB)
    assert found.reason is Reason.NOT_CONFIRMED
    assert found.evidence == (
        "needed 2.00 MB/s in the time learnt from, but 9 % would wait (--headroom gives more)"
    )


def test_mutations_keep_fractions() -> None:
    slow = replace(
        tenant("ci", None), quota_type=QuotaType.CONTROLLER_MUTATION, needs={-1: need(0.21)}
    )

    plan = make_plan([slow], {QuotaType.CONTROLLER_MUTATION: 1.0}, RELAXED)

    assert plan.lines[0].proposed == 0.252
