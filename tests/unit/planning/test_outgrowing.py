"""When a tenant's days outgrow its quota."""

import random

import pytest

from kvota.planning.outgrowing import outgrowing


def days(
    count: int, *, growth: float, noise: float = 0.0, seed: int = 1
) -> list[tuple[int, float]]:
    dice = random.Random(seed)
    return [(20_000 + day, 100 + growth * day + dice.gauss(0, noise)) for day in range(count)]


def test_a_line_is_gone_on_with() -> None:
    found = outgrowing(days(20, growth=2.0), 200.0)

    assert found is not None
    assert found.peak == pytest.approx(138)
    assert (found.days_p10, found.days_p50, found.days_p90) == pytest.approx((31, 31, 31))
    assert not found.is_short


def test_noise_makes_an_interval() -> None:
    found = outgrowing(days(30, growth=2.0, noise=10.0), 250.0)

    assert found is not None
    assert found.days_p10 is not None
    assert found.days_p50 is not None
    assert found.growth_low < found.growth_per_day < found.growth_high
    assert found.days_p10 < found.days_p50


def test_the_interval_holds_the_growth_as_often_as_it_says() -> None:
    held = []
    for seed in range(200):
        found = outgrowing(days(25, growth=1.0, noise=15.0, seed=seed), 1e9)
        assert found is not None
        held.append(found.growth_low <= 1.0 <= found.growth_high)

    assert 0.70 <= sum(held) / len(held) <= 0.90


def test_one_wild_day_moves_nothing() -> None:
    peaks = days(20, growth=2.0)
    peaks[12] = (peaks[12][0], 10_000.0)

    found = outgrowing(peaks, 200.0)

    assert found is not None
    assert found.growth_per_day == pytest.approx(2.0)


def test_who_does_not_grow_never_outgrows() -> None:
    found = outgrowing(days(20, growth=-1.0), 200.0)

    assert found is not None
    assert (found.days_p10, found.days_p50, found.days_p90) == (None, None, None)


def test_who_is_beyond_it_has_outgrown_it_now() -> None:
    found = outgrowing(days(20, growth=1.0), 90.0)

    assert found is not None
    assert found.days_p50 == 0.0


def test_few_days_are_short_and_span_what_was_seen() -> None:
    found = outgrowing([(1, 10.0), (2, 11.0), (3, 20.0)], 38.0)

    assert found is not None
    assert found.is_short
    assert (found.growth_low, found.growth_high) == (1.0, 9.0)
    assert found.days_p10 == pytest.approx((38 - found.peak) / 9)


def test_one_day_says_nothing() -> None:
    assert outgrowing([(1, 10.0)], 20.0) is None
