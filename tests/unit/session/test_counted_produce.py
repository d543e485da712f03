"""A Produce whose producer ids are counted: what goes on, what is refused, and that nothing overtakes a refusal."""

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from tests.unit.counted_calls import with_calls

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.engine.refused_batches import FORGET_AFTER_MS, Batch, RefusedBatches
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED
from kvota.model.errors import ProtocolError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.commands import Do
from kvota.session.pausing import Reason
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.session.route import Kind
from kvota.testing import frames
from kvota.testing.frames import PRODUCE, produce, split, throttle_of
from kvota.testing.producer_frames import (
    Of,
    answer_to,
    batch,
    errors_of,
    of_producer,
    produce_of,
)
from kvota.testing.stage import ALL_TYPES, BROKER, Cluster, Row, Stage, quotas
from kvota.wire.error_code import ErrorCode
from kvota.wire.steps import STEP_PARTS

COUNTED = ALL_TYPES | {QuotaType.PRODUCER_ID}
REFUSED = int(ErrorCode.NOT_ENOUGH_REPLICAS)
VERSIONS = [3, 4, 5, 8, 9, 10, 13]
EVERYBODY = QuotaEntity(user=DEFAULT)


def counted(
    rate: float = 1.0, *, enforced: frozenset[QuotaType] = COUNTED, **limits: float
) -> Cluster:
    """A gateway that lets each user have so many new ids an hour."""
    quota = ProducerIdQuota(ProducerIds())
    quota.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, rate)])
    return Cluster(quotas(**limits), enforced=enforced, producer_ids=quota)


def refused_stage(rate: float = 1.0) -> Stage:
    """One whose only token is spent by producer 1000, and of producer 2000 the first batch (sequence 5) was refused."""
    stage = Stage(counted(rate))
    answered(stage, of_producer(Of(1000)))
    assert stage.client(of_producer(Of(2000, 5))) == b""
    return stage


def answered(stage: Stage, request: bytes, **of_answer: int) -> bytes:
    """Has a request go on as it is, and the broker answer it."""
    assert stage.client(request) == request
    return stage.broker(answer_to(request, **of_answer))


def of_ids(stage: Stage) -> list[Row]:
    return [row for row in stage.cluster.rows if row.memo.quota_type is QuotaType.PRODUCER_ID]


def last_answer(stage: Stage) -> bytes:
    return split(stage.to_client)[-1]


# ------------------------------------------------------------------ one batch


@pytest.mark.parametrize("version", VERSIONS)
def test_new_ids_go_on_while_there_are_tokens_and_are_refused_then(version: int) -> None:
    stage = Stage(counted(2))
    for producer_id in (1000, 1001):
        request = of_producer(Of(producer_id), version=version)
        assert answered(stage, request) == answer_to(request)

    assert stage.client(of_producer(Of(1002), version=version, correlation=7)) == b""

    told = last_answer(stage)
    assert int.from_bytes(told[4:8], "big") == 7
    assert set(errors_of(told, version).values()) == {REFUSED}
    assert throttle_of(told, PRODUCE, version) == 30_000 == stage.mutes[-1]
    assert [(row.value, row.outcome) for row in of_ids(stage)] == [
        (1, ADMITTED),
        (1, ADMITTED),
        (1, REJECTED),
    ]
    assert of_ids(stage)[-1].throttle_ms == 1_800_000
    assert of_ids(stage)[-1].memo.tags == "user=ANONYMOUS"


def test_a_known_producer_goes_on_whatever_is_owed() -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)

    for sequence in range(3):
        answered(other, of_producer(Of(1000, sequence)))

    assert len(of_ids(stage)) == 2  # nothing is recorded of a known one


def test_one_without_an_id_is_not_counted() -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)
    for records in (batch(Of(-1, -1, -1)), batch(Of(-(2**63))), b"", None, b"\0" * 80):
        request = produce_of(("orders", 0, records))
        assert other.client(request) == request
    old = produce(2)
    assert other.client(old) == old


@pytest.mark.parametrize("producer_id", [0, 2**63 - 1])
def test_ids_at_the_ends_are_counted_as_others(producer_id: int) -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)
    assert other.client(of_producer(Of(producer_id))) == b""
    assert set(errors_of(other.to_client).values()) == {REFUSED}


def test_a_user_without_a_quota_costs_nothing() -> None:
    stage = Stage(Cluster(enforced=COUNTED))
    for producer_id in range(50):
        answered(stage, of_producer(Of(producer_id)))
    route = stage.machine.caller.routes[PRODUCE << 16 | 9]
    assert route.kind == Kind.PRODUCE
    assert not stage.cluster.producer_ids.ids.users


def test_a_quota_that_comes_while_a_connection_is_open_counts_its_next_request() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1e9), enforced=COUNTED))
    answered(stage, of_producer(Of(1000)))
    assert stage.cluster.producer_ids.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, 1.0)])
    stage.cluster.engine.outdate(QuotaType.PRODUCE)

    answered(stage, of_producer(Of(1000, 1)))
    assert stage.client(of_producer(Of(1001))) == b""

    stage.cluster.producer_ids.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, None)])
    stage.cluster.engine.outdate(QuotaType.PRODUCE)
    stage.advance(60_000)
    # What was refused still has to come first, then nothing is counted any more.
    assert stage.client(of_producer(Of(1001, 1))) == b""
    answered(stage, of_producer(Of(1001)))
    answered(stage, of_producer(Of(1002)))
    answered(stage, of_producer(Of(1003)))
    assert stage.machine.caller.routes[PRODUCE << 16 | 9].kind == Kind.PRODUCE


