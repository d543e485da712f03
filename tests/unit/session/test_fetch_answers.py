"""Fetch answers over the quota: emptied, as a broker does, and what each connection finds of the counter's room."""

import pytest

from kvota.engine.answer_room import Owed
from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import ADMITTED, REJECTED, THROTTLED
from kvota.model.quota_type import QuotaType
from kvota.session.fetch_room import FETCH_WAIT_MS_MAX, WaitingFetches
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    FETCH,
    HEADER_TAGS,
    HEARTBEAT,
    answer,
    decoded,
    fetch,
    fetch_answer,
    request,
    resized,
    split,
    throttle_of,
)
from kvota.testing.stage import Cluster, Stage, quotas

LIMIT = 10_000
WINDOW = 10 * LIMIT
BUCKET = {QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}


def connections(cluster: Cluster, count: int, cap_ms: int = 10**9) -> list[Stage]:
    return [Stage(cluster, number=number + 1, cap_ms=cap_ms) for number in range(count)]


def use(cluster: Cluster, share: float) -> None:
    """Another client of the same user has used so much of the window."""
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)
    lane.admit(int(WINDOW * share), cluster.now_ms)


def is_empty(told: bytes, version: int = 12) -> bool:
    return decoded(told, FETCH, version).responses == ()


def room_of(cluster: Cluster):
    return cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms).answer_room()


# ------------------------------------------------------------------ emptied


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("tags", [b"\0", HEADER_TAGS])
@pytest.mark.parametrize("size", [20_000, 300_000])
def test_an_answer_over_the_quota_is_emptied_in_its_session(
    version: int, tags: bytes, size: int
) -> None:
    cluster = Cluster(quotas(FETCH=100_000))
    (stage,) = connections(cluster, 1)
    stage.client(fetch(version, correlation=7))
    cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms).admit(
        990_000, cluster.now_ms
    )
    tags = tags if version >= 12 else b"\0"
    sent = fetch_answer(version, correlation=7, session_id=77, records=b"f" * size, tags=tags)

    told = stage.broker(sent[:100], sent[100:150_000], sent[150_000:])

    message = decoded(told, FETCH, version)
    assert told[4:8] == (7).to_bytes(4, "big")
    assert message.responses == ()
    (row,) = cluster.rows
    assert throttle_of(told, FETCH, version) == row.throttle_ms == stage.mutes[0] > 0
    assert (row.outcome, row.value) == (REJECTED, len(fetch_answer(version, records=b"f" * size)) - 8 - (version >= 12) + 4)  # fmt: skip
    if version >= 7:
        assert (message.session_id, message.error_code) == (77, 0)
    assert cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms).allowance(
        cluster.now_ms
    ) == 10_000  # fmt: skip


@pytest.mark.parametrize("cut", [1, 9, 30, 100, 199_000, 200_100])
def test_what_follows_an_emptied_answer_arrives_wherever_it_is_cut(cut: int) -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    beat = request(HEARTBEAT, 4, correlation=2)
    stage.client(fetch() + beat)
    use(cluster, 0.99)
    told = answer(HEARTBEAT, 4, correlation=2)
    sent = fetch_answer(records=b"f" * 90_000) + told

    if cut < len(sent):
        stage.broker(sent[:cut], sent[cut:])
    else:
        stage.broker(sent)

    empty, behind = split(stage.to_client)
    assert is_empty(empty)
    assert behind == told
    assert stage.machine.idle


def test_the_gateways_own_answer_behind_an_emptied_one_keeps_its_turn() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1, cap_ms=100)
    stage.client(fetch(correlation=1))
    use(cluster, 0.99)
    sent = fetch_answer(records=b"f" * 200_000)
    room_of(cluster)._owed = Owed(10**6, cluster.now_ms)
    stage.broker(sent[:1_000])
    stage.client(fetch(correlation=2))
    stage.advance(100)
    assert len(split(stage.to_client)) == 1

    stage.broker(sent[1_000:])

    first, second = split(stage.to_client)
    assert (first[4:8], second[4:8]) == ((1).to_bytes(4, "big"), (2).to_bytes(4, "big"))


def test_an_error_at_the_top_passes_as_it_is() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    use(cluster, 1.5)
    sent = fetch_answer(error_code=71)

    told = stage.broker(sent)

    assert decoded(told, FETCH, 12).error_code == 71
    assert cluster.rows[0].outcome == THROTTLED


def test_in_shadow_mode_everything_is_delivered() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT), enforced=frozenset())
    (stage,) = connections(cluster, 1)
    use(cluster, 1.5)
    sent = fetch_answer(records=b"f" * 200_000) + fetch_answer(correlation=2)

    assert stage.client(fetch() + fetch(correlation=2)) == fetch() + fetch(correlation=2)
    assert stage.broker(sent) == sent
    assert not stage.pausing.reasons


def test_the_answer_tells_the_longer_of_the_two_waits() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    use(cluster, 1.0)

    told = stage.broker(fetch_answer(throttle_ms=123_456))

    assert is_empty(told)
    assert throttle_of(told, FETCH, 12) == 123_456
    assert cluster.rows[0].upstream_ms == 123_456


