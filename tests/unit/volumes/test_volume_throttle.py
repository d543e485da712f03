"""Observations in, factors out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.volumes import (
    Observation,
    PerVolumeLimit,
    Status,
    Threshold,
    Volume,
    VolumeThrottle,
)
from kvota.volumes.growth import Growth

LIMIT = PerVolumeLimit(hard=Threshold(available_bytes=10), soft=Threshold(available_bytes=20))
FAILED = Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason="broker 2: no answer in 1 s")


def throttle(*, per_broker: bool = False, fallback: float = 0.0) -> VolumeThrottle:
    return VolumeThrottle(
        LIMIT, fallback=fallback, validity_ms=1_000, per_broker=per_broker, now_ms=0
    )


def seen(**available: int) -> Observation:
    return Observation(
        status=Status.SUCCESS,
        volumes=[
            Volume(broker_id=int(broker[1:]), log_dir="/d", total_bytes=100, available_bytes=free)
            for broker, free in available.items()
        ],
    )


def test_the_fullest_volume_throttles_all() -> None:
    state = throttle()

    assert state.take(seen(b1=50, b2=15), 0)
    assert state.factors == {None: 0.5}
    assert state.verdict.most_severe is not None
    assert state.verdict.most_severe.broker_id == 2


def test_each_broker_by_itself() -> None:
    state = throttle(per_broker=True)

    state.take(seen(b1=50, b2=15, b3=5), 0)

    assert state.factors == {None: 1.0, 1: 1.0, 2: 0.5, 3: 0.0}
    assert state.factor == 0.0


def test_a_full_broker_that_restarts_releases_nobody() -> None:
    state = throttle()
    state.take(seen(b1=50, b2=5), 0)

    state.take(seen(b1=50), 999)
    assert state.factor == 0.0
    state.take(seen(b1=50), 1_000)
    assert state.factor == 1.0


HOURS_MS = 5 * 3_600_000


@given(
    steps=st.lists(
        st.tuples(st.integers(-HOURS_MS, HOURS_MS), st.sampled_from([None, 5, 15, 50])), max_size=20
    )
)
def test_whatever_the_time_does_a_look_that_succeeds_is_in_force_at_once(
    steps: list[tuple[int, int | None]],
) -> None:
    state = throttle(fallback=0.3)
    now_ms, told = 0, 1.0
    for jump_ms, available in steps:
        now_ms += jump_ms
        if available is None:
            state.take(FAILED, now_ms)
        else:
            state.take(seen(b1=available), now_ms)
            told = {5: 0.0, 15: 0.5, 50: 1.0}[available]
            assert not state.is_fallback
        assert state.factor == (0.3 if state.is_fallback else told)

    state.take(seen(b1=15), now_ms)  # nothing of what was is left of it
    assert (state.factor, state.is_fallback) == (0.5, False)
    assert not state.look(now_ms + 1_000)
    assert state.look(now_ms + 1_001)


def test_failures_keep_the_factor_until_its_validity_ends() -> None:
    state = throttle(fallback=0.3)
    state.take(seen(b1=15), 0)

    assert not state.take(FAILED, 1_000)
    assert state.factors == {None: 0.5}
    assert state.take(FAILED, 1_001)
    assert (state.factor, state.is_fallback, state.fallbacks) == (0.3, True, 1)
    assert state.looks[Status.DESCRIBE_LOG_DIR_ERROR] == 2
    assert state.fallback_reasons == {Status.DESCRIBE_LOG_DIR_ERROR: 1}
    assert state.take(seen(b1=50), 1_002)
    assert (state.factor, state.is_fallback) == (1.0, False)


@pytest.mark.parametrize("per_broker", [False, True])
def test_the_fallback_holds_for_all_brokers(*, per_broker: bool) -> None:
    state = throttle(per_broker=per_broker)
    state.take(seen(b1=50, b2=15), 0)

    assert state.look(1_001)

    assert state.factors == {None: 0.0}


def test_each_breached_volume_is_a_violation_of_its_own() -> None:
    state = throttle()

    state.take(seen(b1=5, b2=15, b3=50), 0)
    assert state.violations == 2
    state.take(seen(b1=50, b2=5, b3=50), 100)
    assert state.violations == 3
    state.take(FAILED, 200)
    assert state.violations == 3


def test_looks_that_fail_forget_volumes_whose_time_is_over() -> None:
    state = throttle()
    state.take(seen(b1=50), 0)

    state.take(FAILED, 999)
    assert [volume.broker_id for volume in state.volumes] == [1]
    state.take(FAILED, 1_000)
    assert state.volumes == ()


def test_the_same_again_is_no_change() -> None:
    state = throttle(per_broker=True)
    state.take(seen(b1=15), 0)

    assert not state.take(seen(b1=15), 500)
    assert not state.look(900)


def volume(available: int) -> Volume:
    return Volume(broker_id=1, log_dir="/d", total_bytes=1_000, available_bytes=available)


@pytest.mark.parametrize(
    ("before", "now", "threshold", "seconds"),
    [
        (600, 500, Threshold(available_bytes=200), 30.0),
        (600, 500, Threshold(available_ratio=0.25), 25.0),
        (500, 500, Threshold(available_bytes=200), None),
        (400, 500, Threshold(available_bytes=200), None),
        (600, 200, Threshold(available_bytes=200), 0.0),
    ],
)
def test_when_a_limit_is_reached_like_this(
    before: int, now: int, threshold: Threshold, seconds: float | None
) -> None:
    growth = Growth.between(volume(before), volume(now), elapsed_s=10.0)

    assert growth.seconds_until(threshold) == seconds
