"""Mutes: what is held back, for how long, and what passes in between."""

import pytest
from tests.unit.session.test_charged_produce import RequestCounter

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED
from kvota.model.quota_type import QuotaType
from kvota.session.fetch_room import FETCH_WAIT_MS_MAX
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
    split,
    throttle_of,
)
from kvota.testing.stage import Cluster, Stage, quotas

# One request of LARGE under 1,000 bytes/s is some 90 s too much.
LARGE = b"x" * 100_000
BUCKETS = {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}


def stage_with(cap_ms: int = 30_000, **limits: float) -> Stage:
    return Stage(Cluster(quotas(**limits)), cap_ms=cap_ms)


def heartbeat(correlation: int) -> bytes:
    return request(HEARTBEAT, 4, correlation=correlation)


def heartbeat_answer(correlation: int) -> bytes:
    return answer(HEARTBEAT, 4, correlation=correlation)


# ------------------------------------------------------------------ Produce


def test_what_stands_behind_a_throttled_produce_request_waits_until_the_mute_ends() -> None:
    stage = stage_with(PRODUCE=10_000)
    first, behind = produce(records=LARGE), heartbeat(2) + heartbeat(3)

    assert stage.client(first + behind) == first
    assert stage.machine.pauses_reading
    (throttle_ms,) = stage.mutes

    assert stage.advance(throttle_ms - 1) == b""
    assert stage.advance(1) == behind
    assert not stage.machine.pauses_reading


@pytest.mark.parametrize("buckets", [{}, BUCKETS], ids=["sampled_rate", "token_bucket"])
def test_the_rest_of_a_throttled_produce_request_goes_on_at_once(
    buckets: dict[QuotaType, BucketSettings],
) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=10_000), buckets=buckets))
    frame = produce(records=LARGE)

    assert stage.client(frame[:20_000]) == frame[:20_000]
    assert stage.muted is bool(buckets)  # a sampled rate is charged when all is here
    assert not stage.machine.pauses_reading
    assert stage.client(frame[20_000:60_000]) == frame[20_000:60_000]
    assert stage.client(frame[60_000:] + heartbeat(2)) == frame[60_000:]
    assert stage.machine.pauses_reading
    assert stage.advance(stage.mutes[0]) == heartbeat(2)


def test_answers_still_reach_a_muted_client() -> None:
    stage = stage_with(PRODUCE=10_000)
    stage.client(heartbeat(1) + produce(correlation=2, records=LARGE))

    told = stage.broker(heartbeat_answer(1) + produce_answer(correlation=2))

    assert stage.muted
    first, second = split(told)
    assert first == heartbeat_answer(1)
    assert throttle_of(second, PRODUCE, 9) == stage.mutes[0]


def test_a_produce_request_read_behind_a_mute_is_charged_when_the_mute_ends() -> None:
    stage = stage_with(PRODUCE=10_000)
    first, second = produce(records=LARGE), produce(correlation=2)
    stage.client(first + second)
    stage.broker(produce_answer())
    assert len(stage.cluster.rows) == 1

    stage.advance(stage.mutes[0])
    stage.broker(produce_answer(correlation=2))

    early, late = stage.cluster.rows
    assert late.ts_us - early.ts_us == stage.mutes[0] * 1000


def test_half_a_head_behind_a_throttled_request_is_kept() -> None:
    stage = stage_with(PRODUCE=10_000)
    frame = produce(records=LARGE)
    stage.client(frame + heartbeat(2)[:7])

    assert stage.advance(stage.mutes[0]) == b""
    assert stage.client(heartbeat(2)[7:]) == heartbeat(2)


# ------------------------------------------------------------------ Fetch


def test_of_several_fetches_only_one_is_under_way() -> None:
    stage = stage_with(FETCH=10_000)
    frames = [fetch(correlation=number, max_bytes=1_000) for number in (1, 2, 3)]

    assert stage.client(b"".join(frames)) == frames[0]
    assert stage.client(heartbeat(4)) == b""
    stage.broker(fetch_answer(records=b"f" * 10))
    stage.broker(fetch_answer(correlation=2, records=b"f" * 10))
    stage.broker(fetch_answer(correlation=3, records=b"f" * 10))

    assert stage.to_broker == b"".join(frames) + heartbeat(4)
    assert not stage.machine.pausing.reasons


