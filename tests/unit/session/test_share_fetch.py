"""ShareFetch (KIP-932): charged as a Fetch, held by the counter's room, and never emptied or answered here."""

from datetime import timedelta

import pytest

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.session.share_fetch_requests import SHARE_FETCH_WAIT_MS_MAX
from kvota.session.standing import Standing
from kvota.testing.frames import (
    HEADER_TAGS,
    HEARTBEAT,
    answer,
    decoded,
    fetch,
    fetch_answer,
    node_endpoints,
    request,
    split,
    throttle_of,
)
from kvota.testing.share_frames import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    share_answer,
    share_fetch,
)
from kvota.testing.stage import GATEWAY, Cluster, Stage, quotas

LIMIT = 10_000
WINDOW = 10 * LIMIT
AT_FIRST = WINDOW // 500  # so much a connection asks for that has read nothing yet
BROKERS = [(1, "broker-1.inside", 9092), (2, "broker-2.inside", 9092)]
BUCKET = {QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=2_000)}


def asked(frame: bytes, version: int = 2) -> int:
    return int(decoded(frame, SHARE_FETCH, version, is_answer=False).max_bytes)


def use(cluster: Cluster, share: float) -> None:
    """Another client of the same user has used so much of the window."""
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)
    lane.admit(int(WINDOW * share), cluster.now_ms)


def read(stage: Stage, size: int) -> int:
    """The connection reads so much of its topics; returns what that is charged."""
    stage.client(share_fetch(correlation=900))
    stage.broker(share_answer(records=b"f" * size, correlation=900))
    return int(stage.cluster.rows[-1].value)


# ------------------------------------------------------------------ on its way up


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tags", [b"\0", HEADER_TAGS])
def test_it_asks_for_half_of_the_room_there_is(version: int, tags: bytes) -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    used_bytes = read(stage, 40_000)

    up = stage.client(share_fetch(version, tags=tags, acknowledges=True))

    message = decoded(up, SHARE_FETCH, version, is_answer=False)
    assert (message.max_bytes, message.min_bytes) == ((WINDOW - used_bytes) // 2, 1)
    assert message.topics[0].partitions[0].acknowledgement_batches[0].last_offset == 5


def test_it_asks_for_twice_of_what_came_last_and_for_little_at_first() -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))

    assert asked(stage.client(share_fetch())) == AT_FIRST
    stage.broker(share_answer(records=b"f" * 5_000))
    (row,) = stage.cluster.rows
    assert asked(stage.client(share_fetch(correlation=2))) == 2 * row.value
    stage.broker(share_answer(partitions=0, correlation=2))
    assert asked(stage.client(share_fetch(correlation=3))) == AT_FIRST


def test_many_that_wait_for_records_do_not_keep_each_other_back() -> None:
    """Nothing of the quota is used: each of them waits at its broker, who has its records first."""
    cluster = Cluster(quotas(FETCH=LIMIT))

    ups = [Stage(cluster, number=number).client(share_fetch()) for number in range(1, 101)]

    assert all(up and asked(up) == AT_FIRST for up in ups)
    assert not cluster.rows


