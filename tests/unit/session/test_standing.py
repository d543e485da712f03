"""What would be lost with a connection that gives way, and whose it is."""

import pytest
from tests.unit.session.test_logins import PLAIN_ALICE, shake_hands, token, token_answer

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.session.giving_way import Standing
from kvota.session.principal import ANONYMOUS
from kvota.session.topology import UNKNOWN_NODE
from kvota.testing.frames import (
    API_VERSIONS,
    HEARTBEAT,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
)
from kvota.testing.stage import Cluster, Stage, quotas

IDLE, UNREAD, AWAITS_RECORDS, AT_WORK, SENT_ONCE = Standing
LARGE = produce(records=b"r" * 100_000)
NO_ANSWER = produce(acks=0, records=b"n" * 100_000)
HOST = "192.0.2.1"


def standing(stage: Stage) -> Standing:
    return stage.machine.standing


# ------------------------------------------------------------------ what would be lost


def test_nothing_is_lost_with_who_has_all_answers() -> None:
    stage = Stage()
    assert standing(stage) is IDLE

    stage.client(produce())
    assert standing(stage) is AT_WORK

    answered = produce_answer()
    stage.broker(answered[:9])
    assert standing(stage) is AT_WORK
    stage.broker(answered[9:])
    assert standing(stage) is IDLE


def test_half_an_answer_that_goes_on_while_it_arrives_is_at_work() -> None:
    stage = Stage()
    stage.client(fetch())
    answered = fetch_answer(records=b"f" * 1_000_000)

    stage.broker(answered[:500_000])

    assert standing(stage) is AT_WORK
    stage.broker(answered[500_000:])
    assert standing(stage) is IDLE


def test_fetches_without_an_answer_may_be_asked_again() -> None:
    stage = Stage()

    stage.client(fetch(correlation=1) + fetch(correlation=2))
    assert standing(stage) is AWAITS_RECORDS

    stage.client(request(HEARTBEAT, 4, correlation=3))
    assert standing(stage) is AT_WORK


def test_so_many_fetches_that_nobody_looks_through_them_are_at_work() -> None:
    stage = Stage()

    stage.client(b"".join(fetch(correlation=number) for number in range(100)))

    assert standing(stage) is AT_WORK


def test_a_mute_without_a_request_behind_it_is_as_good_as_unread() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    stage.client(LARGE)
    assert standing(stage) is AT_WORK
    stage.broker(produce_answer())

    assert stage.muted
    assert standing(stage) is UNREAD
    stage.client(produce())
    assert standing(stage) is UNREAD


def test_what_has_half_arrived_is_no_answer_that_is_due() -> None:
    """No broker answers a request before its end; what went before it in one piece may be answered."""
    for half in (LARGE[:50_000], NO_ANSWER[:50_000], LARGE[:10]):
        stage = Stage()
        stage.client(half)
        assert standing(stage) is UNREAD

        stage = Stage()
        stage.client(produce(correlation=3))
        stage.client(half)
        assert standing(stage) is AT_WORK
        stage.broker(produce_answer(correlation=3))
        assert standing(stage) is UNREAD


@pytest.mark.parametrize("records", [b"n" * 100, b"n" * 50_000], ids=len)
def test_records_with_acks_0_that_a_mute_keeps_back_are_sent_once(records: bytes) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    stage.client(LARGE)
    stage.broker(produce_answer())
    behind_it = produce(acks=0, records=records)

    stage.client(behind_it[:60])
    assert standing(stage) is SENT_ONCE
    stage.client(behind_it[60:])
    assert standing(stage) is SENT_ONCE

    stage.advance(1_000_000)
    assert stage.to_broker == LARGE + behind_it
    assert standing(stage) is not SENT_ONCE


@pytest.mark.parametrize(
    "behind_it",
    [produce(acks=0)[:17], request(HEARTBEAT, 4), b"\0\0\0\x10" * 9],
    ids=["half", "another", "no request"],
)
def test_what_else_a_mute_keeps_back_is_unread(behind_it: bytes) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    stage.client(LARGE)
    stage.broker(produce_answer())

    stage.client(behind_it)

    assert standing(stage) is UNREAD


def test_records_with_acks_0_in_line_are_sent_once_whatever_else_is_due() -> None:
    cluster = Cluster(
        quotas(PRODUCE=1_000),
        buckets={QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=1_000)},
    )
    stage, waiting = Stage(cluster), Stage(cluster, number=2)
    stage.client(produce(records=b"r" * 5_000))
    waiting.client(request(HEARTBEAT, 4))
    waiting.client(produce(acks=0, records=b"n" * 5_000))

    assert waiting.machine.is_in_line
    assert standing(waiting) is SENT_ONCE


def test_one_whose_end_has_come_is_at_work() -> None:
    stage = Stage()
    stage.client(LARGE[:50_000])

    stage.client(LARGE[50_000:])

    assert standing(stage) is AT_WORK


def test_an_answer_before_half_a_request_of_the_same_chunk_is_due() -> None:
    stage = Stage()

    stage.client(produce() + NO_ANSWER[:50_000])

    assert standing(stage) is AT_WORK


def test_fetches_before_half_a_request_are_asked_again_like_it() -> None:
    stage = Stage()

    stage.client(fetch(correlation=1) + LARGE[:50_000])

    assert standing(stage) is AWAITS_RECORDS


# ------------------------------------------------------------------ whose it is


def test_without_logins_it_is_its_addresses_with_the_first_request() -> None:
    stage = Stage()
    assert stage.machine.holder is None

    stage.client(request(API_VERSIONS, 3))
    assert stage.machine.holder is None

    stage.client(request(HEARTBEAT, 4, correlation=2))
    assert stage.machine.holder == (ANONYMOUS, HOST)


def test_where_others_log_in_it_is_nobodys_before_its_own_login() -> None:
    cluster = Cluster()
    early, alice = Stage(cluster), Stage(cluster)
    early.client(request(HEARTBEAT, 4))
    assert early.machine.holder == (ANONYMOUS, HOST)

    shake_hands(alice, "PLAIN")
    assert alice.machine.holder is None
    alice.client(token(PLAIN_ALICE))
    alice.broker(token_answer())

    assert alice.machine.holder == ("alice", "")
    assert early.machine.holder is None  # a broker that asks for logins answers it nothing


def test_an_answer_shows_that_a_broker_asks_this_one_for_no_login() -> None:
    cluster = Cluster()
    cluster.shared.asks_for_logins = True
    stage = Stage(cluster, node_id=UNKNOWN_NODE)
    assert stage.machine.holder is None
    stage.machine.caller.is_let_in = True

    assert stage.machine.holder == (ANONYMOUS, HOST)


# ------------------------------------------------------------------ in line


def test_who_gives_way_in_line_has_its_turn_when_it_comes_again() -> None:
    cluster = Cluster(
        quotas(PRODUCE=1_000),
        buckets={QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=1_000)},
    )
    greedy, first, second = Stage(cluster), Stage(cluster, number=2), Stage(cluster, number=3)
    for stage in (greedy, first, second):
        stage.client(produce(records=b"r" * 5_000))
    assert first.machine.is_in_line
    assert second.machine.is_in_line
    assert standing(first) is UNREAD

    first.machine.give_way(cluster.clock.now_us())
    first.end()
    again = Stage(cluster, number=4)
    again.client(produce(records=b"r" * 5_000))

    for _ in range(10):
        again.advance(500)
        again.wake_up()
        second.wake_up()
    assert again.to_broker
    assert not second.to_broker
