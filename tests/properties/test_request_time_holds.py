"""What one connection is given of the thread under REQUEST: the quota times the interval and a window, and one request.

That is so where no request takes more than the quota has in a second. One that does passes once a sample, because no throttle is
longer (Kafka's cap): then its number is bounded, not its time.
"""

from itertools import pairwise
from math import ceil

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.engine.thread_share import COUNTS_PER_PERCENT_S
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import HEARTBEAT, answer, request
from kvota.testing.stage import Cluster, Stage, quotas

LIMIT = 10.0
# 11 samples of 1 s.
WINDOW_S = 11.0
NS_PER_PERCENT_S = 10_000_000
# Less than 1 ms is worth no row of its own: it is charged with what comes next.
WAITS_PERCENT_S = 0.1
_CALM = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))

# What a request takes, in percent-seconds, and how long its client then waits, in ms.
_ORDINARY = st.tuples(st.floats(0.001, LIMIT), st.sampled_from([0, 0, 0, 1, 10, 900, 12_000]))
_LONG = st.tuples(st.floats(LIMIT, 50 * LIMIT), st.sampled_from([0, 0, 1, 500]))
_ASK, _ANSWER = request(HEARTBEAT, 4), answer(HEARTBEAT, 4)


def given_to(loop: list[tuple[float, int]]) -> list[tuple[float, float]]:
    """When each request was answered, in s, and what it was charged; the next one is sent when the last mute is over."""
    cluster = Cluster(quotas(REQUEST=LIMIT))
    stage = Stage(cluster)
    start_ms = cluster.now_ms
    for percent_s, pause_ms in loop:
        while stage.muted:
            stage.advance(1_000)
        stage.step_ns = round(percent_s * NS_PER_PERCENT_S)
        stage.client(_ASK)
        stage.step_ns = 0
        stage.broker(_ANSWER)
        stage.advance(pause_ms)
    return [
        (row.ts_us / 1e6 - start_ms / 1e3, row.value)
        for row in cluster.rows
        if row.memo.quota_type is QuotaType.REQUEST
    ]


def excess(charged: list[tuple[float, float]]) -> float:
    """By how much the worst interval is above the quota times it, its last request left out."""
    worst = over = last_s = 0.0
    for at_s, value in charged:
        over = max(0.0, over - LIMIT * (at_s - last_s))
        last_s = at_s
        worst = max(worst, over)
        over += value
    return worst


@_CALM
@given(loop=st.lists(_ORDINARY, min_size=20, max_size=300))
def test_it_is_given_no_more_than_the_quota_a_window_and_one_request(
    loop: list[tuple[float, int]],
) -> None:
    charged = given_to(loop)

    assert len(charged) <= len(loop)
    assert excess(charged) <= LIMIT * WINDOW_S
    spent = sum(percent_s for percent_s, _ in loop)
    uncharged = spent - sum(value for _, value in charged)
    rounding = len(loop) / COUNTS_PER_PERCENT_S + 1e-5
    assert -rounding <= uncharged <= WAITS_PERCENT_S + rounding


@_CALM
@given(loop=st.lists(_LONG, min_size=20, max_size=60))
def test_requests_longer_than_the_quota_has_in_a_second_come_once_a_second(
    loop: list[tuple[float, int]],
) -> None:
    charged = given_to(loop)
    # The first ones fit into an empty window.
    held = [at_s for at_s, _ in charged[ceil(WINDOW_S) :]]

    assert all(after - before >= 0.999 for before, after in pairwise(held))


def test_a_loop_without_pauses_is_near_its_bound() -> None:
    """So the bound is no idle one."""
    charged = given_to([(LIMIT / 20, 0)] * 2_000)

    assert excess(charged) > 0.8 * LIMIT * WINDOW_S