def test_who_asks_for_a_byte_takes_the_room_of_what_comes() -> None:
    """A broker sends a whole batch all the same."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    read(Stage(cluster, number=1), 20_000)
    read(Stage(cluster, number=2), 20_000)

    ups = [
        Stage(cluster, number=number).client(share_fetch(max_bytes=1)) for number in range(3, 103)
    ]

    assert 1 <= sum(bool(up) for up in ups) <= 10


def test_who_asks_for_less_is_not_changed() -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    frame = share_fetch(max_bytes=AT_FIRST)

    assert stage.client(frame) == frame


@pytest.mark.parametrize("enforced", [True, False])
def test_without_a_limit_or_in_shadow_mode_nothing_is_changed(enforced: bool) -> None:
    shadow = Cluster(quotas(FETCH=1), enforced=frozenset())
    cluster = Cluster() if enforced else shadow
    stage = Stage(cluster)
    both = share_fetch(acknowledges=True) + share_fetch(correlation=2)
    answers = share_answer(records=b"f" * 200_000) + share_answer(correlation=2)

    assert stage.client(both) == both
    assert stage.broker(answers) == answers
    assert not stage.pausing.reasons
    assert [row.memo.api_key for row in cluster.rows] == [SHARE_FETCH] * 2
    assert {row.memo.quota_type for row in cluster.rows} == {QuotaType.FETCH}


def test_acknowledgements_go_up_at_once_where_there_is_no_room_and_nothing_is_acquired() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    use(cluster, 1.5)

    up = stage.client(share_fetch(acknowledges=True))

    message = decoded(up, SHARE_FETCH, 2, is_answer=False)
    assert (message.max_bytes, message.min_bytes) == (0, 0)
    assert message.topics[0].partitions[0].acknowledgement_batches[0].first_offset == 3


def test_one_without_acknowledgements_waits_a_second_and_goes_up_for_nothing() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    use(cluster, 1.5)

    assert stage.client(share_fetch()) == b""
    assert stage.machine.is_in_line
    (wait,) = cluster.rows
    assert (wait.outcome, wait.upstream_ms) == (REJECTED, NO_ANSWER)
    assert stage.advance(SHARE_FETCH_WAIT_MS_MAX - 1) == b""
    up = stage.advance(1)

    assert asked(up) == 0
    assert len(cluster.rows) == 1
    told = stage.broker(share_answer(records=b""))
    assert 0 < throttle_of(told, SHARE_FETCH, 2) <= SHARE_FETCH_WAIT_MS_MAX
    assert stage.mutes == []


def test_it_asks_for_records_as_soon_as_there_is_room_again() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    use(cluster, 2.0)
    begun_ms, number = cluster.now_ms, 1
    stage.client(share_fetch())

    while not asked(
        last := split(stage.to_broker)[-1] if stage.to_broker else share_fetch(max_bytes=0)
    ):
        if int.from_bytes(last[8:12], "big") == number and stage.to_broker:
            stage.broker(share_answer(records=b"", correlation=number))
            number += 1
            stage.client(share_fetch(correlation=number))
        stage.advance(100)

    assert 10_000 <= cluster.now_ms - begun_ms <= 12_000
    assert 9 <= number <= 13


def test_what_asks_for_nothing_goes_up_though_nothing_is_left() -> None:
    """That is how locks are renewed, or acknowledgements sent alone."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    use(cluster, 3)
    frame = share_fetch(max_bytes=0, acknowledges=True)

    assert stage.client(frame) == frame


def test_one_is_under_way_at_a_time_and_what_is_behind_it_waits() -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))

    stage.client(share_fetch() + share_fetch(correlation=2))
    assert len(split(stage.to_broker)) == 1
    assert stage.pausing.reasons & Reason.FETCHING
    stage.broker(share_answer())

    assert len(split(stage.to_broker)) == 2