def test_who_was_writing_when_a_rate_came_is_known_and_who_begins_is_new() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1e9), enforced=COUNTED))
    shared, hour_ms = stage.cluster.shared, 3_600_000
    for producer_id in range(20):
        answered(stage, of_producer(Of(producer_id)))

    def put_in_force(rate: float | None) -> None:
        change = KeyChange(EVERYBODY, PRODUCER_IDS_KEY, rate)
        shared.change_producer_id_rates([change], stage.cluster.now_ms)

    put_in_force(1.0)
    for producer_id in range(20):
        answered(stage, of_producer(Of(producer_id, 1)))
    assert not of_ids(stage)
    answered(stage, of_producer(Of(100)))
    assert stage.client(of_producer(Of(101))) == b""
    put_in_force(2.0)  # another rate is no first one
    stage.advance(hour_ms)
    other = Stage(stage.cluster, number=2)
    answered(other, of_producer(Of(19, 2)))
    answered(other, of_producer(Of(18, 2)))
    assert other.client(of_producer(Of(17, 2))) == b""  # silent for a window: as new as any


def test_a_default_rate_counts_whoever_it_did_not_hold_for_before() -> None:
    alice, bob = QuotaEntity(user="alice"), QuotaEntity(user="bob")

    def quotas_of(**rates: float) -> ClientQuotas:
        entities = {"alice": alice, "bob": bob, "default": EVERYBODY}
        return ClientQuotas(
            {entities[name]: {PRODUCER_IDS_KEY: rate} for name, rate in rates.items()}
        )

    def learn(quota: ProducerIdQuota, now_ms: int) -> set[str]:
        return {user for user in ("alice", "bob", "carol") if quota._learns(user, now_ms)}

    quota = ProducerIdQuota(ProducerIds(Layering(window_ms=1_000)))
    quota.replace(quotas_of(alice=1.0))
    assert learn(quota, 5_000) == set()
    quota.replace(quotas_of(alice=2.0, default=1.0), 10_000)
    assert learn(quota, 10_000) == {"bob", "carol"}
    quota.replace(quotas_of(alice=2.0, bob=float(2**31), default=1.0), 12_000)
    assert learn(quota, 12_000) == set()
    quota.change([KeyChange(bob, PRODUCER_IDS_KEY, None)], 13_000)
    assert learn(quota, 13_999) == {"bob"}
    assert learn(quota, 14_000) == learn(quota, 11_000) == set()


def test_shadow_mode_counts_and_refuses_nobody() -> None:
    stage = Stage(counted(enforced=ALL_TYPES))
    for producer_id in (1, 2, 3):
        answered(stage, of_producer(Of(producer_id)))
    assert [row.outcome for row in of_ids(stage)] == [ADMITTED, REJECTED, REJECTED]
    assert not any(row.memo.enforced for row in of_ids(stage))
    assert stage.mutes == []
    assert not stage.cluster.producer_ids.refused_batches.count


def test_a_refused_produce_pays_for_its_bytes() -> None:
    stage = Stage(counted(PRODUCE=100.0))
    answered(stage, of_producer(Of(1)))
    request = of_producer(Of(2, records_bytes=10_000))
    stage.client(request)
    row = stage.cluster.rows[-1]
    assert (row.memo.quota_type, row.value) == (QuotaType.PRODUCE, len(request) - 4)
    assert row.upstream_ms == NO_ANSWER
    assert throttle_of(last_answer(stage), PRODUCE, 9) > 30_000


def test_without_acks_nothing_is_answered_and_the_connection_ends() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1)))
    assert stage.client(produce_of(("orders", 0, batch(Of(2))), acks=0)) == b""
    assert "acks=0" in stage.closed
    assert len(split(stage.to_client)) == 1


def test_behind_what_was_refused_without_acks_nothing_is_kept_back() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1)))
    assert stage.client(produce_of(("orders", 0, batch(Of(2))), acks=0)) == b""
    assert not stage.cluster.producer_ids.refused_batches.count
    other = Stage(stage.cluster, number=2)
    other.advance(3_600_000)
    follower = produce_of(("orders", 0, batch(Of(2, 1))), acks=0)
    assert other.client(follower) == follower


def test_a_refused_batch_that_comes_again_without_acks_keeps_nothing_back() -> None:
    stage = refused_stage()
    stage.advance(3_600_000)
    head = produce_of(("orders", 0, batch(Of(2000, 5))), acks=0)
    assert stage.client(head) == head
    for sequence in (6, 7):
        follower = produce_of(("orders", 0, batch(Of(2000, sequence))), acks=0)
        assert stage.client(follower) == follower
    assert not stage.closed


def test_what_came_with_a_request_that_ends_its_connection_does_not_go_on() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1)))
    refused = produce_of(("orders", 0, batch(Of(2))), acks=0)
    assert stage.client(refused + of_producer(Of(1))) == b""
    assert "acks=0" in stage.closed


