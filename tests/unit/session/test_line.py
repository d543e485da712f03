"""Under ``token_bucket``: a Produce beyond the debt that may be owed waits for its turn."""

import pytest
from tests.unit.session.test_charged_produce import RequestCounter

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.session.line_place import WAIT_MS_MAX
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    FETCH,
    HEARTBEAT,
    PRODUCE,
    answer,
    decoded,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
    resized,
    throttle_of,
)
from kvota.testing.stage import ALL_TYPES, Cluster, Stage, quotas

LIMIT = 10_000
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=15_000)
BOTH = {QuotaType.PRODUCE: BUCKET, QuotaType.FETCH: BUCKET}
HALF = b"x" * 150_000  # some 15 s of the quota


def cluster_of(limit: float = LIMIT, **settings: object) -> Cluster:
    return Cluster(quotas(PRODUCE=limit, FETCH=limit), buckets=BOTH, **settings)  # type: ignore[arg-type]


def connections(cluster: Cluster, count: int, cap_ms: int = 30_000) -> list[Stage]:
    return [Stage(cluster, number=number + 1, cap_ms=cap_ms) for number in range(count)]


def in_line(stage: Stage) -> bool:
    return bool(stage.pausing.reasons & Reason.IN_LINE)


def owe(cluster: Cluster, seconds: float) -> None:
    """Another connection of the same user has brought the counter so far."""
    now_ms = cluster.now_ms
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", now_ms)
    assert lane is not None
    lane.admit((seconds + 1) * LIMIT, now_ms)


def pass_time(ms: int, *stages: Stage) -> None:
    """All connections live through the same time, 10 ms at a time; who is woken goes on."""
    for _ in range(ms // 10):
        stages[0].cluster.clock.advance(10)
        for stage in stages:
            stage.advance(0)
        for stage in stages:
            while stage.wakes:
                stage.wakes -= 1
                stage.wake_up()


def test_a_produce_within_the_debt_is_charged_and_paid_for_by_a_mute() -> None:
    (stage,) = connections(cluster_of(), 1, cap_ms=10**9)

    assert stage.client(produce(records=HALF)) != b""
    answered = stage.broker(produce_answer())

    (row,) = stage.cluster.rows
    assert row.outcome == THROTTLED
    assert row.throttle_ms == pytest.approx(row.value / LIMIT * 1000 - 1000, abs=1)
    assert stage.mutes == [row.throttle_ms]
    assert throttle_of(answered, PRODUCE, 9) == row.throttle_ms
    assert (row.memo.samples, row.memo.sample_ms) == (1, 1_000)


def test_a_produce_beyond_the_debt_waits_uncharged_and_is_charged_at_its_turn() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 20)
    frame = produce()

    assert stage.client(frame) == b""

    assert in_line(stage)
    assert stage.machine.pauses_reading
    (wait,) = cluster.rows
    assert (wait.outcome, wait.value, wait.throttle_ms) == (REJECTED, len(frame) - 4, 20_000)
    assert wait.upstream_ms == NO_ANSWER
    assert stage.advance(4_999) == b""
    assert stage.advance(1) == frame
    assert not in_line(stage)
    stage.broker(produce_answer())
    charged = cluster.rows[1]
    assert (charged.outcome, charged.value) == (THROTTLED, len(frame) - 4)
    assert 15_000 < charged.throttle_ms < 15_100


def test_turns_come_in_the_order_of_arrival_however_the_connections_come() -> None:
    cluster = cluster_of()
    first, second, third = stages = connections(cluster, 3)
    owe(cluster, 16)
    for stage in (second, third, first):
        stage.client(produce(records=b"x" * 5_000))

    order = []
    for _ in range(300):
        before = [stage.to_broker for stage in stages]
        pass_time(10, *stages)
        order += [
            stage.machine.caller.number
            for stage, sent in zip(stages, before, strict=True)
            if stage.to_broker != sent
        ]

    assert order == [2, 3, 1]


