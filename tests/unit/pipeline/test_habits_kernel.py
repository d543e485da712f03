"""What sums of seconds tell of a counter's habits."""

import numpy as np
import pytest

from kvota.pipeline.kernels import habits_kernel as h

DAY_S = 86_400


def habits(*counters: list[tuple[int, float, int]]) -> list[dict[str, float]]:
    """Habits of counters, each with its seconds: (second, used, longest hold in ms)."""
    rows = [(owner, *each) for owner, of_counter in enumerate(counters) for each in of_counter]
    owners, seconds, used, held_ms = (np.array(column) for column in zip(*rows, strict=True))
    firsts, found = np.empty(len(rows), np.int64), np.empty((h.HABITS, len(rows)))
    count = h.habits(owners, seconds, used.astype(np.float64), held_ms, firsts, found)
    names = ("total", "most", "usual", "hours", "held")
    return [dict(zip(names, found[:, place].tolist(), strict=True)) for place in range(count)]


def test_the_usual_rate_is_of_the_minutes_in_which_it_did_something() -> None:
    always = [(second, 10.0, 0) for second in range(600)]
    # A day later another minute, in which it is busy for 40 s: 0 s of 20, and the days between count for nothing.
    now_and_then = [(second, 4.0, 0) for second in range(60, 100)]
    now_and_then += [(DAY_S + second, 6.0, 0) for second in range(60, 100)]
    seldom = [(second, 50.0, 0) for second in range(0, 600, 10)]

    first, second, third = habits(always, now_and_then, seldom)

    assert (first["usual"], first["total"], first["most"], first["hours"]) == (10, 6000, 10, 1)
    assert (second["usual"], second["hours"]) == (4, 2)
    assert (third["usual"], third["most"]) == (0, 50)


def test_hours_are_those_with_traffic() -> None:
    (found,) = habits([(hour * 3600 + 5, 1.0, 0) for hour in (0, 1, 1, 30)])

    assert found["hours"] == 3


def test_it_is_the_time_held_back_that_counts_and_only_of_the_last_day() -> None:
    # 100 s of traffic, in which it is held back for 5 s once, and twice for 2 s that overlap by one.
    sent = dict.fromkeys(range(100), 0) | {10: 5000, 50: 2000, 51: 2000}
    lately = [(second, 1.0, held_ms) for second, held_ms in sent.items()]
    before = [(second - 2 * DAY_S, 1.0, 60_000) for second in range(100)]

    (found,) = habits([*before, *lately])

    assert found["held"] == pytest.approx(0.08)


def test_who_waits_for_long_is_held_back_for_nearly_all_of_the_time() -> None:
    (found,) = habits([(second, 1.0, 20_000) for second in range(0, 200, 20)])

    assert found["held"] == pytest.approx(1.0)