# ------------------------------------------------------------------ larger than an empty window


def test_answers_larger_than_an_empty_window_come_at_the_rate_of_the_limit() -> None:
    """A broker never delivers them: its consumer stalls. Over all connections it is one quota."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    stages = connections(cluster, 3)
    delivered = 0
    sent = fetch_answer(records=b"f" * 300_000)
    start_ms = cluster.now_ms

    while cluster.now_ms < start_ms + 1_000_000:
        for number, stage in enumerate(stages):
            fresh = Stage(cluster, number=100 + number)
            if fresh.client(fetch()):
                delivered += not is_empty(fresh.broker(sent))
            fresh.end()
            del stage
        stages[0].advance(1_000)

    assert 33 <= delivered <= 34  # 30 s each


def test_what_is_owed_for_a_large_answer_is_paid_at_the_new_limit() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    first, second = connections(cluster, 2)
    first.client(fetch())
    second.client(fetch())
    assert not is_empty(first.broker(fetch_answer(records=b"f" * 10_000_000)))
    assert is_empty(second.broker(fetch_answer(records=b"f")))

    cluster.engine.replace_quotas(quotas(FETCH=100 * LIMIT))
    second.advance(12_000)

    third = Stage(cluster, number=3)
    third.client(fetch())
    assert not is_empty(third.broker(fetch_answer(records=b"f")))


def test_a_clock_that_steps_back_makes_nobody_pay_longer_than_before() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    first, second = connections(cluster, 2)
    first.client(fetch())
    first.broker(fetch_answer(records=b"f" * 300_000))
    cluster.clock.step_wall(-3_600_000)
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)

    assert room_of(cluster).unpaid_ms(lane, cluster.now_ms) <= 30_020
    second.advance(30_020)
    assert room_of(cluster).unpaid_ms(lane, cluster.now_ms) == 0


def test_a_counter_that_is_owed_something_is_not_forgotten() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    stage.broker(fetch_answer(records=b"f" * 50_000_000))  # 5,000 s
    stage.advance(4_000_000)

    assert cluster.purge_counters() == 0
    stage.advance(2_000_000)
    assert cluster.purge_counters() == 1


def test_a_crowd_of_names_does_not_pay_for_anybody() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT, PRODUCE=10**9))
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    stage.broker(fetch_answer(records=b"f" * 1_000_000))  # 100 s
    stage.end()
    stage.advance(20_000)

    for number in range(12_000):
        cluster.engine.lane(QuotaType.PRODUCE, 1, f"user-{number}", "app", cluster.now_ms)
        if not number % 1_000:
            stage.advance(300)
            cluster.purge_counters()

    assert room_of(cluster).owed.size_bytes > 0
    assert Stage(cluster, number=2).client(fetch()) == b""


def test_a_limit_that_lets_nothing_pass_delivers_nothing() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    cluster.engine.set_factor(QuotaType.FETCH, 0.0)

    assert is_empty(stage.broker(fetch_answer(records=b"f")))


# ------------------------------------------------------------------ one counter, many connections


def learn(cluster: Cluster, size: int) -> None:
    """Connections have read, and are gone."""
    for number in range(12):
        stage = Stage(cluster, number=50 + number)
        stage.client(fetch())
        stage.broker(fetch_answer(records=b"f" * size))
        stage.end()
        stage.advance(60_000)


def test_new_connections_wait_for_what_others_have_read() -> None:
    """A connection for each Fetch gains nothing."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)

    went_up = [bool(stage.client(fetch())) for stage in connections(cluster, 5)]

    assert went_up == [True, True, False, False, False]


def test_a_reservation_lapses_where_the_broker_waits_for_more() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    *_, third, fourth = connections(cluster, 4)
    for stage in connections(cluster, 2):
        stage.client(fetch())
    assert third.client(fetch()) == fourth.client(fetch()) == b""

    assert third.advance(1_001) != b""
    assert fourth.wakes == 1
    assert fourth.wake_up() != b""


def test_who_waits_goes_up_when_an_answer_brings_less_than_expected() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    first, second, third = connections(cluster, 3)
    first.client(fetch())
    second.client(fetch())
    assert third.client(fetch()) == b""

    first.broker(fetch_answer(records=b"f"))

    assert third.wakes == 1
    assert third.wake_up() != b""


def test_who_leaves_gives_its_room_and_its_place_back() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    stages = connections(cluster, 5)
    for stage in stages:
        stage.client(fetch())
    assert [stage.machine.is_in_line for stage in stages] == [False, False, True, True, True]
    assert stages[2].machine.waits_for_an_answer

    stages[2].end()
    assert stages[3].wakes == 1
    for stage in stages:
        stage.end()

    assert len(room_of(cluster).line) == 0
    assert room_of(cluster)._reserved_bytes == 0


# Larger than what waits without taking of the memory for that.
LARGE_FETCH = resized(fetch() + bytes(20_000))


