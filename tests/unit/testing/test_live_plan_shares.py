"""The shares that a live run is judged by can be worked out by hand."""

from dataclasses import replace

import pytest
from tests.integration.live_plan.clients import charged_bytes
from tests.integration.live_plan.demand import Demand, Tenant
from tests.integration.live_plan.fair import need, set_aside, shares, unused_shares

KB = 1_000


def test_a_need_is_the_smallest_rate_under_which_nobody_waits() -> None:
    # A second's worth is there at once; 100 KB more come in each of ten seconds.
    steady = [(float(second), 100 * KB) for second in range(1, 12)]

    assert need(steady) == pytest.approx(100 * KB)
    assert need([(0.0, 100 * KB), (0.5, 100 * KB)]) == pytest.approx(200 * KB / 1.5)


def test_one_request_of_a_thousand_may_wait_and_none_for_more_than_a_second() -> None:
    many = [(number / 10, 10 * KB) for number in range(1_000)]

    assert need([*many, (200.0, 190 * KB)]) == pytest.approx(need(many), rel=0.01)
    assert need([*many, (200.0, 300 * KB)]) == pytest.approx(150 * KB)
    assert need([*many, (200.0, 190 * KB), (300.0, 190 * KB)]) == pytest.approx(190 * KB)


@pytest.mark.parametrize("gateways", [1, 3])
def test_what_the_others_leave_is_shared_by_weight(gateways: int) -> None:
    steady = Tenant(name="steady", rate=120 * KB, request_bytes=KB)
    here = replace(steady, name="here", on_every_broker=False)
    greedy = [
        Tenant(name=f"greedy-{n}", rate=KB**2, request_bytes=KB, weight=n, is_greedy=True)
        for n in (1, 3)
    ]
    demand = Demand(seconds=60.0, day_s=12.0, gateways=gateways, tenants=(steady, here, *greedy))

    found = shares(demand, 1_000 * KB, 2)

    left = 1_000 * KB - sum(set_aside(demand, tenant, 1, 2) for tenant in (steady, here))
    assert found == {"greedy-1": pytest.approx(left / 4), "greedy-3": pytest.approx(left * 3 / 4)}
    assert set_aside(demand, here, 0, 2) == 0
    # Requests as small as these come evenly, so what is set aside is little more than the mean and the headroom.
    mean = 120 * KB * charged_bytes("steady", KB) / KB
    assert 0.95 * 1.2 * mean <= set_aside(demand, steady, 0, 2) <= 1.3 * 1.2 * mean
    assert unused_shares(demand, 1_000 * KB, 2)["greedy-1"] == pytest.approx(760 * KB / 4)