def test_the_longer_of_two_throttles_holds() -> None:
    stage = stage_with(FETCH=10_000, PRODUCE=10_000, cap_ms=10**9)
    stage.client(fetch(correlation=1) + produce(correlation=2, records=LARGE[:101_000]))
    stage.broker(fetch_answer(records=LARGE))
    (first, second) = sorted(stage.mutes)
    assert first < second

    stage.broker(produce_answer(correlation=2))
    stage.client(heartbeat(3))

    assert stage.advance(second - 1) == b""
    assert stage.advance(1) == heartbeat(3)


# ------------------------------------------------------------------ Fetch: waiting for room


def fetched(stage: Stage, *sizes: int) -> None:
    """Fetches that are sent on at once, and answers with so many bytes of records."""
    for size in sizes:
        assert stage.client(fetch(correlation=size % 1000)) != b""
        stage.broker(fetch_answer(correlation=size % 1000, records=b"f" * size))


def take_all_but(stage: Stage, left_bytes: int) -> None:
    """Another client of the same user fills the window."""
    now_ms = stage.cluster.now_ms
    lane = stage.cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", now_ms)
    lane.charge(max(0, lane.allowance(now_ms) - left_bytes), now_ms)


def test_a_fetch_waits_until_the_window_has_room_for_an_answer_like_the_last_two() -> None:
    """As a broker's consumer: refused, recorded as such once, and nothing counted."""
    stage = stage_with(FETCH=10_000)
    fetched(stage, 40_000, 40_000)
    assert stage.mutes == []

    assert stage.client(fetch(correlation=2)) == b""

    answered, _, refused = stage.cluster.rows
    assert (refused.value, refused.outcome) == (answered.value, REJECTED)
    assert refused.upstream_ms == NO_ANSWER
    # 120 KB in 10 s, at 10 KB/s: Kafka's formula makes that 2 s, and then the sample is still there.
    assert refused.throttle_ms == round((3 * answered.value / 10_000 - 10) * 1000)
    assert stage.mutes == []
    assert stage.advance(10_999) == b""
    forwarded = stage.advance(1)
    assert decoded(forwarded, FETCH, 12, is_answer=False).max_bytes >= answered.value
    assert len(stage.cluster.rows) == 3


def test_a_wait_of_less_than_a_sample_is_as_long_as_kafkas_formula_says() -> None:
    stage = stage_with(FETCH=10_000)
    fetched(stage, 40_000, 40_000)
    stage.advance(10_700)

    stage.client(fetch(correlation=2))

    refused = stage.cluster.rows[-1]
    assert 0 < refused.throttle_ms < 2_000
    now_ms = stage.cluster.clock.monotonic_ms()
    assert stage._deadline_ms == now_ms + min(1_000, refused.throttle_ms + 1)


def test_a_fetch_does_not_wait_for_room_for_ever() -> None:
    stage = stage_with(FETCH=10_000)
    fetched(stage, 40_000, 40_000)
    stage.client(fetch(correlation=2))
    before, waited_ms = len(stage.to_client), 0

    while len(stage.to_client) == before:
        take_all_but(stage, 1_000)
        assert stage.advance(50) == b""
        waited_ms += 50

    assert waited_ms == FETCH_WAIT_MS_MAX
    told = stage.to_client[before:]
    assert decoded(told, FETCH, 12).responses == ()
    assert 1 <= throttle_of(told, FETCH, 12) <= 1_001


def test_a_fetch_of_a_session_goes_up_in_the_end_and_asks_for_as_little_as_there_is() -> None:
    """Only the broker can go on with it; what it brings is judged when it is here."""
    stage = stage_with(FETCH=10_000)
    fetched(stage, 40_000, 40_000)
    stage.client(fetch(correlation=2, session=(7, 3)))
    forwarded, waited_ms = b"", 0

    while not forwarded:
        take_all_but(stage, 1_000)
        forwarded = stage.advance(50)
        waited_ms += 50

    assert waited_ms == FETCH_WAIT_MS_MAX
    assert forwarded == fetch(correlation=2, session=(7, 3), max_bytes=1)
    sent = fetch_answer(correlation=2, session_id=7, records=b"f" * 40_000)
    told = decoded(stage.broker(sent), FETCH, 12)
    assert (told.responses, told.session_id) == ((), 7)


