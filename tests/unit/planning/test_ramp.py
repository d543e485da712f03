"""A ramp goes to its goal in steps of a bounded size, and never turns round."""

import itertools
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.quota_entity import QuotaEntity
from kvota.planning.ramp import STEPS_MAX, Ramp
from kvota.planning.wanted_quotas import Difference

A = QuotaEntity(user="a")
HOUR_MS = 3_600_000
WHOLE, BROKEN = "producer_byte_rate", "controller_mutation_rate"
NUMBERS = st.floats(0.1, 1e4)


def way(ramp: Ramp, difference: Difference) -> list[float | None]:
    last = ramp.steps([difference])
    return [ramp.at_step([difference], step, last=last)[0].new for step in range(last + 1)]


def test_steps_are_a_part_of_what_a_limit_is_then() -> None:
    ramp = Ramp(10, HOUR_MS)

    assert way(ramp, Difference(A, WHOLE, 1000, 1300)) == [1000, 1100, 1210, 1300]
    assert way(ramp, Difference(A, WHOLE, 1000, 800)) == [1000, 900, 810, 800]
    assert way(ramp, Difference(A, BROKEN, 1.0, 1.15)) == [1.0, 1.1, 1.15]


def test_a_whole_number_moves_by_one_at_least() -> None:
    ramp = Ramp(1, HOUR_MS)

    assert way(ramp, Difference(A, "connection_creation_rate", 5, 8)) == [5, 6, 7, 8]
    assert way(ramp, Difference(A, "connection_creation_rate", 8, 6)) == [8, 7, 6]


def test_a_first_limit_comes_with_the_first_step_and_one_that_goes_goes_with_the_last() -> None:
    ramp = Ramp(50, HOUR_MS)
    differences = [
        Difference(A, WHOLE, 100, 300),
        Difference(A, BROKEN, None, 5.0),
        Difference(A, "request_percentage", 5.0, None),
    ]
    last = ramp.steps(differences)

    assert last == 3
    assert [
        [each.new for each in ramp.at_step(differences, step, last=last)] for step in range(4)
    ] == [
        [100, None, 5.0],
        [150, 5.0, 5.0],
        [225, 5.0, 5.0],
        [300, 5.0, None],
    ]


@pytest.mark.parametrize("old", [nan, inf])
@pytest.mark.parametrize("key", [WHOLE, BROKEN])
def test_from_a_limit_that_nobody_reaches_the_goal_comes_whole(key: str, old: float) -> None:
    ramp = Ramp(50, HOUR_MS)

    assert way(ramp, Difference(A, key, old, 1000.0))[1:] == [1000.0]
    both = [Difference(A, key, old, 1000.0), Difference(A, WHOLE, 100, 200)]
    assert [each.new for each in ramp.at_step(both, 1, last=ramp.steps(both))] == [1000.0, 150]


@pytest.mark.parametrize("goal", [nan, inf])
@pytest.mark.parametrize("key", [WHOLE, BROKEN])
def test_a_goal_that_nobody_reaches_comes_with_the_last_step(key: str, goal: float) -> None:
    ramp = Ramp(50, HOUR_MS)
    both = [Difference(A, key, 1000.0, goal), Difference(A, WHOLE, 100, 200)]

    assert ramp.steps(both[:1]) == 1
    last = ramp.steps(both)
    assert last == 2
    ways = [ramp.at_step(both, step, last=last)[0].new for step in range(last + 1)]
    assert ways == [1000.0, 1000.0, pytest.approx(goal, nan_ok=True)]


@given(NUMBERS, NUMBERS, st.floats(5, 100))
def test_no_step_is_too_large_and_the_last_one_is_the_goal(
    old: float, new: float, percent: float
) -> None:
    ramp = Ramp(percent, HOUR_MS)
    difference = Difference(A, BROKEN, old, new)
    if old == new:
        return
    values = [value for value in way(ramp, difference) if value is not None]

    assert values[0] == old
    assert values[-1] == new
    assert values == sorted(values, reverse=new < old)
    assert all(one != other for one, other in itertools.pairwise(values))
    for one, other in itertools.pairwise(values):
        assert abs(other - one) <= one * (percent / 100 + 1e-5)  # rounded to six digits


@pytest.mark.parametrize(("percent", "every_ms"), [(0, 1), (101, 1), (-5, 1), (10, 0)])
def test_steps_that_lead_nowhere_are_refused(percent: float, every_ms: int) -> None:
    with pytest.raises(ValueError, match="10%/1h"):
        Ramp(percent, every_ms)


def test_a_ramp_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match=f"more than {STEPS_MAX} steps"):
        Ramp(0.001, HOUR_MS).steps([Difference(A, WHOLE, 1e6, 1e9)])