def test_a_batch_that_its_client_has_given_up_keeps_others_back_for_an_hour_only() -> None:
    stage = Stage(counted())
    batches = stage.cluster.producer_ids.refused_batches
    head, follower = Batch((2, b"orders", 0), 0, 0), Batch((2, b"orders", 0), 0, 10)
    batches.refuse("ANONYMOUS", head, 1, 0)
    for minutes in range(0, 60, 10):
        assert batches.keeps_back("ANONYMOUS", follower, 1, minutes * 60_000)
        batches.sweep(minutes * 60_000, at_most=10)
    batches.sweep(FORGET_AFTER_MS, at_most=10)
    assert not batches.keeps_back("ANONYMOUS", follower, 1, FORGET_AFTER_MS)


def test_a_sweep_looks_at_so_many_refusals_at_most_and_at_the_others_next() -> None:
    batches = RefusedBatches()
    for user in range(100):
        batches.refuse(str(user), Batch((user, b"orders", 0), 0, 0), 1, 0)
    batches.refuse("50", Batch((50, b"orders", 0), 0, 0), 1, FORGET_AFTER_MS)
    for left in (70, 41, 11, 1, 1):
        batches.sweep(FORGET_AFTER_MS, at_most=30)
        assert batches.count == left
    assert list(batches.users) == ["50"]


