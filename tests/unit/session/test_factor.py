"""Limits that a factor lowers: a disk is nearly full, and may be empty again soon."""

import pytest

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_entity import QuotaEntity
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


def test_each_row_tells_the_limit_in_force_though_nobody_is_looked_up_anew(stage: Stage) -> None:
    stage.client(produce(records=b"x"))
    stage.broker(produce_answer())
    moves = [lane.moves for lane in stage.cluster.engine.counters.all()]

    for factor in (0.5, 0.25, 1.0):
        stage.cluster.engine.set_factor(QuotaType.PRODUCE, factor)
        stage.client(produce(records=b"x"))
        stage.broker(produce_answer())

    rows = stage.cluster.rows
    assert [row.memo.limit for row in rows] == [1_000, 500, 250, 1_000]
    assert len({row.memo.tags for row in rows}) == len({row.memo.connection for row in rows}) == 1
    assert [lane.moves for lane in stage.cluster.engine.counters.all()] == moves


def test_a_factor_that_changes_with_the_quotas_does_not_hide_them(stage: Stage) -> None:
    stage.client(produce(records=b"x"))
    stage.broker(produce_answer())

    stage.cluster.replace_quotas(quotas(QuotaEntity(client_id="app"), PRODUCE=4_000))
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 0.5)
    stage.client(produce(records=b"x"))
    stage.broker(produce_answer())

    charged = [(row.memo.tags, row.memo.limit) for row in stage.cluster.rows]
    assert charged == [("client-id=,user=ANONYMOUS", 1_000), ("client-id=app,user=", 2_000)]


def test_another_client_of_the_same_connection_keeps_its_own_limit(stage: Stage) -> None:
    for factor, client_id in ((1.0, "one"), (0.5, "one"), (0.5, "two"), (0.25, "one")):
        stage.cluster.engine.set_factor(QuotaType.PRODUCE, factor)
        stage.client(produce(records=b"x", client=client_id))
        stage.broker(produce_answer())

    rows = [(row.memo.client_id, row.memo.limit) for row in stage.cluster.rows]
    assert rows == [("one", 1_000), ("one", 500), ("two", 500), ("one", 250)]
