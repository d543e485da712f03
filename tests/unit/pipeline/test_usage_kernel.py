"""Windows and their quantiles against the plain definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.pipeline.kernels import usage_kernel as k

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(-3, 50).map(float)),
    min_size=1,
    max_size=60,
    unique_by=lambda row: row[:2],
).map(sorted)


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def windows_of(rows: list[tuple[int, int, float]], window_s: int) -> list[tuple[float, ...]]:
    """By the letter: every second of a window is a value, quiet ones are 0."""
    value_of = {(key, second): value for key, second, value in rows}
    found = []
    for key, start_s in sorted({(key, second // window_s * window_s) for key, second, _ in rows}):
        seconds = [value_of.get((key, start_s + i), 0.0) for i in range(window_s)]
        busy = [start_s + i for i in range(window_s) if (key, start_s + i) in value_of]
        tens = [sum(value_of.get((key, s - back), 0.0) for back in range(10)) / 10 for s in busy]
        found.append(
            (
                start_s,
                sum(seconds),
                sum(seconds) / window_s,
                *(nearest_rank(seconds, share) for share in (0.5, 0.95, 0.99, 1.0)),
                max(0.0, *tens),
            )
        )
    return found


def shares_of_limits(
    values: list[float], limits: list[float], *, window_s: int = 100
) -> list[float]:
    """The share of the limit in each window; a value and a limit for each second."""
    count = len(values)
    rates = np.zeros((k.RATES, count))
    found = k.usage_windows(
        np.zeros(count, np.int64),
        np.arange(count),
        np.array(values),
        np.array(limits),
        np.sort(values),
        np.zeros(count, np.int64),
        np.full(count, window_s, np.int64),
        np.zeros(count + 1, np.int64),
        np.zeros(count, np.int64),
        rates,
    )
    return rates[k.LIMIT_SHARE, :found].tolist()


def by_kernel(rows: list[tuple[int, int, float]], window_s: int) -> list[tuple[float, ...]]:
    ids, seconds, values = (np.array(column) for column in zip(*rows, strict=True))
    count = len(ids)
    first_rows, starts_s = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    rates = np.zeros((k.RATES, count))
    ordered = values[np.lexsort((values, seconds // window_s, ids))]
    found = k.usage_windows(
        ids.astype(np.int64),
        seconds.astype(np.int64),
        values,
        np.full(count, np.inf),
        ordered,
        np.zeros(count, np.int64),
        np.full(count, window_s, np.int64),
        first_rows,
        starts_s,
        rates,
    )
    places = (k.VALUE, k.MEAN, k.P50, k.P95, k.P99, k.MOST, k.MOST_10S)
    return [(starts_s[i], *(rates[place, i] for place in places)) for i in range(found)]


@settings(deadline=None)
@given(ROWS, st.sampled_from([1, 7, 20, 60, 100]))
def test_windows_are_as_the_definition_says(
    rows: list[tuple[int, int, float]], window_s: int
) -> None:
    assert by_kernel(rows, window_s) == windows_of(rows, window_s)


def test_ten_seconds_across_the_border_of_two_windows_are_seen() -> None:
    rows = [(1, second, 100.0) for second in range(55, 65)]

    assert [window[-1] for window in by_kernel(rows, 60)] == [50.0, 100.0]


def test_each_second_is_measured_by_the_limit_that_it_had() -> None:
    none = math.inf

    # All of the limit in each second, before it fell to a tenth and after.
    assert shares_of_limits([1000.0] * 20 + [100.0] * 20, [1000.0] * 20 + [100.0] * 20) == [1.0]
    # 300 % of the lowered one in three seconds: 7 at 100 % and 3 at 300 % of ten seconds.
    lowered = [1000.0] * 20 + [100.0] * 3
    assert shares_of_limits([1000.0] * 20 + [300.0] * 3, lowered) == [pytest.approx(1.6)]
    # Seconds without a limit use nothing of one, and who never had one has no share.
    assert shares_of_limits([9e9] * 10 + [70.0], [none] * 10 + [70.0]) == [0.1]
    (unknown,) = shares_of_limits([9e9] * 10, [none] * 10)
    assert math.isnan(unknown)
    # Where nothing changed it is the largest rate by the limit, to the last bit.
    values = [0.1 * second for second in range(30)]
    assert shares_of_limits(values, [0.7] * 30) == [by_kernel_of_one(values) / 0.7]
    # The windows before count, too.
    assert shares_of_limits([10.0] * 12, [10.0] * 6 + [1.0] * 6, window_s=6) == [
        0.6,
        pytest.approx(6.4),
    ]


def by_kernel_of_one(values: list[float]) -> float:
    (window,) = by_kernel([(0, second, value) for second, value in enumerate(values)], 100)
    return window[-1]
