"""Properties of every plan, whatever was observed."""

from dataclasses import replace
from math import fsum

from hypothesis import given
from hypothesis import strategies as st

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import (
    Need,
    Tolerance,
    Trial,
    between,
    bracket,
    daily_need,
    geometric_grid,
)
from kvota.planning.observed import Observed
from kvota.planning.plan import make_plan
from kvota.planning.plan_line import Reason

needs = st.floats(20_000, 1e8)


@st.composite
def tenants(draw: st.DrawFn, *, currents: st.SearchStrategy[float | None]) -> list[Observed]:
    return [
        Observed(
            quota_type=QuotaType.PRODUCE,
            entity=QuotaEntity(user=f"user-{number}"),
            needs=draw(
                st.dictionaries(
                    st.integers(0, 2), needs.map(lambda rate: Need(rate, None, None, 1)), min_size=1
                )
            ),
            rate_usual=draw(st.floats(0, 1e6)),
            events=draw(st.integers(900, 1200)),
            hours=draw(st.floats(20, 200)),
            current=draw(currents),
            weight=draw(st.integers(1, 4).map(float)),
            share_throttled=draw(st.sampled_from([0.0, 0.005, 0.5])),
            evenness=draw(st.dictionaries(st.integers(0, 2), st.floats(0.1, 1))),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


FREE = Guardrails(hours_min=0, events_min=0, floors={}, keeps_median=False)


@given(tenants(currents=st.none()), st.floats(100_000, 1e9))
def test_without_guardrails_what_tenants_take_under_their_quotas_is_at_most_the_capacity(
    observed: list[Observed], capacity: float
) -> None:
    plan = make_plan(observed, {QuotaType.PRODUCE: capacity}, FREE)

    for broker in range(3):
        here = [
            tenant.taken(line.proposed or 0.0, FREE, 0.2).get(broker, 0.0)
            for line, tenant in zip(plan.lines, observed, strict=True)
        ]
        assert fsum(here) <= capacity * (1 + 1e-9)
    assert plan.spare[QuotaType.PRODUCE] >= -1e-6 * capacity


@given(tenants(currents=st.none()), st.floats(100_000, 1e9))
def test_who_needs_no_more_than_its_part_gets_it_however_much_others_want(
    observed: list[Observed], capacity: float
) -> None:
    lines = make_plan(observed, {QuotaType.PRODUCE: capacity}, FREE).lines

    weights = fsum(tenant.weight for tenant in observed)
    for line, tenant in zip(lines, observed, strict=True):
        part = capacity * tenant.weight / weights
        if max(tenant.wants(FREE, 0.2).values()) <= part:
            assert line.behaves
            assert line.reason in {Reason.NEED, Reason.CENSORED}


@given(tenants(currents=st.none()), st.floats(1, 1.3))
def test_where_all_needs_fit_on_a_broker_everybody_gets_what_it_needs(
    observed: list[Observed], times: float
) -> None:
    here = [
        replace(tenant, needs={0: tenant.need}, evenness={0: tenant.evenness.get(0, 1.0)})
        for tenant in observed
    ]
    needed = fsum(tenant.takes(FREE, 0.0)[0] for tenant in here)

    lines = make_plan(here, {QuotaType.PRODUCE: needed * (1 + 1e-9) * times}, FREE).lines

    assert all(line.behaves for line in lines)


@given(tenants(currents=st.none() | st.floats(20_000, 1e8)), st.floats(100_000, 1e9))
def test_no_quota_in_force_moves_further_than_a_step(
    observed: list[Observed], capacity: float
) -> None:
    plan = make_plan(observed, {QuotaType.PRODUCE: capacity}, Guardrails())

    in_force = [line for line in plan.lines if line.current is not None]
    assert [line for line in in_force if line.proposed is None] == []
    assert [
        line
        for line in in_force
        if not (line.current or 0.0) * 0.5 <= (line.proposed or 0.0) <= (line.current or 0.0) * 2
    ] == []


@given(tenants(currents=st.none() | st.floats(20_000, 1e8)), st.floats(100_000, 1e9))
def test_a_plan_repeated_on_its_own_result_settles(
    observed: list[Observed], capacity: float
) -> None:
    seen = []
    for _ in range(40):
        plan = make_plan(observed, {QuotaType.PRODUCE: capacity})
        seen.append([line.proposed for line in plan.lines])
        observed = [
            replace(tenant, current=line.proposed)
            for tenant, line in zip(observed, plan.lines, strict=True)
        ]
        if len(seen) > 1 and seen[-1] == seen[-2]:
            return
    assert seen[-1] == seen[-2]


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=20))
def test_a_busy_day_is_within_its_interval_and_no_extreme_of_many_days(days: list[float]) -> None:
    found = daily_need(days)

    assert found is not None
    assert min(days) <= (found.low or found.rate) <= found.rate <= (found.high or max(days))
    assert sum(day <= found.rate for day in days) >= 0.9 * len(days)
    assert found.days == len(days)
    if len(days) >= 10:
        longer = daily_need([*days[1:], 1e12])
        assert longer is not None
        assert longer.rate < 1e12


@given(
    tenants(currents=st.none() | st.floats(20_000, 1e8)), st.floats(100_000, 1e9), st.integers(0, 4)
)
def test_at_most_so_many_quotas_change_at_a_time(
    observed: list[Observed], capacity: float, changes_max: int
) -> None:
    plan = make_plan(observed, {QuotaType.PRODUCE: capacity}, Guardrails(changes_max=changes_max))

    assert sum(line.is_change for line in plan.lines) <= changes_max


@given(tenants(currents=st.none() | st.floats(20_000, 1e8)), st.floats(100_000, 1e9))
def test_too_little_data_changes_nothing(observed: list[Observed], capacity: float) -> None:
    plan = make_plan(observed, {QuotaType.PRODUCE: capacity}, Guardrails())

    scarce = {p.entity for p in observed if p.events < 1000 or p.hours < 24}
    assert not any(line.is_change for line in plan.lines if line.entity in scarce)


@given(st.floats(1, 1e6), st.floats(1.0001, 5000), st.floats(0, 1))
def test_two_grids_of_twenty_find_a_need_within_two_and_a_half_percent(
    low: float, span: float, place: float
) -> None:
    high = low * span
    need = low * span**place
    tolerance = Tolerance()

    def tried(quotas: tuple[float, ...]) -> list[Trial]:
        return [
            Trial(quota=quota, share_over=0.5 if quota < need else 0.0, worst_ms=0.0)
            for quota in quotas
        ]

    first = tried(geometric_grid(low, high))
    second = tried(between(bracket(first, tolerance)))
    found = bracket(first + second, tolerance)

    assert found.passes is not None
    assert need * (1 - 1e-9) <= found.passes <= max(low, need * 1.0227)
