"""A forecast covers what comes as often as it says, and is nearer to it than a straight line."""

from functools import cache

import numpy as np
import pytest

from kvota.testing.synthetic_volumes import HOUR_US, KINDS, Kind, SyntheticVolume, synthetic_volume
from kvota.volumes.forecast import VolumeForecast, forecast_volume

HORIZON_H = 72
EACH = 25
LINE_H = 168


@cache
def judged() -> list[tuple[SyntheticVolume, VolumeForecast]]:
    volumes = [
        synthetic_volume(kind, seed) for kind in KINDS for seed in range(1_000, 1_000 + EACH)
    ]
    return [(volume, forecast_of(volume)) for volume in volumes]


def forecast_of(volume: SyntheticVolume) -> VolumeForecast:
    found = forecast_volume(volume.ts_us, volume.used_bytes, horizon_h=HORIZON_H)
    assert found is not None
    return found


def grown(growth: np.ndarray, *, begin: float = 100e9) -> tuple[np.ndarray, np.ndarray]:
    """Looks an hour apart at what has grown so much in each."""
    used = begin + np.concatenate([[0.0], np.cumsum(growth)])
    return HOUR_US * np.arange(len(used), dtype=np.int64), used


def seen(growth: np.ndarray, *, horizon_h: int = HORIZON_H) -> VolumeForecast:
    found = forecast_volume(*grown(growth), horizon_h=horizon_h)
    assert found is not None
    return found


def noisy(hours: int, *, mean: float = 1e9) -> np.ndarray:
    return mean * np.random.default_rng(1).gamma(8.0, 1 / 8.0, hours)


def test_the_interval_covers_what_comes_where_nothing_is_cleaned_up() -> None:
    covered = [
        found.quantile(0.1)[-1] <= volume.later_bytes[-1] <= found.quantile(0.9)[-1]
        for volume, found in judged()
        if not volume.is_cleaned_later
    ]

    assert len(covered) >= 90
    assert 0.70 <= np.mean(covered) <= 0.90


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_nearer_than_a_straight_line_over_seven_days(kind: Kind) -> None:
    ours, lines = [], []
    for volume, found in judged():
        if volume.kind == kind:
            slope = np.polyfit(np.arange(LINE_H), volume.used_bytes[-LINE_H:], 1)[0]
            line = volume.used_bytes[-1] + slope * HORIZON_H
            ours.append(abs(found.quantile(0.5)[-1] - volume.later_bytes[-1]))
            lines.append(abs(line - volume.later_bytes[-1]))

    assert np.mean(ours) < np.mean(lines)


def test_the_same_looks_give_the_same_forecast() -> None:
    volume = synthetic_volume("steady", 5)

    first, second = forecast_of(volume), forecast_of(volume)

    assert np.array_equal(first.paths, second.paths)
    assert first.reached(volume.used_bytes[-1] + 50e9) == second.reached(
        volume.used_bytes[-1] + 50e9
    )


def test_a_clean_up_is_no_growth() -> None:
    growth = noisy(20 * 24)
    with_clean_up = growth.copy()
    with_clean_up[300] = -90e9

    without, found = seen(growth), seen(with_clean_up)

    assert (without.resets, found.resets) == (0, 1)
    assert found.growth_per_day(0.5) == pytest.approx(without.growth_per_day(0.5), rel=0.05)


def test_what_is_deleted_every_day_is_retention() -> None:
    growth = noisy(20 * 24)
    growth[::24] -= growth.reshape(-1, 24).sum(axis=1)

    found = seen(growth)

    assert found.resets == 0
    assert abs(found.growth_per_day(0.5)) < 1e9


def test_after_a_lasting_change_the_new_level_counts() -> None:
    growth = noisy(25 * 24)
    growth[-4 * 24 :] *= 3

    found = seen(growth)

    assert found.growth_per_day(0.5) == pytest.approx(72e9, rel=0.1)


def test_one_wild_day_is_no_lasting_change() -> None:
    growth = noisy(25 * 24)
    growth[-8 * 24 : -7 * 24] *= 3

    assert seen(growth).growth_per_day(0.5) == pytest.approx(24e9, rel=0.2)


def test_hours_of_the_day_are_told_apart() -> None:
    """All of a day comes in its second half; the last look is at midnight."""
    growth = np.tile(np.repeat([0.0, 2e9], 12), 20)

    found = seen(growth, horizon_h=24)

    half, whole = (
        found.quantile(0.5)[11] - found.used_bytes,
        found.quantile(0.5)[23] - found.used_bytes,
    )
    assert half == pytest.approx(0, abs=1e6)
    assert whole == pytest.approx(24e9)


def test_an_interval_is_as_wide_as_days_differ() -> None:
    days = np.random.default_rng(2).normal(24e9, 3e9, 28)

    found = seen(np.repeat(days / 24, 24))

    width = found.quantile(0.9)[-1] - found.quantile(0.1)[-1]
    # Of three days, and of the level that 28 days have shown with a half-life of seven.
    expected = 2 * 1.28 * days.std() * np.sqrt(3 + 9 / 20)
    assert width == pytest.approx(expected, rel=0.25)


def test_a_limit_is_reached_in_the_middle_of_an_hour() -> None:
    found = seen(np.full(10 * 24, 1e9))

    reached = found.reached(found.used_bytes + 10.5e9)

    assert reached.hours_p10 == pytest.approx(10.5)
    assert reached.hours_p90 == pytest.approx(10.5)
    assert reached.probability == 1.0


def test_a_limit_beyond_the_horizon_has_no_time() -> None:
    found = seen(noisy(10 * 24))

    reached = found.reached(found.used_bytes + 1e12)

    assert (reached.hours_p10, reached.hours_p50, reached.hours_p90) == (None, None, None)
    assert reached.probability == 0.0


def test_a_limit_that_is_reached_is_reached_now() -> None:
    found = seen(noisy(10 * 24))

    assert found.reached(found.used_bytes).hours_p50 == 0.0


def test_a_short_history_says_so_and_spans_what_was_seen() -> None:
    growth = np.full(40, 1e9)
    growth[20:25] = 4e9

    found = seen(growth)

    reached = found.reached(found.used_bytes + 20e9)
    assert (found.method, found.skill, reached.probability) == ("short", None, None)
    assert reached.hours_p10 == pytest.approx(20 / 4)  # by the largest growth that was seen
    assert reached.hours_p50 == pytest.approx(20 / growth.mean() * 1e9)
    assert reached.hours_p90 == pytest.approx(20)


def test_of_one_look_nothing_is_said() -> None:
    assert forecast_volume(np.array([0]), np.array([5.0]), horizon_h=24) is None


def test_hours_without_looks_are_filled_in_by_the_others() -> None:
    ts_us, used = grown(noisy(20 * 24))
    there = (np.arange(len(ts_us)) < 200) | (np.arange(len(ts_us)) > 290)

    found = forecast_volume(ts_us[there], used[there], horizon_h=HORIZON_H)

    assert found is not None
    assert found.growth_per_day(0.5) == pytest.approx(24e9, rel=0.1)


def test_the_back_test_says_by_how_much_a_straight_line_is_beaten() -> None:
    skills = [found.skill for _, found in judged() if found.skill is not None]

    assert len(skills) == len(judged())
    assert np.median(skills) > 0.2


def test_an_idle_volume_stays_as_it_is() -> None:
    found = seen(np.zeros(10 * 24))

    assert found.resets == 0
    assert found.reached(found.used_bytes + 1).probability == 0.0
