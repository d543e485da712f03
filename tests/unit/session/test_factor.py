"""Limits that a factor lowers: a disk is nearly full, and may be empty again soon."""

import pytest

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import PRODUCE, produce, produce_answer, throttle_of
from kvota.testing.stage import Cluster, Stage, quotas

LARGE = b"x" * 100_000
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=15_000)


@pytest.fixture(params=["sampled_rate", "token_bucket"])
def stage(request: pytest.FixtureRequest) -> Stage:
    buckets = {QuotaType.PRODUCE: BUCKET} if request.param == "token_bucket" else {}
    limits = {"factor_told_ms_max": 3_000}
    return Stage(Cluster(quotas(PRODUCE=1_000), buckets=buckets, limits=limits))


def told_ms(stage: Stage) -> int:
    stage.client(produce(records=LARGE))
    return throttle_of(stage.broker(produce_answer()), PRODUCE, 9)


def test_no_client_is_told_more_than_a_few_looks_at_the_disks(stage: Stage) -> None:
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 0.5)

    assert told_ms(stage) == 3_000
    assert stage.mutes[0] > 100_000  # it is held back for all of it all the same


def test_without_a_factor_it_is_told_as_ever(stage: Stage) -> None:
    assert told_ms(stage) > 20_000


def test_the_brokers_own_throttle_is_told_where_it_is_longer(stage: Stage) -> None:
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 0.5)
    stage.client(produce(records=LARGE))

    answered = stage.broker(produce_answer(throttle_ms=7_000))

    assert throttle_of(answered, PRODUCE, 9) == 7_000


def test_who_waits_goes_on_when_there_is_room_again(stage: Stage) -> None:
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 0.0)
    stage.client(produce(records=b"x") + (behind := produce(records=b"y", correlation=2)))
    assert not stage.to_broker.endswith(behind)

    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 1.0)
    stage.look_again()
    stage.wake_up()
    stage.advance(0)

    assert stage.to_broker.endswith(behind)
