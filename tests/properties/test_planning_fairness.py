"""Properties of fair shares, whatever the claims and the brokers."""

from collections.abc import Mapping
from dataclasses import replace
from math import fsum, inf

from hypothesis import given
from hypothesis import strategies as st

from kvota.planning.fair_share import Claim, Shares, fair_shares

BROKERS = (0, 1, 2)
amounts = st.floats(0, 1e9) | st.integers(0, 1000).map(float)
weights = st.floats(0.01, 100) | st.integers(1, 5).map(float)
wants = st.dictionaries(st.sampled_from(BROKERS), amounts | st.just(inf), min_size=1)
claims = st.builds(Claim, wants=wants, weight=weights)
bounded_claims = st.builds(
    Claim,
    wants=wants,
    weight=weights,
    at_least=st.just(0.0) | st.floats(0, 1e6),
    at_most=st.just(inf) | st.floats(0, 1e9),
)
capacities = st.fixed_dictionaries({broker: st.floats(1, 1e9) for broker in BROKERS})
nearly = 1 - 1e-9


def taken(all_claims: list[Claim], found: Shares, broker: int) -> list[float]:
    return [
        claim.taken(share, broker) for claim, share in zip(all_claims, found.shares, strict=True)
    ]


@given(st.lists(bounded_claims, max_size=12), capacities)
def test_no_broker_gives_more_than_it_has_unless_the_lower_bounds_exceed_it(
    all_claims: list[Claim], most: Mapping[int, float]
) -> None:
    found = fair_shares(all_claims, most)

    for broker, capacity in most.items():
        bounds = fsum(claim.taken(claim.at_least, broker) for claim in all_claims)
        used = fsum(taken(all_claims, found, broker))
        assert used * nearly <= max(capacity, bounds)
        assert abs(capacity - used - found.spare[broker]) <= 1e-9 * max(capacity, used)


@given(st.lists(bounded_claims, min_size=1, max_size=12), capacities)
def test_nobody_gets_more_than_the_claim_or_less_than_the_lower_bound(
    all_claims: list[Claim], most: Mapping[int, float]
) -> None:
    shares = fair_shares(all_claims, most).shares

    assert all(
        claim.at_least <= share <= claim.top
        for claim, share in zip(all_claims, shares, strict=True)
    )


@given(st.lists(bounded_claims, min_size=1, max_size=12), capacities)
def test_nobody_can_be_raised_without_lowering_somebody_with_no_more_per_weight(
    all_claims: list[Claim], most: Mapping[int, float]
) -> None:
    found = fair_shares(all_claims, most)

    for claim, share in zip(all_claims, found.shares, strict=True):
        if share >= claim.top * nearly:
            continue
        level = share / claim.weight
        stopped_by = [
            broker
            for broker, wanted in claim.wants.items()
            if wanted * nearly > share
            and found.spare[broker] <= most[broker] * 1e-9
            and all(
                used * nearly <= max(other.weight * level, other.at_least)
                for other, used in zip(all_claims, taken(all_claims, found, broker), strict=True)
            )
        ]
        assert stopped_by


@given(bounded_claims, st.lists(bounded_claims, max_size=10), capacities)
def test_equal_claims_get_equal_shares(
    twin: Claim, others: list[Claim], most: Mapping[int, float]
) -> None:
    shares = fair_shares([twin, *others, twin], most).shares

    assert shares[0] == shares[-1]


@given(bounded_claims, weights, st.lists(bounded_claims, max_size=10), capacities)
def test_more_weight_never_gets_less(
    tenant: Claim, weight: float, others: list[Claim], most: Mapping[int, float]
) -> None:
    light, heavy = sorted((tenant.weight, weight))

    shares = fair_shares(
        [replace(tenant, weight=light), replace(tenant, weight=heavy), *others], most
    ).shares

    assert shares[1] >= shares[0] * nearly


@given(st.lists(claims, min_size=1, max_size=12), capacities)
def test_needs_on_different_brokers_do_not_take_from_each_other(
    all_claims: list[Claim], most: Mapping[int, float]
) -> None:
    here = [replace(claim, wants={0: claim.wants.get(0, 0.0)}) for claim in all_claims]
    there = [replace(claim, wants={1: claim.wants.get(1, 0.0)}) for claim in all_claims]

    alone = fair_shares(here, {0: most[0]}).shares
    together = fair_shares([*here, *there], {0: most[0], 1: most[1]}).shares

    assert together[: len(here)] == alone


@given(
    st.lists(bounded_claims, min_size=1, max_size=12),
    st.floats(1, 1e9),
    st.floats(1, 4) | st.floats(1, 1.01),
)
def test_of_one_broker_nobody_gets_less_where_there_is_more(
    all_claims: list[Claim], most: float, times: float
) -> None:
    here = [replace(claim, wants={0: claim.wants.get(0, 0.0)}) for claim in all_claims]

    less = fair_shares(here, {0: most}).shares
    more = fair_shares(here, {0: most * times}).shares

    assert all(now >= before * nearly for before, now in zip(less, more, strict=True))


@given(st.lists(claims, min_size=1, max_size=12), capacities, st.floats(1, 4) | st.floats(1, 1.01))
def test_where_there_is_more_who_has_least_does_not_get_less(
    all_claims: list[Claim], most: Mapping[int, float], times: float
) -> None:
    """Of several brokers one tenant's gain on one may be another's loss on the other, but never the poorest's."""

    def levels(capacity: Mapping[int, float]) -> list[float]:
        shares = fair_shares(all_claims, capacity).shares
        return [share / claim.weight for claim, share in zip(all_claims, shares, strict=True)]

    less = levels(most)
    more = levels({broker: capacity * times for broker, capacity in most.items()})

    assert min(more) >= min(less) * nearly


@given(claims, st.lists(claims, max_size=10), capacities)
def test_nobody_is_hurt_who_wants_no_more_than_its_part_of_each_broker(
    tenant: Claim, others: list[Claim], most: Mapping[int, float]
) -> None:
    weight_of_all = fsum(claim.weight for claim in (tenant, *others))
    part = {broker: each * tenant.weight / weight_of_all for broker, each in most.items()}
    modest = replace(
        tenant,
        wants={broker: min(each, part[broker] * nearly) for broker, each in tenant.wants.items()},
    )

    shares = fair_shares([modest, *others], most).shares

    assert shares[0] == modest.top


def test_the_hog_and_the_newcomer_get_the_same() -> None:
    hog = Claim(wants={0: inf}, at_least=9.0, at_most=36.0)
    newcomer = Claim(wants={0: 10.0})

    assert fair_shares([hog, newcomer], {0: 20.0}).shares == (10.0, 10.0)


def test_who_is_stopped_on_one_broker_leaves_the_rest_of_the_other() -> None:
    both = Claim(wants={0: 30.0, 1: 30.0})

    found = fair_shares([both, both, Claim(wants={1: 50.0})], {0: 10.0, 1: 40.0})

    assert found.shares == (5.0, 5.0, 30.0)
    assert found.spare == {0: 0.0, 1: 0.0}
