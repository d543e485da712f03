"""Running mutes are looked at again when the quotas behind them change."""

import pytest

from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    CREATE_TOPICS,
    HEARTBEAT,
    fetch,
    fetch_answer,
    parts,
    produce,
    request,
)
from kvota.testing.stage import Cluster, Stage, quotas

LARGE = b"x" * 100_000
BEHIND = request(HEARTBEAT, 4, correlation=9)


def muted_producer(cap_ms: int = 10**9) -> Stage:
    """Muted for some 90 s, with a request behind."""
    stage = Stage(Cluster(quotas(PRODUCE=1_000)), cap_ms=cap_ms)
    stage.client(produce(records=LARGE) + BEHIND)
    assert stage.mutes[0] > 80_000
    return stage


def test_a_limit_that_is_raised_ends_the_mute_that_it_caused() -> None:
    stage = muted_producer()
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=1e9))

    stage.look_again()

    assert stage.advance(0) == BEHIND


def test_a_limit_that_is_raised_a_little_shortens_the_mute() -> None:
    stage = muted_producer()
    stage.advance(1_000)
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=5_000))

    stage.look_again()

    now_ms = stage.cluster.now_ms
    lane = stage.cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", now_ms)
    assert lane is not None
    due_ms = lane.peek(now_ms)
    assert 0 < due_ms < 20_000
    assert stage.advance(due_ms - 1) == b""
    assert stage.advance(1) == BEHIND


def test_a_limit_that_is_lowered_lengthens_the_mute() -> None:
    stage = muted_producer()
    before_ms = stage.mutes[0]
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=500))

    stage.look_again()

    assert stage.advance(before_ms) == b""


@pytest.mark.parametrize(("limit", "left_ms"), [(1_001, 59_930), (2_000, 25_000), (500, 130_000)])
def test_a_limit_that_changes_behind_the_window_leaves_what_is_still_to_be_paid(
    limit: float, left_ms: int
) -> None:
    stage = muted_producer()
    stage.advance(stage.mutes[0] - 60_000)  # the window has forgotten the request
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=limit))

    stage.look_again()

    assert stage.advance(left_ms - 1_000) == b""
    assert stage.advance(1_000) == BEHIND


def test_limits_that_change_to_and_fro_leave_a_mute_as_it_is() -> None:
    stage = muted_producer()
    for limit in (400, 1_000, 5_000, 1_000):
        stage.cluster.engine.replace_quotas(quotas(PRODUCE=limit))
        stage.look_again()

    assert stage.advance(stage.mutes[0] - 1) == b""
    assert stage.advance(1) == BEHIND


def test_a_counter_that_was_put_away_leaves_the_mute_as_it_is() -> None:
    stage = muted_producer()
    stage.advance(20_000)
    now_ms = stage.cluster.now_ms
    lane = stage.cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", now_ms)
    assert lane is not None
    lane.outdate()

    stage.look_again()

    assert stage.advance(stage.mutes[0] - 20_001) == b""
    assert stage.advance(1) == BEHIND


def test_a_quota_that_is_removed_ends_the_mute() -> None:
    stage = muted_producer()
    stage.cluster.engine.replace_quotas(quotas())

    stage.look_again()

    assert stage.advance(0) == BEHIND


def test_a_quota_of_somebody_else_changes_nothing() -> None:
    stage = muted_producer()
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=1_000, FETCH=5))

    stage.look_again()

    assert stage.advance(stage.mutes[0] - 1) == b""
    assert stage.advance(1) == BEHIND


def test_the_mute_behind_a_request_let_through_ends_too() -> None:
    stage = muted_producer(cap_ms=1_000)
    assert stage.advance(1_000) == BEHIND  # one is let through
    stage.advance(1_000)
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=1e9))

    stage.look_again()
    stage.advance(0)

    assert stage.client(produce(correlation=2)) == produce(correlation=2)
    assert not stage.muted


def test_a_consumers_mute_is_looked_at_again() -> None:
    stage = Stage(Cluster(quotas(FETCH=1_000)), cap_ms=10**9)
    stage.client(fetch())
    stage.broker(fetch_answer(records=LARGE))
    assert stage.muted
    stage.cluster.engine.replace_quotas(quotas(FETCH=1e9))

    stage.look_again()
    stage.advance(0)

    assert not stage.muted


def test_the_longer_one_of_two_mutes_goes_on_when_the_other_ones_quota_changes() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000, FETCH=1_000)), cap_ms=10**9)
    stage.client(fetch(correlation=1) + produce(correlation=2, records=LARGE) + BEHIND)
    stage.broker(fetch_answer(correlation=1, records=b"x" * 11_000))
    assert stage.mutes[0] > 80_000 > stage.mutes[1] > 0
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=1_000, FETCH=1e9))

    stage.look_again()

    assert stage.advance(80_000) == b""


def test_a_mute_that_goes_on_behind_its_window_is_not_ended_by_another_quotas_change() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000, FETCH=1_000)), cap_ms=10**9)
    stage.client(fetch(correlation=1) + produce(correlation=2, records=LARGE) + BEHIND)
    stage.broker(fetch_answer(correlation=1, records=b"x" * 50_000))
    stage.advance(20_000)
    stage.cluster.engine.replace_quotas(quotas(PRODUCE=1_000, FETCH=1e9))

    stage.look_again()

    assert stage.advance(stage.mutes[0] - 20_001) == b""
    assert stage.advance(1) == BEHIND


def test_an_admins_mute_is_looked_at_again() -> None:
    stage = Stage(Cluster(quotas(CONTROLLER_MUTATION=1)), cap_ms=10**9)
    topic = {
        "name": "a",
        "num_partitions": 50,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    topics = parts(CREATE_TOPICS, 5, "request", "CreatableTopic", topic)
    stage.client(request(CREATE_TOPICS, 5, topics=topics, validate_only=True, client="app"))
    stage.machine.caller.pausing.reasons &= ~Reason.WAITING
    now_ms = stage.cluster.now_ms
    quota = stage.cluster.engine.mutations("ANONYMOUS", "app", strict=False, now_ms=now_ms)
    assert quota.lane is not None
    throttle_ms = quota.charge(100, now_ms).throttle_ms
    stage.machine.caller.mute(throttle_ms, quota.lane, "app", now_ms)
    stage.cluster.engine.replace_quotas(quotas(CONTROLLER_MUTATION=1e6))

    stage.look_again()
    stage.advance(0)

    assert not stage.muted


def test_a_blocked_client_waits_half_a_minute_at_a_time_until_its_factor_recovers() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1e6)), cap_ms=10**9)
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 1e-9)

    stage.client(produce() + BEHIND)
    assert stage.mutes == [30_000]
    assert stage.advance(20_000) == b""
    stage.cluster.engine.set_factor(QuotaType.PRODUCE, 1.0)
    stage.look_again()

    assert stage.advance(0) == BEHIND


def test_at_factor_0_nothing_is_let_through_on_new_connections_either() -> None:
    cluster = Cluster(quotas(PRODUCE=1e6))
    cluster.engine.set_factor(QuotaType.PRODUCE, 0.0)
    stages = [Stage(cluster, number=number) for number in range(1, 4)]

    assert [stage.client(produce()) for stage in stages] == [b""] * 3
    assert [stage.advance(5_000) for stage in stages] == [b""] * 3
    cluster.engine.set_factor(QuotaType.PRODUCE, 1.0)

    assert [stage.wake_up() or stage.to_broker for stage in stages] == [produce()] * 3