def test_a_newcomer_stands_behind_those_who_wait_although_little_is_owed() -> None:
    cluster = cluster_of()
    waits, comes = connections(cluster, 2)
    owe(cluster, 15.02)
    waits.client(produce())
    cluster.clock.advance(500)

    assert comes.client(produce()) == b""
    assert in_line(comes)


def test_when_nobody_waits_any_more_nobody_needs_a_turn() -> None:
    cluster = cluster_of()
    waits, comes = connections(cluster, 2)
    owe(cluster, 15.02)
    waits.client(produce())
    pass_time(100, waits, comes)
    assert waits.to_broker != b""
    cluster.clock.advance(5_000)

    assert comes.client(produce()) != b""


def test_after_25_s_the_connection_is_closed_uncharged_and_the_next_one_moves_up() -> None:
    cluster = cluster_of()
    first, second = connections(cluster, 2)
    owe(cluster, 1_000)
    first.client(produce())
    cluster.clock.advance(1_000)
    second.client(produce())

    pass_time(WAIT_MS_MAX - 1_000, first, second)

    assert "25 s" in first.closed
    assert (first.to_broker, second.closed) == (b"", "")
    assert [row.outcome for row in cluster.rows] == [REJECTED, REJECTED]
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.line is not None
    assert len(lane.line) == 1


def come_and_wait(cluster: Cluster, number: int, client: str = "app", acks: int = -1) -> Stage:
    stage = Stage(cluster, number=number)
    stage.client(produce(client=client, acks=acks))
    assert in_line(stage)
    return stage


def test_who_was_closed_after_25_s_has_its_place_when_it_comes_again() -> None:
    cluster = Cluster(quotas(QuotaEntity(user="ANONYMOUS"), PRODUCE=LIMIT), buckets=BOTH)
    owe(cluster, 41)
    first = come_and_wait(cluster, 1)
    cluster.clock.advance(1_000)
    second = come_and_wait(cluster, 2, "other")
    pass_time(WAIT_MS_MAX - 1_000, first, second)
    assert (first.closed, second.closed) != ("", "")

    third = come_and_wait(cluster, 3, "another")
    back = come_and_wait(cluster, 4)
    pass_time(1_500, third, back)

    assert back.to_broker == produce()
    assert third.to_broker == b""


def test_a_client_that_closes_its_connection_itself_keeps_no_place() -> None:
    cluster = cluster_of()
    owe(cluster, 40)
    first = come_and_wait(cluster, 1)
    second = come_and_wait(cluster, 2)

    first.end()
    come_and_wait(cluster, 3)

    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.line is not None
    assert lane.line.is_first(second.machine._requests.place._turn)
    assert lane.line.kept == 0


def test_a_connection_that_was_not_away_takes_no_place_of_another() -> None:
    cluster = cluster_of()
    owe(cluster, 15.02)
    stays, first = connections(cluster, 2)
    stays.client(produce(acks=0))
    pass_time(100, stays)
    assert stays.to_broker != b""
    stays.advance(20_000)
    owe(cluster, 1_000)
    first.client(produce())
    second = come_and_wait(cluster, 3, acks=0)
    pass_time(WAIT_MS_MAX, stays, first, second)
    assert first.closed != ""

    stays.client(produce(acks=0))

    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.line is not None
    assert lane.line.is_first(second.machine._requests.place._turn)
    assert lane.line.kept == 1


def test_a_client_that_was_silent_for_a_minute_has_its_full_25_s() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    stage.client(request(HEARTBEAT, 4, correlation=1))
    stage.broker(answer(HEARTBEAT, 4, correlation=1))
    cluster.clock.advance(60_000)
    owe(cluster, 1_000)
    stage.client(produce())

    stage.advance(WAIT_MS_MAX - 1)
    assert stage.closed == ""
    stage.advance(1)
    assert stage.closed != ""


