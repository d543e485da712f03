"""Lines whose value has not changed are not written anew, and nobody can tell."""

import random
from math import inf, nan

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvota.metrics.exposition import LINES_PER_PIECE, ColumnFamily, Exposition, Family
from kvota.metrics.metric import Metric, MetricKind

RATE = Metric("a_rate", MetricKind.GAUGE, ("n",), "A rate")
SUM = Metric("a_sum_total", MetricKind.COUNTER, ("n",), "A sum")
VALUES = (0.0, -2.5, 1.0, 0.1, 1e300, nan, inf, -inf, 123456789.125)


def family(metric: Metric, numbers: list[int], values: list[float]) -> ColumnFamily:
    return ColumnFamily(metric, [f'n="{number}"' for number in numbers], np.array(values))


@pytest.mark.parametrize("openmetrics", [False, True])
def test_what_is_written_again_is_what_is_written_for_the_first_time(openmetrics: bool) -> None:
    draw = random.Random(7)
    again = Exposition(openmetrics=openmetrics)
    numbers, values = list(range(300)), [0.0] * 300
    for _ in range(200):
        if draw.random() < 0.2:
            numbers = draw.sample(range(400), draw.choice((0, 1, 299, 300)))
            values = [draw.choice(VALUES) for _ in numbers]
        for index in draw.sample(
            range(len(values)), draw.choice((0, 1, len(values))) % (len(values) + 1)
        ):
            values[index] = draw.choice(VALUES)
        families = [
            family(RATE, numbers, values),
            Family(Metric("up", MetricKind.GAUGE, (), "Up"), [("", 1)]),
            family(SUM, numbers[:10], [1.0] * len(numbers[:10])),
        ]
        if draw.random() < 0.3:  # whoever asked has left in the middle of it
            unread = family(RATE, numbers, [draw.choice(VALUES) for _ in numbers])
            next(iter(again.written([unread])))

        written = b"".join(again.written(families))

        assert written == b"".join(Exposition(openmetrics=openmetrics).written(families))
        assert written.count(b"\na_rate{") == len(numbers)


def test_others_have_their_turn_while_thousands_of_lines_are_written() -> None:
    count = 20 * LINES_PER_PIECE
    exposition = Exposition(openmetrics=False)
    changing = [float(number) for number in range(count)]
    pieces = list(exposition.written([family(RATE, list(range(count)), changing)]))

    assert len(pieces) == 21
    same = list(exposition.written([family(RATE, list(range(count)), changing)]))
    assert len(same) == 1  # nothing has changed: there is nothing to wait for
    assert same == [b"".join(pieces)]


def test_values_are_read_as_they_were() -> None:
    text = b"".join(
        Exposition(openmetrics=False).written([family(RATE, list(range(9)), [*VALUES])])
    )
    (read,) = text_string_to_metric_families(text.decode())

    assert [repr(sample.value) for sample in read.samples] == [repr(value) for value in VALUES]
    assert b'a_rate{n="5"} NaN\n' in text
    assert b'a_rate{n="6"} +Inf\n' in text
    assert b'a_rate{n="7"} -Inf\n' in text