def test_a_mute_is_part_of_the_wait_behind_it() -> None:
    stage = stage_with(FETCH=10_000)
    fetched(stage, 70_000, 70_000)
    (throttle_ms,) = stage.mutes
    assert 4_000 < throttle_ms < 4_100
    stage.client(fetch(correlation=3))
    before, waited_ms = len(stage.to_client), 0

    while len(stage.to_client) == before:
        assert stage.advance(50) == b""
        take_all_but(stage, 1_000)
        waited_ms += 50

    assert waited_ms == FETCH_WAIT_MS_MAX


def test_who_has_read_all_there_is_does_not_wait() -> None:
    """A large answer, and then what has come in meanwhile: a broker would answer at once."""
    stage = stage_with(FETCH=10_000)
    fetched(stage, 1_000, 60_000)

    forwarded = stage.client(fetch(correlation=2))

    assert 30_000 < decoded(forwarded, FETCH, 12, is_answer=False).max_bytes < 40_000
    assert [row.outcome for row in stage.cluster.rows] == [ADMITTED] * 2
    stage.broker(fetch_answer(correlation=2, records=b"f" * 1_000))
    assert stage.client(fetch(correlation=3)) != b""


def test_a_fetch_whose_last_answers_were_small_asks_for_the_room_there_is() -> None:
    stage = stage_with(FETCH=10_000)
    fetched(stage, 4_000, 4_000)
    take_all_but(stage, 12_000)

    forwarded = stage.client(fetch(correlation=2))

    assert decoded(forwarded, FETCH, 12, is_answer=False).max_bytes == 12_000


def test_an_answer_larger_than_the_window_is_paid_in_full_and_the_next_fetch_does_not_wait() -> (
    None
):
    """No broker delivers it; by Kafka's formula a window's worth of it would cost nothing."""
    stage = stage_with(FETCH=10_000, cap_ms=10**9)
    fetched(stage, 200_000)
    (row,) = stage.cluster.rows
    assert stage.mutes == [row.throttle_ms + 10_000]
    assert stage.mutes[0] == round(row.value / 10)

    stage.client(fetch(correlation=2))

    assert stage.advance(stage.mutes[0] - 1) == b""
    assert stage.advance(1) != b""
    assert len(stage.cluster.rows) == 1


def test_a_wait_for_room_ends_when_the_clock_steps_back() -> None:
    stage = stage_with(FETCH=10_000)
    fetched(stage, 40_000, 40_000)
    assert stage.client(fetch(correlation=2)) == b""
    before = len(stage.to_client)
    stage.cluster.clock.step_wall(-3_600_000)

    stage.resume(Reason.IN_LINE)

    assert decoded(stage.to_client[before:], FETCH, 12).responses == ()


def test_in_shadow_mode_no_fetch_waits() -> None:
    stage = Stage(Cluster(quotas(FETCH=10_000), enforced=frozenset()))
    fetched(stage, 40_000, 40_000)

    assert stage.client(fetch(correlation=2)) == fetch(correlation=2)
    assert len(stage.cluster.rows) == 2


# ------------------------------------------------------------------ the cap


def test_after_the_cap_one_request_passes_and_the_rest_of_the_deadline_goes_on() -> None:
    stage = stage_with(PRODUCE=1_000, cap_ms=30_000)
    stage.client(produce(records=LARGE) + heartbeat(2) + heartbeat(3) + heartbeat(4))
    (throttle_ms,) = stage.mutes
    assert 90_000 < throttle_ms < 120_000

    assert stage.advance(29_999) == b""
    assert stage.advance(1) == heartbeat(2)
    assert stage.machine.pauses_reading
    assert stage.advance(30_000) == heartbeat(3)
    assert stage.advance(30_000) == heartbeat(4)
    assert stage.client(heartbeat(5)) == b""
    assert stage.advance(throttle_ms - 90_000 - 1) == b""
    assert stage.advance(1) == heartbeat(5)
    assert not stage.machine.pauses_reading