def test_bytes_that_lay_in_the_socket_during_a_mute_are_as_old_as_the_last_answer() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    stage.client(produce(records=HALF))
    stage.broker(produce_answer())
    (mute_ms,) = stage.mutes
    stage.advance(mute_ms)
    assert not stage.muted
    owe(cluster, 1_000)
    stage.client(produce(correlation=2))

    stage.advance(WAIT_MS_MAX - mute_ms - 1)
    assert stage.closed == ""
    stage.advance(1)
    assert stage.closed != ""


def test_what_stood_behind_a_throttled_request_is_as_old_as_that_ones_answer() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    stage.client(produce(records=HALF) + produce(correlation=2))
    stage.broker(produce_answer())
    (mute_ms,) = stage.mutes
    owe(cluster, 1_000)
    stage.advance(mute_ms)
    assert in_line(stage)

    stage.advance(WAIT_MS_MAX - mute_ms - 1)
    assert stage.closed == ""
    stage.advance(1)
    assert stage.closed != ""


def test_a_wait_that_goes_on_in_another_line_ends_when_it_would_have_ended() -> None:
    by_user = quotas(PRODUCE=LIMIT)
    by_client = quotas(QuotaEntity(client_id="app"), PRODUCE=LIMIT)
    cluster = Cluster(by_user, buckets=BOTH)
    (stage,) = connections(cluster, 1)
    owe(cluster, 1_000)
    stage.client(produce())
    for table in (by_client, by_user):
        stage.advance(8_000)
        cluster.engine.replace_quotas(table)
        owe(cluster, 1_000)
        stage.wake_up()

    assert [row.outcome for row in cluster.rows] == [REJECTED] * 3
    stage.advance(WAIT_MS_MAX - 16_000 - 1)
    assert stage.closed == ""
    stage.advance(1)
    assert stage.closed != ""


def test_a_counter_in_whose_line_somebody_waits_is_not_forgotten() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    cluster.engine.set_factor(QuotaType.PRODUCE, 0.0)
    stage.client(produce())

    forgotten = cluster.engine.purge_expired(cluster.now_ms + 3_700_000)

    assert (forgotten, stage.wakes) == (0, 0)
    stage.end()
    assert cluster.engine.purge_expired(cluster.now_ms + 3_700_000) == 1


def test_without_acks_it_waits_for_its_turn_however_long() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 1_000)
    frame = produce(acks=0)
    stage.client(frame)

    stage.advance(984_000)
    assert (stage.closed, stage.to_broker) == ("", b"")
    stage.advance(1_000)

    assert stage.to_broker == frame
    assert [row.outcome for row in cluster.rows] == [REJECTED, THROTTLED]


def test_a_client_that_goes_gives_its_turn_up() -> None:
    cluster = cluster_of()
    first, second = connections(cluster, 2)
    owe(cluster, 16)
    first.client(produce())
    second.client(produce())

    first.end()
    pass_time(1_100, second)

    assert second.to_broker == produce()
    assert first.to_broker == b""


def test_in_shadow_mode_it_goes_on_with_the_same_row_and_spends_nothing() -> None:
    cluster = cluster_of(enforced=frozenset())
    (stage,) = connections(cluster, 1)
    owe(cluster, 20)

    assert stage.client(produce()) == produce()
    assert stage.client(produce(correlation=2)) == produce(correlation=2)
    assert stage.broker(produce_answer()) == produce_answer()

    (row,) = cluster.rows
    assert (row.outcome, row.throttle_ms, row.upstream_ms) == (REJECTED, 20_000, 0)
    assert stage.mutes == []
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.peek(cluster.now_ms) == 20_000


def test_in_shadow_mode_a_produce_with_further_quotas_spends_nothing_beyond_the_debt() -> None:
    quota = RequestCounter()
    cluster = cluster_of(enforced=frozenset(), produce_quotas=(quota,))
    quota.sink_of = cluster
    (stage,) = connections(cluster, 1)
    owe(cluster, 20)

    assert stage.client(produce()) == produce()
    stage.broker(produce_answer())

    rows = [row for row in cluster.rows if row.memo.quota_type is QuotaType.PRODUCE]
    assert [(row.outcome, row.throttle_ms) for row in rows] == [(REJECTED, 20_000)]
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.peek(cluster.now_ms) == 20_000