def test_many_connections_share_the_room() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stages = [Stage(cluster, number=number) for number in range(1, 30)]
    for stage in stages:
        read(stage, 60_000)
        stage.advance(2 * WINDOW * 1_000 // LIMIT)

    ups = [stage.client(share_fetch()) for stage in stages]

    # A sample that has just ended is room, too.
    assert WINDOW // 2 <= asked(ups[0]) <= 1.1 * WINDOW / 2
    assert sum(asked(up) for up in ups if up) <= 1.1 * WINDOW


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_request_cut_anywhere_goes_up_as_one(cut: int) -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    frame = share_fetch(acknowledges=True)

    stage.client(frame[:cut], frame[cut:])

    assert asked(stage.to_broker) == AT_FIRST


@pytest.mark.parametrize("end", range(20, 48))
def test_a_request_that_ends_before_its_limits_closes(end: int) -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    frame = share_fetch()

    with pytest.raises(ProtocolError):
        stage.client((end - 4).to_bytes(4, "big") + frame[4:end])


# ------------------------------------------------------------------ its answer


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tags", [b"\0", HEADER_TAGS])
@pytest.mark.parametrize("size", [20_000, 300_000])
@pytest.mark.parametrize("upstream_ms", [0, 50, 20_000])
def test_an_answer_over_the_quota_is_delivered_and_tells_it(
    version: int, tags: bytes, size: int, upstream_ms: int
) -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    stage.client(share_fetch(version))
    use(cluster, 1.0)
    sent = share_answer(version, records=b"f" * size, tags=tags, throttle_ms=upstream_ms)

    told = stage.broker(sent[:80], sent[80:15_000], sent[15_000:])

    assert len(told) == len(sent)
    differing = {at for at, byte in enumerate(sent) if told[at] != byte}
    at = 8 + len(tags)
    assert differing <= set(range(at, at + 4))
    (row,) = cluster.rows
    assert (row.outcome, row.value) == (THROTTLED, len(sent) - 8 - len(tags) + 4)
    told_ms = int.from_bytes(told[at : at + 4], "big")
    assert told_ms == max(upstream_ms, min(row.throttle_ms, SHARE_FETCH_WAIT_MS_MAX))
    assert stage.mutes == []


def test_what_came_over_the_quota_is_paid_for_before_more_is_asked_for() -> None:
    """By Kafka's formula alone a window's worth of it would be forgotten."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    stage.client(share_fetch())
    stage.broker(share_answer(records=b"f" * 30 * LIMIT))
    begun_ms = cluster.now_ms

    number = 2
    stage.client(share_fetch(correlation=number))
    while True:
        stage.advance(250)
        last = split(stage.to_broker)[-1]
        if int.from_bytes(last[8:12], "big") != number:
            continue
        if asked(last):
            break
        stage.broker(share_answer(records=b"", correlation=number))
        number += 1
        stage.client(share_fetch(correlation=number))

    assert 30_000 <= cluster.now_ms - begun_ms <= 33_000


@pytest.mark.parametrize("bucket", [False, True])
def test_acknowledgements_pass_every_second_however_much_is_owed(bucket: bool) -> None:
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=BUCKET if bucket else {})
    stage = Stage(cluster)
    stage.client(share_fetch())
    stage.broker(share_answer(records=b"f" * 60 * LIMIT))

    for number in range(2, 30):
        up = stage.client(share_fetch(correlation=number, acknowledges=True))
        assert asked(up) == 0
        stage.broker(share_answer(records=b"", correlation=number))
        assert not stage.pausing.reasons
        acknowledge = request(SHARE_ACKNOWLEDGE, 2, correlation=number)
        assert stage.client(acknowledge) == acknowledge
        stage.broker(answer(SHARE_ACKNOWLEDGE, 2, correlation=number, node_endpoints=()))
        stage.advance(1_000)


def test_a_factor_of_zero_lets_acknowledgements_pass() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    cluster.engine.set_factor(QuotaType.FETCH, 0.0)
    stage = Stage(cluster)

    assert asked(stage.client(share_fetch(acknowledges=True))) == 0
    stage.broker(share_answer(records=b""))
    assert stage.client(share_fetch(correlation=2)) == b""
    assert asked(stage.advance(SHARE_FETCH_WAIT_MS_MAX)) == 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("quota", [LIMIT, 10**9])
def test_endpoints_of_an_answer_are_the_gateways(version: int, quota: int) -> None:
    stage = Stage(Cluster(quotas(FETCH=quota)))
    stage.client(share_fetch(version))
    sent = share_answer(version, records=b"f" * 50_000, endpoints=BROKERS)

    told = stage.broker(sent)

    named = decoded(told, SHARE_FETCH, version).node_endpoints
    assert [(n.node_id, n.host, n.port) for n in named] == [
        (1, GATEWAY, 20_001),
        (2, GATEWAY, 20_002),
    ]
    assert b"inside" not in told


@pytest.mark.parametrize("enforced", [True, False])
def test_a_large_answer_goes_on_while_it_arrives_without_its_endpoints(enforced: bool) -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    if not enforced:
        cluster.enforce(frozenset())
    stage = Stage(cluster)
    beat, told_beat = request(HEARTBEAT, 4, correlation=2), answer(HEARTBEAT, 4, correlation=2)
    stage.client(share_fetch() + beat)
    sent = share_answer(records=b"f" * 90_000, partitions=20, endpoints=BROKERS)
    both = sent + told_beat

    for at in range(0, len(both), 10_000):
        stage.broker(both[at : at + 10_000])
        assert len(stage.to_client) >= min(at, len(sent) - 200)

    assert len(stage.to_client) == len(both)
    assert b"inside" not in stage.to_client
    assert stage.to_client.endswith(told_beat)
    assert stage.machine.idle


@pytest.mark.parametrize("cut", [*range(1, 40), 5_000, 150_000])
def test_an_answer_cut_anywhere_is_the_same(cut: int) -> None:
    for size in (10_000, 200_000):
        whole, cut_up = (Stage(Cluster(quotas(FETCH=LIMIT))) for _ in range(2))
        sent = share_answer(records=b"f" * size, endpoints=BROKERS)
        for stage in (whole, cut_up):
            stage.client(share_fetch())
        whole.broker(sent[:-3], sent[-3:])

        cut_up.broker(sent[:cut], sent[cut:-3], sent[-3:])

        assert cut_up.to_client == whole.to_client
        assert cut_up.cluster.rows[0].value == whole.cluster.rows[0].value


@pytest.mark.parametrize("end", [8, 9, 12, 14])
def test_an_answer_too_short_for_its_fields_closes(end: int) -> None:
    stage = Stage()
    stage.client(share_fetch())
    sent = share_answer()

    with pytest.raises(ProtocolError):
        stage.broker((end - 4).to_bytes(4, "big") + sent[4:end])


def test_an_error_at_the_top_passes_as_it_is() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    stage = Stage(cluster)
    stage.client(share_fetch())
    use(cluster, 2)

    told = stage.broker(share_answer(error=122, records=b""))

    assert decoded(told, SHARE_FETCH, 2).error_code == 122


def test_the_answer_to_a_share_acknowledge_names_the_gateway() -> None:
    stage = Stage()
    acknowledge = request(SHARE_ACKNOWLEDGE, 2)
    assert stage.client(acknowledge) == acknowledge

    told = stage.broker(
        answer(SHARE_ACKNOWLEDGE, 2, node_endpoints=node_endpoints(SHARE_ACKNOWLEDGE, 2, BROKERS))
    )

    assert [n.host for n in decoded(told, SHARE_ACKNOWLEDGE, 2).node_endpoints] == [GATEWAY] * 2


# ------------------------------------------------------------------ beside others


def test_a_fetch_of_the_same_counter_waits_for_what_a_share_fetch_has_brought() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    shared, plain = Stage(cluster, number=1), Stage(cluster, number=2)
    plain.client(fetch())
    plain.broker(fetch_answer(records=b"f" * 1_000))
    shared.client(share_fetch())
    shared.broker(share_answer(records=b"f" * 2 * WINDOW))

    assert plain.client(fetch(correlation=2)) == b""
    assert [row.outcome for row in cluster.rows] == [ADMITTED, THROTTLED, REJECTED]


def test_while_a_share_fetch_is_under_way_a_connection_is_at_work() -> None:
    """Its records may be locked, and its acknowledgements applied: a drain waits, unless its client has gone."""
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    stage.client(share_fetch())

    assert not stage.machine.only_awaits_records
    assert stage.machine.only_awaits_any_records
    assert stage.machine.standing is Standing.AT_WORK


def test_what_its_room_was_is_free_when_it_has_gone() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    for stage in (first, second):
        read(stage, 60_000)
        stage.advance(2 * WINDOW * 1_000 // LIMIT)
    up = first.client(share_fetch())
    first.end()

    assert asked(up) >= WINDOW // 2
    assert asked(second.client(share_fetch())) == asked(up)


def test_who_has_waited_for_longer_has_the_room_first() -> None:
    """Else members that come again and again would leave nothing to a consumer that waits for a large answer."""
    cluster = Cluster(quotas(FETCH=LIMIT))
    shared, plain = Stage(cluster, number=1), Stage(cluster, number=2)
    for correlation in (1, 2):
        plain.client(fetch(correlation=correlation))
        plain.broker(fetch_answer(records=b"f" * (WINDOW // 4), correlation=correlation))
    use(cluster, 0.3)
    assert plain.client(fetch(correlation=3)) == b""

    # There is room for it, and not for whom it stands behind.
    assert asked(shared.client(share_fetch(acknowledges=True))) == 0
    shared.broker(share_answer(partitions=0))
    for _ in range(120):
        plain.advance(100)

    assert split(plain.to_broker)[-1][8:12] == (3).to_bytes(4, "big")
    assert asked(shared.client(share_fetch(correlation=2))) > 0


def test_its_place_is_kept_while_it_goes_up_for_nothing() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    use(cluster, 1.5)
    for stage in (first, second):
        assert asked(stage.client(share_fetch(acknowledges=True, client="app"))) == 0
        stage.broker(share_answer(partitions=0))
    assert second.client(share_fetch(correlation=2)) == b""
    assert first.client(share_fetch(correlation=2)) == b""
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)

    # Of those that look alike who comes back first has the first place; a newcomer stands behind both.
    third = Stage(cluster, number=3)
    third.client(share_fetch())

    places = [stage.machine.caller.fetch_room._turn for stage in (second, first, third)]
    assert [lane.answer_room().line.is_first(place) for place in places if place] == [
        True,
        False,
        False,
    ]
    assert [place.ticket for place in places if place] == [0, 1, 2]


# ------------------------------------------------------------------ answers without records


@pytest.mark.parametrize("max_bytes", [50_000_000, 0, -1])
@pytest.mark.parametrize("bucket", [False, True])
def test_answers_without_records_come_no_faster_than_the_limit(
    max_bytes: int, bucket: bool
) -> None:
    """An answer names each partition that its request names, with an error: its client says how large it is."""
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=BUCKET if bucket else {})
    stage = Stage(cluster)
    use(cluster, 1.5)
    begun_ms, came, largest = cluster.now_ms, 0.0, 0.0

    for correlation in range(1, 30):
        frame = share_fetch(correlation=correlation, acknowledges=True, max_bytes=max_bytes)
        up = stage.client(frame)
        while not up:
            up = stage.advance(100)
        assert asked(up) <= 0
        stage.broker(share_answer(records=b"", partitions=40, correlation=correlation))
        row = cluster.rows[-1]
        assert row.outcome == THROTTLED
        came, largest = came + row.value, max(largest, row.value)

    heads = 64 * 29
    assert came <= LIMIT * ((cluster.now_ms - begun_ms) / 1000 + 1) + largest + heads
    assert cluster.now_ms - begun_ms < 2 * 1000 * came / LIMIT


def test_who_waits_until_these_are_paid_for_keeps_nobody_back_who_waits_for_room() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=BUCKET)
    greedy, plain = Stage(cluster, number=1), Stage(cluster, number=2)
    use(cluster, 0.2)
    for correlation in (1, 2):
        greedy.client(share_fetch(correlation=correlation, acknowledges=True))
        greedy.broker(share_answer(records=b"", partitions=100, correlation=correlation))
    assert greedy.client(share_fetch(correlation=3, acknowledges=True)) == b""
    lane = cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", cluster.now_ms)

    assert not plain.machine.caller.fetch_room.must_stand_behind(lane)
    assert lane.answer_room().may_be_told_in_ms(lane, cluster.now_ms) > 0


# ------------------------------------------------------------------ what may come at once


def test_those_who_wait_for_large_batches_side_by_side_bring_what_may_be_used_ahead() -> None:
    batch_bytes = WINDOW // 5
    cluster = Cluster(quotas(FETCH=LIMIT))
    for number in range(1, 9):
        stage = Stage(cluster, number=number)
        read(stage, batch_bytes)
        stage.advance(2 * WINDOW * 1_000 // LIMIT)
    stages = [Stage(cluster, number=number) for number in range(11, 41)]

    waiting = [stage for stage in stages if stage.client(share_fetch())]

    assert 2 <= len(waiting) <= 5
    for stage in stages:
        # Reservations lapse while a broker waits for records; what may come does not.
        stage.advance(400 if stage is stages[0] else 0)
        assert asked(stage.to_broker or share_fetch(max_bytes=0)) == (
            AT_FIRST if stage in waiting else 0
        )
    waiting[0].broker(share_answer(partitions=0))
    for stage in stages:
        stage.wake_up()
    assert sum(bool(stage.to_broker) for stage in stages) == len(waiting) + 1


def test_nobody_waits_long_at_its_broker_so_that_all_have_their_turns() -> None:
    stage = Stage(Cluster(quotas(FETCH=LIMIT)))
    free = Stage(Cluster())

    for each, waits_ms in ((stage, SHARE_FETCH_WAIT_MS_MAX), (free, 60_000)):
        up = each.client(share_fetch(max_bytes=1, wait_ms=60_000))
        message = decoded(up, SHARE_FETCH, 2, is_answer=False)
        assert (message.max_bytes, message.max_wait) == (1, timedelta(milliseconds=waits_ms))