def test_a_large_fetch_waits_in_its_turn_like_others() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    *busy, large, behind = connections(cluster, 4)
    for stage in busy:
        stage.client(fetch())

    assert large.client(LARGE_FETCH) == behind.client(fetch()) == b""

    assert large.to_client == b""
    assert large.machine.is_in_line
    assert cluster.shared.waiting_fetches.used_bytes == len(LARGE_FETCH)
    busy[0].broker(fetch_answer(records=b"f"))
    assert (large.wakes, behind.wakes) == (1, 0)
    assert large.wake_up() != b""
    assert cluster.shared.waiting_fetches.used_bytes == 0


def test_a_large_fetch_that_leaves_gives_its_memory_back() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    *busy, large = connections(cluster, 3)
    for stage in busy:
        stage.client(fetch())
    large.client(LARGE_FETCH)

    large.end()

    assert cluster.shared.waiting_fetches.used_bytes == 0


def test_without_memory_for_a_large_fetch_it_is_answered_empty() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    cluster.shared.waiting_fetches = WaitingFetches(limit_bytes=30_000)
    learn(cluster, 40_000)
    *busy, first, second = connections(cluster, 4)
    for stage in busy:
        stage.client(fetch())

    first.client(LARGE_FETCH)
    second.client(LARGE_FETCH)

    assert first.to_client == b""
    assert is_empty(second.to_client)
    assert not second.machine.is_in_line


def test_those_who_wait_are_served_in_turn() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    stages = connections(cluster, 5)
    for stage in stages:
        stage.client(fetch())
    for stage in stages[:2]:
        stage.broker(fetch_answer(records=b"f" * 40_000))
    served = []

    for _ in range(20):
        for stage in reversed(stages[2:]):
            sent = stage.wake_up() + stage.advance(500)
            if sent:
                served.append(stage)
                stage.broker(fetch_answer(records=b"f" * 40_000))

    assert served[:2] == stages[2:4]


@pytest.mark.parametrize("buckets", [{}, BUCKET])
def test_a_hundred_consumers_that_have_read_all_there_is_wait_for_nobody(buckets: dict) -> None:
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=buckets)
    stages = connections(cluster, 100)

    for turn in range(20):
        for stage in stages:
            assert stage.client(fetch(correlation=turn)) != b""
            assert not stage.pausing.reasons
        for stage in stages[1:]:  # the first one's broker waits for an hour
            stage.broker(fetch_answer(correlation=turn, records=b"f" * (turn % 3)))
        stages[0].broker(fetch_answer(correlation=turn, records=b""))
        stages[0].advance(2_000)

    assert {row.outcome for row in cluster.rows} == {ADMITTED}


def test_who_has_read_all_there_is_passes_those_who_wait_for_room() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    *heavy, quiet = connections(cluster, 4)
    for turn in range(3):
        assert quiet.client(fetch(correlation=turn)) != b""
        quiet.broker(fetch_answer(correlation=turn, records=b""))
    learn(cluster, 40_000)
    for stage in heavy:
        stage.client(fetch())
    assert [stage.machine.is_in_line for stage in heavy] == [False, False, True]

    assert quiet.client(fetch(correlation=3)) != b""
    assert not quiet.pausing.reasons


def test_an_answer_that_fills_the_room_is_not_over_it_twice() -> None:
    """Names and heads come on top of what was asked for: the next request leaves room for them."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    (stage,) = connections(cluster, 1)
    outcomes = []
    for turn in range(4):
        use(cluster, 0.3)
        while not (sent := stage.client(fetch(correlation=turn)) or stage.advance(500)):
            pass
        most = decoded(sent, FETCH, 12, is_answer=False).max_bytes
        stage.broker(fetch_answer(correlation=turn, records=b"f" * most))
        outcomes.append(cluster.rows[-1].outcome)
        stage.advance(20_000)

    assert outcomes[1:] == [ADMITTED] * 3


def test_a_changed_limit_wakes_those_who_wait() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    stages = connections(cluster, 4)
    for stage in stages:
        stage.client(fetch())

    cluster.engine.replace_quotas(quotas(FETCH=100 * LIMIT))

    assert [stage.wakes for stage in stages] == [0, 0, 1, 1]
    assert all(stage.wake_up() for stage in stages[2:])


def test_a_wait_ends_when_enforcement_does() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    learn(cluster, 40_000)
    *others, last = connections(cluster, 3)
    for stage in others:
        stage.client(fetch())
    assert last.client(fetch()) == b""

    cluster.enforce(frozenset())

    assert last.wake_up() == fetch()
    assert not last.pausing.reasons & Reason.IN_LINE
    assert len(room_of(cluster).line) == 0


def test_a_new_connection_waits_15_s_at_most() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=BUCKET)
    learn(cluster, 40_000)
    (stage,) = connections(cluster, 1)
    use(cluster, 3.0)
    assert stage.client(fetch()) == b""

    assert stage.advance(FETCH_WAIT_MS_MAX - 1) == b""
    assert stage.to_client == b""
    stage.advance(1)

    assert is_empty(stage.to_client)