def test_in_shadow_mode_and_without_acks_the_row_is_written_at_once() -> None:
    cluster = cluster_of(enforced=frozenset())
    (stage,) = connections(cluster, 1)
    owe(cluster, 20)

    assert stage.client(produce(acks=0)) == produce(acks=0)

    assert [row.outcome for row in cluster.rows] == [REJECTED]


def test_switching_enforcement_off_lets_those_who_wait_go_on() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 100)
    stage.client(produce())

    cluster.enforce(frozenset())
    stage.wake_up()

    assert stage.to_broker == produce()
    assert [row.memo.enforced for row in cluster.rows] == [True]
    stage.broker(produce_answer())
    assert [row.memo.enforced for row in cluster.rows] == [True, False]


def test_a_lowered_limit_keeps_the_debt_in_seconds_and_the_place_in_line() -> None:
    cluster = cluster_of()
    first, second = connections(cluster, 2)
    owe(cluster, 20)
    first.client(produce())
    second.client(produce())

    cluster.engine.replace_quotas(quotas(PRODUCE=LIMIT / 10))
    pass_time(10, first, second)
    assert (first.to_broker, second.to_broker) == (b"", b"")
    pass_time(5_000, first, second)

    assert first.to_broker == produce()
    assert len(cluster.rows) == 2


@pytest.mark.parametrize("limit", [10 * LIMIT, None])
def test_a_raised_or_removed_limit_lets_those_who_wait_go_on_in_their_order(
    limit: float | None,
) -> None:
    cluster = cluster_of()
    first, second = connections(cluster, 2)
    owe(cluster, 100)
    first.client(produce())
    second.client(produce())

    cluster.engine.replace_quotas(quotas() if limit is None else quotas(PRODUCE=limit))
    assert first.wakes
    first.wake_up()
    assert (first.to_broker, second.to_broker) == (produce(), b"")
    second.wake_up()

    assert second.to_broker == produce()


def test_another_algorithm_lets_those_who_wait_go_on() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 100)
    stage.client(produce())

    cluster.engine.replace_countings({}, {})
    assert stage.wakes
    stage.wake_up()

    assert stage.to_broker == produce()
    stage.broker(produce_answer())
    assert cluster.rows[1].outcome == ADMITTED
    assert cluster.rows[1].memo.samples == 11


@pytest.mark.parametrize(
    "buckets",
    [{}, dict.fromkeys(BOTH, BucketSettings(burst_ms=1_000, debt_max_ms=3_600_000))],
    ids=["another algorithm", "more may be owed"],
)
def test_all_who_wait_are_woken_when_counters_count_otherwise(
    buckets: dict[QuotaType, BucketSettings],
) -> None:
    cluster = cluster_of()
    first, second, fetches = connections(cluster, 3)
    fetches.client(fetch(correlation=1))
    fetches.broker(fetch_answer(correlation=1, records=b"f" * 1_000))
    for quota_type in BOTH:
        lane = cluster.engine.lane(quota_type, 1, "ANONYMOUS", "app", cluster.now_ms)
        assert lane is not None
        lane.admit(100 * LIMIT, cluster.now_ms)
    assert (first.client(produce()), second.client(produce())) == (b"", b"")
    assert fetches.client(fetch(correlation=2)) == b""
    waiting = (first, second, fetches)
    assert [stage.wakes for stage in waiting] == [0, 0, 0]

    cluster.engine.replace_countings({}, buckets)

    assert [stage.wakes for stage in waiting] == [1, 1, 1]
    # Who is behind looks where it stands, and is woken by the one before it.
    assert (first.wake_up(), second.wake_up()) == (produce(), produce())


def test_a_quota_that_is_removed_lets_those_who_wait_go_on() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 100)
    stage.client(produce())

    cluster.engine.replace_quotas(quotas())
    stage.wake_up()

    assert stage.to_broker == produce()


