"""Properties of fair shares, whatever the claims."""

from dataclasses import replace
from math import fsum, inf

from hypothesis import given
from hypothesis import strategies as st

from kvota.planning.fair_share import Claim, fair_shares

amounts = st.floats(0, 1e9) | st.integers(0, 1000).map(float)
weights = st.floats(0.01, 100) | st.integers(1, 5).map(float)
claims = st.builds(Claim, claim=amounts, weight=weights)
bounded_claims = st.builds(
    Claim,
    claim=amounts,
    weight=weights,
    at_least=st.floats(0, 1e6),
    at_most=st.just(inf) | st.floats(0, 1e9),
)
capacities = st.floats(1, 1e9)
nearly = 1 - 1e-9


@given(st.lists(bounded_claims, max_size=12), capacities)
def test_the_sum_is_at_most_the_capacity_unless_the_lower_bounds_exceed_it(
    all_claims: list[Claim], capacity: float
) -> None:
    shares = fair_shares(all_claims, capacity).shares

    assert fsum(shares) <= max(capacity, fsum(claim.at_least for claim in all_claims))


@given(st.lists(bounded_claims, min_size=1, max_size=12), capacities)
def test_nobody_gets_more_than_the_claim_or_less_than_the_lower_bound(
    all_claims: list[Claim], capacity: float
) -> None:
    shares = fair_shares(all_claims, capacity).shares

    assert all(
        claim.at_least <= share <= claim.top
        for claim, share in zip(all_claims, shares, strict=True)
    )


@given(st.lists(claims, min_size=1, max_size=12), capacities)
def test_capacity_is_used_up_before_anybody_is_capped(
    all_claims: list[Claim], capacity: float
) -> None:
    shares = fair_shares(all_claims, capacity).shares

    wanted = fsum(claim.claim for claim in all_claims)
    assert fsum(shares) >= min(wanted, capacity) * nearly


@given(bounded_claims, st.lists(bounded_claims, max_size=10), capacities)
def test_equal_claims_get_equal_shares(twin: Claim, others: list[Claim], capacity: float) -> None:
    shares = fair_shares([twin, *others, twin], capacity).shares

    assert shares[0] == shares[-1]


@given(bounded_claims, weights, st.lists(bounded_claims, max_size=10), capacities)
def test_more_weight_never_gets_less(
    tenant: Claim, weight: float, others: list[Claim], capacity: float
) -> None:
    light, heavy = sorted((tenant.weight, weight))

    shares = fair_shares(
        [replace(tenant, weight=light), replace(tenant, weight=heavy), *others], capacity
    ).shares

    assert shares[1] >= shares[0]


@given(bounded_claims, st.floats(1, 10), st.lists(bounded_claims, max_size=10), capacities)
def test_a_larger_claim_weight_or_capacity_never_gets_less(
    tenant: Claim, factor: float, others: list[Claim], capacity: float
) -> None:
    before = fair_shares([tenant, *others], capacity).shares[0]

    more_claimed = replace(tenant, claim=tenant.claim * factor)
    heavier = replace(tenant, weight=tenant.weight * factor)

    assert fair_shares([more_claimed, *others], capacity).shares[0] >= before * nearly
    assert fair_shares([heavier, *others], capacity).shares[0] >= before * nearly
    assert fair_shares([tenant, *others], capacity * factor).shares[0] >= before * nearly


@given(st.lists(claims, min_size=2, max_size=12), capacities)
def test_who_is_capped_has_as_much_per_weight_as_anybody(
    all_claims: list[Claim], capacity: float
) -> None:
    shares = fair_shares(all_claims, capacity).shares

    most = max(share / claim.weight for claim, share in zip(all_claims, shares, strict=True))
    assert all(
        share / claim.weight >= most * nearly
        for claim, share in zip(all_claims, shares, strict=True)
        if share < claim.claim
    )
