"""Looks at volumes, on a real engine: what is put in force, and what is said."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.gateway.world import until

from kvota.gateway import volume_watch
from kvota.gateway.volume_watch import VolumeWatch
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.shared import Shared
from kvota.testing.manual_clock import ManualClock
from kvota.testing.stage import Cluster
from kvota.volumes import (
    Observation,
    PerVolumeLimit,
    Status,
    Threshold,
    Volume,
    VolumeThrottle,
)

LIMIT = PerVolumeLimit(hard=Threshold(available_bytes=10), soft=Threshold(available_bytes=20))
FINE_LIMIT = PerVolumeLimit(
    hard=Threshold(available_bytes=0), soft=Threshold(available_bytes=100_000)
)
FAILING = (
    "volumes: SAFETY_TIMEOUT: broker 2: no answer in 1 s. The factor 0.50 stays until its validity "
    "ends, then the fallback"
)
FAILED = Observation(status=Status.SAFETY_TIMEOUT, reason="broker 2: no answer in 1 s")


class Disks:
    """What is seen, look after look; the last goes on for ever."""

    def __init__(self, looks: Sequence[Observation], clock: ManualClock) -> None:
        self._looks = list(looks)
        self._clock = clock
        self.count = 0

    async def observe(self) -> Observation:
        self.count += 1
        self._clock.advance(100)
        return self._looks[min(self.count, len(self._looks)) - 1]


def seen(*available: int) -> Observation:
    return Observation(
        status=Status.SUCCESS,
        volumes=[
            Volume(broker_id=broker, log_dir="/d", total_bytes=100, available_bytes=free)
            for broker, free in enumerate(available, 1)
        ],
    )


def seen_finely(available: int) -> Observation:
    volume = Volume(broker_id=1, log_dir="/d", total_bytes=200_000, available_bytes=available)
    return Observation(status=Status.SUCCESS, volumes=[volume])


@contextlib.asynccontextmanager
async def watching(
    shared: Shared,
    looks: Sequence[Observation],
    *,
    per_broker: bool = False,
    fallback: float = 0.0,
    limit: PerVolumeLimit = LIMIT,
) -> AsyncIterator[tuple[Disks, list[int]]]:
    clock = ManualClock()
    disks, looked_again = Disks(looks, clock), []
    throttle = VolumeThrottle(
        limit, fallback=fallback, validity_ms=250, per_broker=per_broker, now_ms=clock.now_ms()
    )
    watch = VolumeWatch(
        disks.observe,
        throttle,
        shared,
        look_again=lambda: looked_again.append(disks.count),
        now_ms=clock.now_ms,
        interval_ms=1,
        on_look=lambda _: None,
    )
    task = asyncio.get_running_loop().create_task(watch.run())
    yield disks, looked_again
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def produce_limit(shared: Shared, node_id: int = 1) -> float | None:
    lane = shared.engine.lane(QuotaType.PRODUCE, node_id, "alice", "app", 0)
    assert lane is not None
    return lane.limit


@pytest.fixture
def shared() -> Shared:
    limits = {QuotaType.PRODUCE: 1000.0, QuotaType.FETCH: 1000.0}
    return Cluster(table=ConfiguredQuotas({QuotaEntity(user="alice"): limits})).shared


async def test_the_factor_is_laid_over_the_produce_limit_alone(shared: Shared) -> None:
    async with watching(shared, [seen(50), seen(15)]) as (disks, looked_again):
        await until(lambda: disks.count >= 4)

        assert produce_limit(shared) == 500.0
        fetch = shared.engine.lane(QuotaType.FETCH, 1, "alice", "app", 0)
        assert fetch is not None
        assert fetch.limit == 1000.0
        assert len(looked_again) == 1  # once, not at each look


async def test_each_broker_has_its_own_where_it_is_asked_for(shared: Shared) -> None:
    async with watching(shared, [seen(50, 15)], per_broker=True) as (disks, _):
        await until(lambda: disks.count >= 2)

        assert [produce_limit(shared, node) for node in (1, 2, 3)] == [1000.0, 500.0, 1000.0]


@pytest.mark.parametrize(
    ("of_nobody", "limits"),
    [(50, [1000.0, 500.0]), (15, [500.0, 500.0]), (12, [200.0, 200.0]), (5, [0.0, 0.0])],
)
async def test_a_volume_that_is_nobodys_counts_for_each_broker(
    shared: Shared, of_nobody: int, limits: list[float]
) -> None:
    local = Volume(broker_id=-1, log_dir="/d", total_bytes=100, available_bytes=of_nobody)
    look = Observation(status=Status.SUCCESS, volumes=[*seen(50, 15).volumes, local])
    async with watching(shared, [look], per_broker=True) as (disks, _):
        await until(lambda: disks.count >= 2)

        assert [produce_limit(shared, node) for node in (1, 2)] == pytest.approx(limits)
        assert produce_limit(shared, 3) == limits[0]  # a broker without volumes


async def test_a_fallback_for_all_replaces_the_brokers_own(shared: Shared) -> None:
    looks = [seen(50, 15), FAILED]
    async with watching(shared, looks, per_broker=True, fallback=0.5) as (disks, _):
        await until(lambda: disks.count >= 6)

        # Not half of the half that broker 2 had by itself.
        assert [produce_limit(shared, node) for node in (1, 2, 3)] == [500.0, 500.0, 500.0]


async def test_a_broker_that_is_gone_for_good_leaves_no_factor_behind(shared: Shared) -> None:
    async with watching(shared, [seen(50, 15), seen(50)], per_broker=True) as (disks, _):
        await until(lambda: disks.count >= 6)  # so long its volume counts

        assert produce_limit(shared, 2) == 1000.0


async def test_a_look_that_hangs_does_not_delay_the_end_of_validity(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_watch, "_VALIDITY_LOOK_S", 0.01)
    clock = ManualClock()
    throttle = VolumeThrottle(
        LIMIT, fallback=0.5, validity_ms=250, per_broker=False, now_ms=clock.now_ms()
    )

    async def observe() -> Observation:
        clock.advance(251)
        await asyncio.Event().wait()
        raise AssertionError

    watch = VolumeWatch(
        observe,
        throttle,
        shared,
        look_again=lambda: None,
        now_ms=clock.now_ms,
        interval_ms=1,
        on_look=lambda _: None,
    )
    task = asyncio.get_running_loop().create_task(watch.run())
    await until(lambda: produce_limit(shared) == 500.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_changes_is_said_and_what_stays_is_not(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    looks = [seen(50), seen(15), seen(15), seen(15), FAILED, FAILED, seen(50)]

    async with watching(shared, looks) as (disks, _):
        await until(lambda: disks.count >= 12)

    said = [record.getMessage() for record in caplog.records if "volumes" in record.getMessage()]
    assert said == [
        "volumes: produce factor 1.00 -> 0.50: broker 1 /d has 15 of 100 bytes available",
        FAILING,
        "volumes: they can be looked at again",
        "volumes: produce factor 0.50 -> 1.00",
    ]


async def test_a_factor_that_goes_down_in_a_line_is_said_at_steps_and_not_at_each_look(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    room = [100_000 - each for each in range(0, 100_001, 2_500)]  # 0.025 of the line at each look
    looks = [seen_finely(each) for each in room]

    async with watching(shared, looks, limit=FINE_LIMIT) as (disks, looked_again):
        await until(lambda: disks.count >= len(looks) + 3)

    said = [record.getMessage() for record in caplog.records if "factor" in record.getMessage()]
    assert [line.partition(":")[2].split()[4].rstrip(":") for line in said] == [
        *("0.97", "0.85", "0.72", "0.60", "0.47", "0.35", "0.23", "0.12", "0.03", "0.00")
    ]
    assert len(looked_again) == len(looks) - 1  # every one of them came into force


async def test_a_fallback_that_changes_nothing_is_said_all_the_same(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    looks = [seen(5), FAILED]

    async with watching(shared, looks) as (disks, looked_again):
        await until(lambda: disks.count >= 8)

    said = [record.getMessage() for record in caplog.records if "fallback:" in record.getMessage()]
    assert said == [
        "volumes: produce factor 0.00, now as the fallback: no look has succeeded for the validity"
    ]
    assert len(looked_again) == 1