@pytest.mark.parametrize("change", ["no quota", "sampled rate"])
def test_who_goes_on_without_a_turn_keeps_nobody_waiting_later(change: str) -> None:
    cluster = cluster_of()
    waits, comes = connections(cluster, 2)
    owe(cluster, 20)
    waits.client(produce())
    if change == "no quota":
        cluster.engine.replace_quotas(quotas())
    else:
        cluster.engine.replace_countings({}, {})
    waits.wake_up()
    assert waits.to_broker == produce()
    cluster.engine.replace_countings({}, BOTH)
    cluster.engine.replace_quotas(quotas(PRODUCE=LIMIT, FETCH=LIMIT))
    cluster.clock.advance(100_000)

    assert comes.client(produce()) == produce()


def test_a_request_whose_turn_comes_while_its_client_reads_nothing_lets_others_pass() -> None:
    cluster = cluster_of()
    first, second = connections(cluster, 2)
    owe(cluster, 16)
    first.client(produce())
    second.client(produce())
    first.pausing.reasons |= Reason.CLIENT_FULL

    pass_time(1_100, first, second)
    assert (first.to_broker, second.to_broker) == (b"", produce())
    first.resume(Reason.CLIENT_FULL)
    pass_time(1_100, first, second)

    assert first.to_broker == produce()


@pytest.mark.parametrize("buckets", [BOTH, {}])
def test_a_factor_of_0_makes_wait_and_lets_go_on_when_it_recovers(
    buckets: dict[QuotaType, BucketSettings],
) -> None:
    cluster = cluster_of()
    cluster.engine.replace_countings({}, buckets)
    (stage,) = connections(cluster, 1)
    cluster.engine.set_factor(QuotaType.PRODUCE, 0.0)

    assert stage.client(produce()) == b""
    assert cluster.rows[0].throttle_ms == 30_000
    stage.advance(10_000)
    cluster.engine.set_factor(QuotaType.PRODUCE, 1.0)
    stage.wake_up()

    assert stage.to_broker == produce()


def test_a_clock_that_steps_back_keeps_nobody_waiting_for_longer() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 20)
    stage.client(produce())
    cluster.clock.step_wall(-3_600_000)

    stage.wake_up()
    assert [row.outcome for row in cluster.rows] == [REJECTED, REJECTED]
    assert stage.advance(5_000) == produce()


def test_the_rest_of_a_waiting_frame_takes_no_budget() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    owe(cluster, 16)
    frame = produce(records=b"x" * 50_000)

    stage.client(frame[:20_000])
    assert in_line(stage)
    assert cluster.shared.budgets.used_bytes == 0
    assert not stage.machine.incomplete
    assert stage.advance(1_000) == frame[:20_000]
    assert cluster.shared.budgets.used_bytes == len(frame) - 4
    assert stage.client(frame[20_000:]) == frame[20_000:]
    assert cluster.shared.budgets.used_bytes == 0


def test_a_client_is_told_no_more_than_the_longest_mute() -> None:
    cluster = cluster_of(limits={"mute_ms_max": 12_000})
    (stage,) = connections(cluster, 1)

    stage.client(produce(records=b"x" * 900_000))
    answered = stage.broker(produce_answer())

    assert cluster.rows[0].throttle_ms > 80_000
    assert throttle_of(answered, PRODUCE, 9) == 12_000


def test_what_a_client_is_told_is_capped_as_it_was_charged() -> None:
    cluster = cluster_of(limits={"mute_ms_max": 12_000})
    (stage,) = connections(cluster, 1)
    stage.client(produce(records=b"x" * 900_000))

    cluster.engine.replace_countings({}, {})
    # What follows counts by the other algorithm, and the route leads there.
    other = Stage(cluster, number=2)
    other.client(produce())
    answered = stage.broker(produce_answer())

    assert throttle_of(answered, PRODUCE, 9) == 12_000