def test_a_fetch_in_the_middle_of_a_long_mute_is_answered_empty() -> None:
    stage = stage_with(FETCH=1_000, cap_ms=30_000)
    stage.client(fetch(correlation=1))
    stage.broker(fetch_answer(records=LARGE))
    (throttle_ms,) = stage.mutes
    stage.client(fetch(correlation=2) + heartbeat(3))
    before = len(stage.to_client)

    assert stage.advance(30_000) == b""

    own = stage.to_client[before:]
    told = decoded(own, FETCH, 12)
    assert own[4:8] == (2).to_bytes(4, "big")
    assert (told.responses, told.error_code, told.session_id) == ((), 0, 0)
    assert throttle_of(own, FETCH, 12) == throttle_ms - 30_000
    assert len(stage.cluster.rows) == 1
    assert stage.advance(30_000) == heartbeat(3)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_has_an_empty_answer(version: int) -> None:
    stage = stage_with(FETCH=1_000, cap_ms=30_000)
    stage.client(fetch(version))
    stage.broker(fetch_answer(version, records=LARGE))
    before = len(stage.to_client)
    stage.client(fetch(version, correlation=2))

    stage.advance(30_000)

    told = decoded(stage.to_client[before:], FETCH, version)
    assert told.responses == ()


def test_the_empty_answer_waits_for_its_turn() -> None:
    stage = stage_with(FETCH=1_000, cap_ms=30_000)
    stage.client(heartbeat(1) + fetch(correlation=2) + heartbeat(3))
    stage.broker(heartbeat_answer(1) + fetch_answer(correlation=2, records=LARGE))
    before = len(stage.to_client)
    stage.client(fetch(correlation=4))

    stage.advance(30_000)
    assert len(stage.to_client) == before
    stage.broker(heartbeat_answer(3))

    first, own = split(stage.to_client[before:])
    assert first == heartbeat_answer(3)
    assert decoded(own, FETCH, 12).responses == ()


@pytest.mark.parametrize("further", [False, True])
def test_a_produce_request_in_the_middle_of_a_long_mute_waits_for_all_of_it(further: bool) -> None:
    counter = RequestCounter()
    cluster = Cluster(quotas(PRODUCE=1_000), produce_quotas=(counter,) * further)
    counter.sink_of = cluster
    stage = Stage(cluster, cap_ms=30_000)
    second = produce(correlation=2, records=LARGE)
    stage.client(produce(records=LARGE))
    stage.client(second + heartbeat(3))
    throttle_ms = stage.mutes[0]

    assert stage.advance(throttle_ms - 1) == b""
    assert stage.advance(1) == second
    assert len(stage.mutes) > 1


def test_half_a_large_produce_keeps_no_budget_while_it_waits_behind_the_cap() -> None:
    stage = stage_with(PRODUCE=1_000, cap_ms=30_000)
    second = produce(correlation=2, records=LARGE)
    stage.client(produce(records=LARGE))
    stage.client(second[:20_000])

    assert stage.advance(45_000) == b""

    assert stage.cluster.shared.budgets.used_bytes == 0
    stage.advance(stage.mutes[0])
    stage.client(second[20_000:])
    assert stage.to_broker.endswith(second)


def test_whoever_waits_the_deadline_out_after_the_cap_is_free() -> None:
    stage = stage_with(FETCH=1_000, cap_ms=30_000)
    stage.client(fetch(correlation=1))
    stage.broker(fetch_answer(records=LARGE))

    stage.advance(stage.mutes[0] + 1)
    forwarded = stage.client(fetch(correlation=2)) + stage.client(heartbeat(3))

    assert [len(frame) for frame in split(forwarded)] == [len(fetch()), len(heartbeat(3))]
    assert not stage.muted


def test_a_head_that_comes_in_pieces_after_the_cap_passes_once() -> None:
    stage = stage_with(PRODUCE=1_000, cap_ms=30_000)
    stage.client(produce(records=LARGE) + heartbeat(2)[:10])

    assert stage.advance(30_000) == b""
    assert not stage.machine.pauses_reading
    assert stage.client(heartbeat(2)[10:] + heartbeat(3)) == heartbeat(2)
    assert stage.machine.pauses_reading