@pytest.mark.parametrize(
    ("software", "code"),
    [
        (("apache-kafka-java", "2.7.0"), ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (("apache-kafka-java", "4.3.1"), ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (("apache-kafka-java", "2.6.3"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (("apache-kafka-java", "x"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (("librdkafka", "2.16.0"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (("", ""), ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_who_would_give_up_over_error_89_is_answered_otherwise(
    software: tuple[str, str], code: ErrorCode
) -> None:
    quota = ProducerIdQuota()
    quota.refuses_with = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.refusal_code(software) is code


def test_the_clients_software_is_read_from_its_api_versions() -> None:
    stage = Stage(counted())
    stage.client(
        frames.request(
            frames.API_VERSIONS,
            3,
            client_software_name="apache-kafka-java",
            client_software_version="3.9.0",
        )
    )
    assert stage.machine.caller.software == ("apache-kafka-java", "3.9.0")


def test_a_producer_that_was_silent_for_a_window_is_new_again() -> None:
    stage = Stage(counted())
    for sequence in range(3):
        answered(stage, of_producer(Of(1000, sequence)))
    stage.advance(3_600_000)
    answered(stage, of_producer(Of(1001)))
    assert stage.client(of_producer(Of(1000, 3))) == b""


def test_who_writes_all_the_time_stays_known_where_its_layer_was_closed_because_it_was_full() -> (
    None
):
    stage, minute_ms = Stage(counted(20)), 60_000
    answered(stage, of_producer(Of(1000)))
    sequence = 0
    for half_minute in range(1, 50):
        stage.advance(minute_ms // 2)
        if half_minute == 20:  # the first layer has room for 16 ids
            many = Stage(stage.cluster, number=2)
            for producer_id in range(2000, 2019):
                answered(many, of_producer(Of(producer_id)))
            assert len(stage.cluster.producer_ids.ids.users["ANONYMOUS"].layers) == 2
            stage = Stage(stage.cluster, number=3)  # it connects anew
        sequence += 1
        answered(stage, of_producer(Of(1000, sequence)))

    stage.advance(35 * minute_ms + minute_ms // 2)  # below 45 minutes
    before = stage.cluster.producer_ids.ids.admitted
    answered(stage, of_producer(Of(1000, sequence + 1)))
    assert stage.cluster.producer_ids.ids.admitted == before


def test_what_one_user_has_made_known_another_one_on_the_connection_has_not() -> None:
    stage = Stage(counted())
    for sequence in range(3):
        answered(stage, of_producer(Of(1000, sequence)))
    stage.machine.caller.principal.name = "another"
    stage.machine.caller.forget_lanes()
    answered(stage, of_producer(Of(1001)))
    assert stage.client(of_producer(Of(1000, 3))) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_behind_a_known_producer_each_request_is_looked_at(version: int) -> None:
    stage = Stage(counted())
    known = of_producer(Of(1000), version=version)
    for _ in range(3):
        answered(stage, known)
    both = produce_of(
        ("orders", 0, batch(Of(1000, 1)) + batch(Of(2000))), version=version, correlation=2
    )
    assert stage.client(both) == b""


# ------------------------------------------------------------------ nothing overtakes a refusal


def test_what_was_sent_behind_a_refused_batch_is_refused_even_when_tokens_are_back() -> None:
    stage = refused_stage()
    assert stage.client(of_producer(Of(2000, 6)), of_producer(Of(2000, 7))) == b""  # muted
    assert stage.advance(3_600_000) == b""  # a token is back, and they come behind what was refused
    assert [set(errors_of(one).values()) for one in split(stage.to_client)[1:]] == [{REFUSED}] * 3

    answered(stage, of_producer(Of(2000, 5)))
    answered(stage, of_producer(Of(2000, 6)))


def test_on_another_connection_nothing_overtakes_either() -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)
    assert other.client(of_producer(Of(2000, 6)), of_producer(Of(2000, 5))) == b""
    stage.advance(30_000)
    other.advance(3_600_000)
    assert other.client(of_producer(Of(2000, 6))) == b""

    head = of_producer(Of(2000, 5))
    assert other.client(head) == head  # it goes on, and is not answered yet
    assert stage.client(of_producer(Of(2000, 6))) == b""  # left over on the first connection
    # Nor behind it on its own: a broker that refuses the first may take the second.
    assert other.client(of_producer(Of(2000, 6))) == b""
    other.broker(answer_to(head))
    assert not stage.cluster.producer_ids.refused_batches.count
    answered(other, of_producer(Of(2000, 6)))
    answered(stage, of_producer(Of(2000, 7)))


@pytest.mark.parametrize(
    ("error", "is_sent_again"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    ],
)
def test_what_the_broker_has_not_taken_and_is_sent_again_is_not_overtaken(
    error: ErrorCode, *, is_sent_again: bool
) -> None:
    stage = refused_stage()
    stage.advance(3_600_000)
    head, behind = of_producer(Of(2000, 5)), of_producer(Of(2000, 6))
    answered(stage, head, error=error)
    assert (stage.client(behind) == b"") == is_sent_again
    if is_sent_again:
        answered(stage, head)
        answered(stage, behind)


def test_who_begins_anew_on_a_later_connection_with_what_follows_has_the_first_batch_elsewhere() -> (
    None
):
    stage = refused_stage()
    stage.cluster.producer_ids.ids.learn("ANONYMOUS", 1.0, 2000, stage.cluster.now_ms)
    later = Stage(stage.cluster, number=2)
    behind = of_producer(Of(2000, 6))
    later.advance(59_999)
    assert later.client(behind) == b""  # it may be about to come again
    later.advance(1)
    stage.advance(0)
    assert stage.client(behind) == b""  # what was in flight when it was refused
    answered(later, behind)
    answered(stage, of_producer(Of(2000, 7)))


def test_an_epoch_that_is_over_has_been_taken_nowhere_else() -> None:
    stage = refused_stage()
    begun_anew = Stage(stage.cluster, number=2)
    assert begun_anew.client(of_producer(Of(2000, 0, 1))) == b""
    stage.cluster.producer_ids.ids.learn("ANONYMOUS", 1.0, 2000, stage.cluster.now_ms)
    later = Stage(stage.cluster, number=3)
    later.advance(60_000)
    assert later.client(of_producer(Of(2000, 5))) == b""


def test_a_batch_that_went_on_and_was_never_answered_has_to_come_again() -> None:
    stage = refused_stage()
    stage.advance(3_600_000)
    head = of_producer(Of(2000, 5))
    assert stage.client(head) == head
    stage.end()
    other = Stage(stage.cluster, number=2)
    assert other.client(of_producer(Of(2000, 6))) == b""
    answered(other, head)
    answered(other, of_producer(Of(2000, 6)))


def test_a_higher_epoch_begins_anew_and_a_lower_one_is_left_over() -> None:
    stage = refused_stage()
    stage.advance(3_600_000)
    answered(stage, of_producer(Of(2000, 0, epoch=1)))
    stage.cluster.producer_ids.ids.forget("ANONYMOUS")
    stage.advance(3_600_000)
    answered(stage, of_producer(Of(3000)))
    assert stage.client(of_producer(Of(2000, 4, epoch=2))) == b""
    stage.advance(3_600_000)
    assert stage.client(of_producer(Of(2000, 9, epoch=1))) == b""
    answered(stage, of_producer(Of(2000, 4, epoch=2)))


def test_another_partition_of_a_producer_has_a_first_batch_of_its_own() -> None:
    stage = refused_stage()
    stage.advance(3_600_000)
    answered(stage, of_producer(Of(2000, 0), partition=1))  # it is known from now on
    assert stage.client(of_producer(Of(2000, 6))) == b""
    answered(stage, of_producer(Of(2000, 5)))


def test_sequence_numbers_begin_anew_behind_the_last() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1)))
    stage.client(of_producer(Of(2, 2**31 - 1)))
    stage.advance(3_600_000)
    assert stage.client(of_producer(Of(2, 3))) == b""
    answered(stage, of_producer(Of(2, 2**31 - 1)))


def test_where_there_is_no_place_for_a_refusal_nothing_is_answered() -> None:
    stage = refused_stage()
    quota = stage.cluster.producer_ids
    quota.refused_batches = RefusedBatches(of_user_max=1)
    stage.advance(30_000)
    another = Batch((9, b"orders", 0), 0, 0)
    quota.refused_batches.refuse("ANONYMOUS", another, 1, stage.cluster.now_ms)
    before = len(stage.to_client)
    assert stage.client(of_producer(Of(2001))) == b""
    assert "neither answered nor forwarded" in stage.closed
    assert len(stage.to_client) == before
    assert quota.connections_closed == 1


# ------------------------------------------------------------------ in part


@pytest.mark.parametrize("version", VERSIONS)
def test_refused_partitions_are_answered_and_the_others_go_on(version: int) -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000), version=version))
    request = produce_of(
        ("orders", 0, batch(Of(1000, 1))),
        ("orders", 1, batch(Of(2000))),
        ("bills", 4, batch(Of(2000))),
        ("bills", 5, batch(Of(-1))),
        ("others", 6, batch(Of(2000))),
        version=version,
        correlation=9,
    )
    onward = stage.client(request)

    assert onward == produce_of(
        ("orders", 0, batch(Of(1000, 1))),
        ("bills", 5, batch(Of(-1))),
        version=version,
        correlation=9,
    )
    told = stage.broker(answer_to(onward, throttle_ms=5))
    name = frames.topic_id if version >= 13 else str
    assert errors_of(told, version) == {
        (str(name("orders")), 0): 0,
        (str(name("orders")), 1): REFUSED,
        (str(name("bills")), 5): 0,
        (str(name("bills")), 4): REFUSED,
        (str(name("others")), 6): REFUSED,
    }
    assert throttle_of(told, PRODUCE, version) == 30_000
    assert stage.muted
    assert sum(row.outcome == REJECTED for row in of_ids(stage)) == 1  # one for the id


def test_a_request_of_which_all_is_refused_goes_nowhere() -> None:
    stage = refused_stage()
    stage.advance(30_000)
    request = produce_of(("orders", 1, batch(Of(2000))), ("bills", 0, batch(Of(3000))))
    assert stage.client(request) == b""
    assert errors_of(last_answer(stage)) == {("orders", 1): REFUSED, ("bills", 0): REFUSED}


def test_several_batches_in_one_partition_go_on_or_not_together() -> None:
    stage = Stage(counted())
    both = batch(Of(1000)) + batch(Of(2000))
    request = produce_of(("orders", 0, both), ("bills", 0, batch(Of(1000))))
    assert stage.client(request) == produce_of(("bills", 0, batch(Of(1000))))
    # Neither id may go on in that partition with what follows.
    stage.advance(30_000)
    assert stage.client(of_producer(Of(1000, 1))) == b""


def test_a_request_of_ten_thousand_partitions_is_judged_in_steps() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    known = [("orders", index, batch(Of(1000))) for index in range(0, 10_000, 2)]
    new = [("orders", index, batch(Of(2000))) for index in range(1, 10_000, 2)]
    onward = stage.client(produce_of(*sorted(known + new, key=lambda row: row[1])))
    assert onward == produce_of(*known)
    told = errors_of(stage.broker(answer_to(onward)))
    assert sum(code == REFUSED for code in told.values()) == 5_000
    assert len(told) == 10_000
    assert stage.cluster.producer_ids.refused_batches.count == 5_000


def test_a_remembered_refusal_of_one_producer_does_not_make_the_others_dearer() -> None:
    stage = Stage(counted())
    for sequence in range(3):
        answered(stage, of_producer(Of(1000, sequence)))
    machine, now_us = stage.machine, stage.cluster.clock.now_us()
    _, before = with_calls(partial(machine.from_client, of_producer(Of(1000, 3)), now_us))

    other = Stage(stage.cluster, number=2)
    assert other.client(of_producer(Of(2000, 5))) == b""
    _, again = with_calls(partial(machine.from_client, of_producer(Of(1000, 4)), now_us))
    assert again <= before + 4

    third = Stage(stage.cluster, number=3)
    answered(
        third, of_producer(Of(1000, 5))
    )  # what is behind the first batch is not left to the front alone
    assert third.client(of_producer(Of(2000, 6))) == b""


def test_a_known_producer_whose_batch_was_refused_with_another_ones_is_kept_back_on_every_connection() -> (
    None
):
    stage = Stage(counted())
    for sequence in range(3):  # from the second one on its connection remembers that it is known
        answered(stage, of_producer(Of(1000, sequence)))
    other = Stage(stage.cluster, number=2)
    both = produce_of(("orders", 0, batch(Of(1000, 3)) + batch(Of(2000))), correlation=2)
    assert other.client(both) == b""

    assert stage.client(of_producer(Of(1000, 4))) == b""
    assert errors_of(last_answer(stage)) == {("orders", 0): REFUSED}
    answered(Stage(stage.cluster, number=3), of_producer(Of(1000, 3)))
    answered(Stage(stage.cluster, number=4), of_producer(Of(1000, 4)))


def test_a_producer_is_of_no_more_concern_when_none_of_its_partitions_waits() -> None:
    refused = RefusedBatches()
    for partition in (0, 1):
        refused.refuse("alice", Batch((2000, b"orders", partition), 0, 5), 1, 0)
        refused.refuse("alice", Batch((2000, b"orders", partition), 0, 4), 1, 0)  # comes once more
    assert not refused.concern("alice", 1000)
    assert not refused.concern("bob", 2000)
    for partition in (0, 1):
        assert refused.concern("alice", 2000)
        refused.goes_on("alice", Batch((2000, b"orders", partition), 0, 4), 1, 0)
        refused.answered("alice", (2000, b"orders", partition), 1)
    assert not refused.concern("alice", 2000)

    refused.refuse("alice", Batch((2000, b"orders", 0), 0, 5), 1, 0)
    refused.sweep(FORGET_AFTER_MS, at_most=10)
    assert not refused.concern("alice", 2000)


@pytest.mark.parametrize("topics", [1, 10_000])
def test_no_step_of_ten_thousand_partitions_looks_at_many(topics: int) -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    rows = [
        (f"orders{index % topics}", index, batch(Of(1000 + index % 2 * 1000)))
        for index in range(10_000)
    ]
    machine, work = stage.machine, []

    def step(take: Callable[[], bytes | bytearray | None]) -> bytes | bytearray:
        taken, calls = with_calls(take)
        work.append(calls)
        return taken or b""

    now_us = stage.cluster.clock.now_us()
    onward = step(partial(machine.from_client, produce_of(*rows), now_us))
    while not onward:
        machine.commands.clear()
        onward = step(partial(machine.step, now_us))
    told = step(partial(machine.from_upstream, answer_to(bytes(onward)), now_us))
    while (Do.BREATHE, None) in machine.commands:
        machine.commands.clear()
        told = step(partial(machine.read_on, now_us))
    assert len(errors_of(bytes(told))) == 10_000
    assert max(work) < 60 * STEP_PARTS
    assert len(work) > 150


def in_part_stage() -> tuple[Stage, bytes]:
    """One that awaits an answer for 600 partitions, which is looked through in steps; another one was refused."""
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    known = [("orders", index, batch(Of(1000))) for index in range(600)]
    onward = stage.client(produce_of(*known, ("orders", 600, batch(Of(2000))), correlation=2))
    assert onward == produce_of(*known, correlation=2)
    return stage, answer_to(onward)


def assert_recorded_once(stage: Stage) -> None:
    numbers = [row.seq for row in stage.cluster.rows]
    assert len(set(numbers)) == len(numbers)
    last = stage.cluster.rows[-1]
    assert (last.memo.quota_type, last.upstream_ms) == (QuotaType.PRODUCE, NO_ANSWER)


def test_a_client_that_leaves_while_its_answer_is_looked_through_is_recorded_once() -> None:
    steps = 0
    while True:
        stage, answer = in_part_stage()
        machine, clock = stage.machine, stage.cluster.clock
        machine.from_upstream(answer, clock.now_us())
        for _ in range(steps):
            machine.commands.clear()
            machine.read_on(clock.now_us())
        if not machine.caller.due:
            break
        stage.end()
        assert_recorded_once(stage)
        steps += 1
    assert steps > 2


def test_an_answer_that_cannot_be_merged_is_recorded_once() -> None:
    stage, answer = in_part_stage()
    with pytest.raises(ProtocolError):
        stage.broker(answer.replace(b"orders", b"\xff" * 6))
    stage.end()
    assert_recorded_once(stage)


def of_many_batches(partitions: int, *, first_id: int = 0) -> bytes:
    """A request with ten of the smallest batches in each partition, each of an id of its own."""
    return produce_of(
        *(
            (
                "orders",
                partition,
                b"".join(
                    batch(Of(first_id + 10 * partition + n, records_bytes=0)) for n in range(10)
                ),
            )
            for partition in range(partitions)
        )
    )


def test_a_large_request_holds_room_for_all_that_it_takes_until_it_is_decided_on() -> None:
    stage, request = Stage(counted(1e6)), of_many_batches(600)
    machine, budgets = stage.machine, stage.cluster.shared.budgets
    tracemalloc.start()
    try:
        assert not machine.from_client(request, 0)
        held_bytes, steps = budgets.used_bytes, 0
        while (Do.STEP, None) in machine.commands:
            assert budgets.used_bytes == held_bytes
            machine.commands.clear()
            onward, steps = machine.step(0), steps + 1
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert onward == request
    assert steps > 5
    assert budgets.used_bytes == 0
    assert len(request) < peak_bytes < held_bytes


@pytest.mark.parametrize("ending", ["it leaves", "it is no request"])
def test_the_room_is_free_when_the_deciding_breaks_off(ending: str) -> None:
    stage, request = Stage(counted(1e6)), of_many_batches(600)
    if ending == "it leaves":
        stage.machine.from_client(request, 0)
        stage.machine.step(0)
        assert stage.cluster.shared.budgets.used_bytes > len(request)
    else:
        with pytest.raises(ProtocolError):
            stage.client(frames.resized(request + b"x"))
    stage.end()
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_who_finds_no_room_waits_until_it_can_be_decided_on() -> None:
    request = of_many_batches(60)  # in 10 batches of a partition each: more than a step
    shared = counted(1e6)
    room_bytes = len(request) + len(request) // 61 * 600
    first, second = (Stage(shared, number=number) for number in (1, 2))
    budgets = shared.shared.budgets
    budgets.of(BROKER).limit_bytes = room_bytes + 1_000
    budgets.of(BROKER)._kept_bytes = 0
    now_us = shared.clock.now_us()
    assert not first.machine.from_client(request, now_us)
    assert not second.machine.from_client(request, now_us)
    assert room_bytes - 1_000 < budgets.used_bytes <= room_bytes + 1_000
    assert second.pausing.reasons & Reason.BUDGET
    first._perform()
    assert first.to_broker == request
    assert second.wakes == 1
    assert second.wake_up() == request
    assert budgets.used_bytes == 0


def test_a_request_with_few_batches_that_is_here_waits_for_no_room() -> None:
    shared = counted(1e6)
    budget = shared.shared.budgets.of(BROKER)
    budget.add(budget.limit_bytes, ("somebody", ""))
    stage = Stage(shared)
    request = produce_of(
        *(("orders", partition, batch(Of(7, records_bytes=20_000))) for partition in range(4))
    )
    assert stage.client(request) == request
    assert budget.used_bytes == budget.limit_bytes


def test_one_that_is_decided_on_is_in_nobodys_way() -> None:
    request, shared = of_many_batches(60), counted(1e6)
    budget = shared.shared.budgets.of(BROKER)
    budget.limit_bytes, budget._kept_bytes = len(request) + len(request) // 61 * 600 + 1_000, 0
    first, second = (Stage(shared, number=number) for number in (1, 2))
    assert not first.machine.from_client(request[:20_000], 0)
    assert not second.machine.from_client(request[:20_000], 0)
    assert second.pausing.reasons & Reason.BUDGET
    assert first.machine.keeps_others_waiting  # its client has to send now
    assert not first.machine.from_client(request[20_000:], 0)
    assert budget.used_bytes > len(request)
    assert not first.machine.keeps_others_waiting
    first._perform()
    assert first.to_broker == request


def test_the_largest_request_leaves_room_for_those_who_hold_little() -> None:
    shared = counted(1e6)
    budget = shared.shared.budgets.of(BROKER)
    request = (100_000_000).to_bytes(4, "big") + of_many_batches(60)[4:]
    stage = Stage(shared)
    stage.client(request[:20_000])
    assert 100_000_000 < budget.used_bytes <= budget.limit_bytes * 7 // 8


def test_half_a_large_request_that_has_waited_for_room_is_read_on_at_once() -> None:
    shared, request = counted(1e6), of_many_batches(4_000)
    budget = shared.shared.budgets.of(BROKER)
    budget.add(budget.limit_bytes, ("somebody", ""))
    stage, half = Stage(shared), len(request) // 2
    assert half > 1_000_000
    stage.client(request[:half])
    assert stage.pausing.reasons == Reason.BUDGET
    budget.give_back(budget.limit_bytes, ("somebody", ""))
    stage.wake_up()
    assert stage.pausing.reasons == 0
    assert stage.client(request[half:]) == request


def test_a_large_request_takes_its_room_when_it_is_announced() -> None:
    stage, request = Stage(counted(1e6)), of_many_batches(60)
    budgets = stage.cluster.shared.budgets
    stage.client(request[:20_000])
    held_bytes = budgets.used_bytes
    assert held_bytes > len(request) + 500 * 600
    assert not stage.machine.from_client(request[20_000:], stage.cluster.clock.now_us())
    assert budgets.used_bytes == held_bytes
    stage._perform()
    assert stage.to_broker == request
    assert budgets.used_bytes == 0


def test_room_for_batches_is_free_when_their_quota_is_taken_away() -> None:
    stage, request = Stage(counted(1e6)), of_many_batches(60)
    stage.client(request[:20_000])
    stage.cluster.shared.change_producer_id_rates([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, None)])
    stage.client(request[20_000:])
    assert stage.to_broker == request
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_the_rows_of_one_request_are_few_whatever_it_brings() -> None:
    stage = Stage(counted(5))
    request = of_many_batches(1)
    assert stage.client(request) == b""
    rows = sorted(of_ids(stage), key=lambda row: row.seq)
    assert [(row.value, row.outcome) for row in rows] == [(1, ADMITTED)] * 5 + [(1, REJECTED)] * 5
    assert len({row.memo.producer_id for row in rows}) == 10
    assert [row.memo.owed_ms for row in rows] == [-3_600_000, *[None] * 9]
    assert rows[-1].throttle_ms > 0

    many = Stage(stage.cluster, number=2)
    assert many.client(of_many_batches(100, first_id=5_000)) == b""
    later = of_ids(stage)[10:]
    assert sum(row.value for row in later) == 1_000
    assert len(later) < 50
    assert {row.value for row in later if row.memo.producer_id is not None} == {1}


def test_what_is_decided_on_later_is_decided_and_recorded_as_of_then() -> None:
    """Else the time between its steps would bring tokens to others, and again to what follows them."""
    stage = Stage(counted(3_600))  # one a second
    machine, begin_us = stage.machine, 1_700_000_000_000_000
    assert not machine.from_client(of_many_batches(600), begin_us)
    seconds = 0
    while (Do.STEP, None) in machine.commands:
        machine.commands.clear()
        seconds += 1
        machine.step(begin_us + seconds * 1_000_000)

    refused = [row for row in of_ids(stage) if row.outcome == REJECTED]
    assert len({row.ts_us for row in refused}) > 5
    assert [row.ts_us for row in refused] == sorted(row.ts_us for row in refused)
    # 3,600 at once, and one for each second that has passed since.
    first_s, last_s = ((refused[at].ts_us - begin_us) // 1_000_000 for at in (0, -1))
    assert (
        2_400 - seconds - 2 <= sum(row.value for row in refused) <= 2_400 - (last_s - first_s - 2)
    )


# ------------------------------------------------------------------ as it comes in


def test_one_batch_is_decided_on_by_its_beginning_and_never_cut() -> None:
    stage = Stage(counted())
    request = of_producer(Of(1000, records_bytes=100_000))
    assert stage.client(request[:20_000]) == request[:20_000]
    assert stage.client(request[20_000:]) == request[20_000:]
    stage.broker(answer_to(request))

    other = of_producer(Of(2000, records_bytes=100_000), correlation=4)
    told = len(split(stage.to_client))
    assert stage.client(other[:20_000]) == b""
    assert stage.client(other[20_000:-1]) == b""
    assert (
        len(split(stage.to_client)) == told
    )  # librdkafka would drop it: it has not sent all of the request
    assert stage.client(other[-1:]) == b""
    assert len(split(stage.to_client)) == told + 1
    assert set(errors_of(last_answer(stage)).values()) == {REFUSED}
    assert stage.cluster.rows[-1].value == len(other) - 4
    stage.advance(30_000)
    answered(stage, of_producer(Of(1000, 1)))


def test_a_refused_request_that_comes_slowly_is_muted_for_as_long_as_it_is_told() -> None:
    stage = refused_stage()
    stage.advance(30_000)
    request = of_producer(Of(2001, records_bytes=100_000))
    assert stage.client(request[:20_000]) == b""
    stage.advance(25_000)
    stage.client(request[20_000:])
    assert throttle_of(last_answer(stage), PRODUCE, 9) == 30_000
    known = of_producer(Of(1000, 1))
    assert stage.client(known) == b""
    assert stage.advance(29_999) == b""
    assert stage.advance(1) == known


def test_the_bytes_of_a_refused_request_that_comes_slowly_are_told() -> None:
    stage = Stage(counted(PRODUCE=100.0))
    answered(stage, of_producer(Of(1000)))
    request = of_producer(Of(2000, records_bytes=100_000))
    stage.client(request[:20_000])
    stage.client(request[20_000:])
    assert throttle_of(last_answer(stage), PRODUCE, 9) > 30_000


def test_who_has_gone_while_it_was_to_send_again_is_not_waited_for() -> None:
    stage = Stage(counted())
    assert not stage.machine.waits_for_an_answer
    answered(stage, of_producer(Of(1000)))
    stage.client(of_producer(Of(2000)))
    assert stage.machine.waits_for_an_answer
    stage.advance(30_000)
    assert not stage.machine.waits_for_an_answer


def test_several_batches_are_held_until_all_are_here() -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    request = produce_of(
        ("orders", 0, batch(Of(1000, 1, records_bytes=40_000))),
        ("orders", 1, batch(Of(2000, 0, records_bytes=40_000))),
    )
    for at in range(0, len(request), 10_000):
        onward = stage.client(request[at : at + 10_000])
        assert bool(onward) == (at + 10_000 >= len(request))
    assert onward == produce_of(("orders", 0, batch(Of(1000, 1, records_bytes=40_000))))


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_batch_that_is_cut_or_too_long_has_no_id_and_is_the_brokers_business(cut: int) -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    whole = batch(Of(2000))
    for records in (whole[:cut], whole[:8] + (10_000).to_bytes(4, "big") + whole[12:]):
        request = produce_of(("orders", 0, records))
        assert stage.client(request) == request


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_has_no_id(magic: int) -> None:
    stage = Stage(counted())
    answered(stage, of_producer(Of(1000)))
    whole = batch(Of(2000))
    request = produce_of(("orders", 0, whole[:16] + bytes([magic]) + whole[17:]))
    assert stage.client(request) == request


def test_what_is_no_produce_request_ends_the_connection() -> None:
    stage = Stage(counted())
    request = produce_of(("orders", 0, batch(Of(1))), ("orders", 1, batch(Of(2))))
    with pytest.raises(ProtocolError):
        stage.client(frames.resized(request + b"x"))
    assert stage.to_broker == b""


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_topic_with_a_longer_name_than_there_can_be_is_the_brokers_business(version: int) -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)
    long = produce_of(("t" * 250, 0, batch(Of(2001))), version=version)
    assert other.client(long) == long
    several = produce_of(
        ("t" * 250, 0, batch(Of(2001))), ("t" * 250, 1, batch(Of(2002))), version=version
    )
    assert other.client(several) == several
    assert other.client(produce_of(("t" * 249, 0, batch(Of(2001))), version=version)) == b""
    keys = [
        key
        for of_user in stage.cluster.producer_ids.refused_batches.users.values()
        for key in of_user
    ]
    assert sorted(len(topic) for _, topic, _ in keys) == [len("orders"), 249]


@pytest.mark.parametrize("version", [8, 9])
def test_what_a_connection_remembers_of_its_known_producer_is_small(version: int) -> None:
    stage = Stage(counted())
    answered(stage, produce_of(("orders", 0, batch(Of(1000))), version=version))
    for topic, transactional_id in (
        ("t" * 20_000, None),
        ("orders", "x" * 20_000),
        ("orders", "x"),
    ):
        for _ in range(2):
            answered(
                stage,
                produce_of(
                    (topic, 0, batch(Of(1000))), version=version, transactional_id=transactional_id
                ),
            )
            assert len(stage.machine._requests._counted._front) < 1_024


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_topic_that_is_no_text_ends_the_connection_where_its_batch_would_be_refused(
    version: int,
) -> None:
    stage = refused_stage()
    other = Stage(stage.cluster, number=2)
    request = produce_of(("to", 0, batch(Of(3000))), version=version).replace(b"to", b"\xff\xfe")
    with pytest.raises(ProtocolError):
        other.client(request)
    assert other.to_broker == b""


def test_a_transactional_producer_and_tags_in_the_header_are_counted_as_others() -> None:
    stage = Stage(counted())
    of_tx = produce_of(("orders", 0, batch(Of(1000))), transactional_id="tx")
    answered(stage, of_tx)
    tagged = produce_of(("orders", 0, batch(Of(2000))), tags=frames.HEADER_TAGS)
    assert stage.client(tagged) == b""
    assert set(errors_of(last_answer(stage)).values()) == {REFUSED}