def test_in_shadow_mode_an_answer_of_any_size_passes_beyond_what_may_be_owed() -> None:
    cluster = cluster_of(enforced=frozenset())
    (stage,) = connections(cluster, 1)
    owe(cluster, 16)
    stage.client(produce(version=8))
    sent = produce_answer(version=8)
    large = resized(sent[:-4] + bytes(2_000_000) + sent[-4:])

    stage.broker(large[:20_000])  # not refused for its size

    assert stage.closed == ""


# ------------------------------------------------------------------ Fetch


def test_a_fetch_that_waits_for_room_is_answered_empty_after_15_s() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    for correlation in (1, 2):
        stage.client(fetch(correlation=correlation))
        stage.broker(fetch_answer(correlation=correlation, records=b"f" * 1_000))
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    lane.admit(100 * LIMIT, cluster.now_ms)
    stage.to_client = b""

    assert stage.client(fetch(correlation=3)) == b""
    stage.advance(14_000)
    assert (stage.to_client, stage.to_broker[-20:]) == (b"", stage.to_broker[-20:])
    stage.advance(1_000)

    assert 1 <= throttle_of(stage.to_client, 1, 12) <= 30_000
    refused = [row for row in cluster.rows if row.outcome == REJECTED]
    assert len(refused) == 1
    assert refused[0].memo.algorithm is Algorithm.TOKEN_BUCKET


def test_a_fetch_answer_is_delivered_while_no_more_than_debt_max_is_owed() -> None:
    cluster = cluster_of()
    first, second, third = connections(cluster, 3)
    for stage in (first, second, third):
        stage.client(fetch())

    assert decoded(first.broker(fetch_answer(records=HALF)), FETCH, 12).responses
    assert decoded(second.broker(fetch_answer(records=HALF)), FETCH, 12).responses
    told = third.broker(fetch_answer(records=b"f", session_id=5))

    assert [row.outcome for row in cluster.rows] == [THROTTLED, THROTTLED, REJECTED]
    assert (decoded(told, FETCH, 12).responses, decoded(told, FETCH, 12).session_id) == ((), 5)
    owed_ms = cluster.rows[1].throttle_ms
    assert throttle_of(told, FETCH, 12) == owed_ms
    assert third.mutes == [owed_ms]


def test_a_fetch_answer_larger_than_the_burst_is_muted_for_its_debt_and_no_longer() -> None:
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    stage.client(fetch())

    stage.broker(fetch_answer(records=b"f" * 50_000))

    assert stage.mutes == [cluster.rows[0].throttle_ms]


def test_in_shadow_mode_a_fetch_answer_spends_nothing_beyond_debt_max() -> None:
    cluster = cluster_of(enforced=frozenset())
    (stage,) = connections(cluster, 1)
    sent = [fetch_answer(correlation=number, records=HALF) for number in range(4)]
    for number in range(4):
        stage.client(fetch(correlation=number))

    assert stage.broker(b"".join(sent)) == b"".join(sent)

    assert [row.outcome for row in cluster.rows] == [THROTTLED, THROTTLED, REJECTED, REJECTED]
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.peek(cluster.now_ms) == cluster.rows[1].throttle_ms


def test_two_types_are_counted_apart() -> None:
    cluster = Cluster(
        quotas(PRODUCE=LIMIT, FETCH=LIMIT),
        enforced=ALL_TYPES,
        buckets={QuotaType.PRODUCE: BUCKET},
    )
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    stage.broker(fetch_answer(records=b"f" * 50))
    stage.client(produce())
    stage.broker(produce_answer())

    assert [row.memo.samples for row in cluster.rows] == [11, 1]


def test_an_error_at_the_top_of_a_fetch_answer_is_delivered_and_spends_nothing_beyond_debt_max() -> (
    None
):
    cluster = cluster_of()
    (stage,) = connections(cluster, 1)
    stage.client(fetch())
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    lane.admit(20 * LIMIT, cluster.now_ms)

    told = stage.broker(fetch_answer(error_code=71))

    assert decoded(told, FETCH, 12).error_code == 71
    assert cluster.rows[0].outcome == REJECTED
    assert stage.mutes == [19_000] == [lane.peek(cluster.now_ms)]
