"""Requests of transactions whose producer ids are counted: what goes on, what is refused, and what that costs."""

import pytest

from kvota.engine.producer_ids import ProducerIds
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.decision_sink import ADMITTED, REJECTED
from kvota.model.errors import ProtocolError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.session.route import Kind
from kvota.testing import frames
from kvota.testing.frames import HEARTBEAT, split, throttle_of
from kvota.testing.producer_frames import Of, answer_to, of_producer
from kvota.testing.producer_frames import errors_of as errors_of_produce
from kvota.testing.stage import ALL_TYPES, Cluster, Row, Stage, quotas
from kvota.testing.transaction_frames import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    APIS,
    COMMIT_OFFSETS,
    ONE_TRANSACTION,
    Transaction,
    errors_of,
    of_transaction,
    of_transactions,
)

COUNTED = ALL_TYPES | {QuotaType.PRODUCER_ID}
EVERYBODY = QuotaEntity(user=DEFAULT)
AGAIN_LATER = 14
HOUR_MS = 3_600_000


def counted(rate: float = 1.0, *, enforced: frozenset[QuotaType] = COUNTED) -> Cluster:
    """A gateway that lets each user have so many new ids an hour."""
    quota = ProducerIdQuota(ProducerIds())
    quota.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, rate)])
    return Cluster(quotas(), enforced=enforced, producer_ids=quota)


def answered(stage: Stage, request: bytes) -> bytes:
    """Has a request go on as it is, and the broker answer it."""
    assert stage.client(request) == request
    key, version = (int.from_bytes(request[at : at + 2], "big") for at in (4, 6))
    correlation = int.from_bytes(request[8:12], "big", signed=True)
    answer = frames.answer(key, version, correlation=correlation)
    assert stage.broker(answer) == answer
    return answer


def spent_stage() -> Stage:
    """One whose only token is spent by producer 1000."""
    stage = Stage(counted())
    answered(stage, of_transaction(ADD_PARTITIONS, 0, 1000))
    return stage


def of_ids(stage: Stage) -> list[Row]:
    return [row for row in stage.cluster.rows if row.memo.quota_type is QuotaType.PRODUCER_ID]


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_new_id_costs_a_token_and_one_without_a_token_is_told_to_ask_again(
    key: int, version: int
) -> None:
    stage = Stage(counted())
    for correlation in (1, 2):
        answered(stage, of_transaction(key, version, 1000, correlation=correlation))

    assert stage.client(of_transaction(key, version, 2000, correlation=7)) == b""

    told = split(stage.to_client)[-1]
    assert int.from_bytes(told[4:8], "big") == 7
    assert set(errors_of(told, key, version).values()) == {AGAIN_LATER}
    assert throttle_of(told, key, version) == 30_000 == stage.mutes[-1]
    assert [(row.value, row.outcome) for row in of_ids(stage)] == [(1, ADMITTED), (1, REJECTED)]
    row = of_ids(stage)[-1]
    assert (row.memo.api_key, row.memo.api_version, row.memo.client_id) == (key, version, "app")
    assert (row.memo.tags, row.memo.enforced) == ("user=ANONYMOUS", True)
    assert row.throttle_ms == pytest.approx(HOUR_MS, abs=1)

    stage.advance(HOUR_MS)
    answered(stage, of_transaction(key, version, 2000, correlation=8))


@pytest.mark.parametrize(("key", "version"), APIS)
def test_an_id_that_is_known_here_is_known_in_a_produce_and_the_other_way_round(
    key: int, version: int
) -> None:
    stage = Stage(counted())
    answered(stage, of_transaction(key, version, 1000))
    produce = of_producer(Of(1000), correlation=5)
    assert stage.client(produce) == produce
    stage.broker(answer_to(produce))

    other = Stage(counted())
    assert other.client(produce) == produce
    other.broker(answer_to(produce))
    answered(other, of_transaction(key, version, 1000))
    assert len(of_ids(stage)) == len(of_ids(other)) == 1

    refused = Stage(other.cluster, number=2)
    assert refused.client(of_producer(Of(3000))) == b""
    assert set(errors_of_produce(split(refused.to_client)[-1]).values()) == {19}


@pytest.mark.parametrize(("key", "version"), ONE_TRANSACTION)
def test_no_id_is_not_counted(key: int, version: int) -> None:
    stage = spent_stage()
    for producer_id in (-1, -(2**63)):
        answered(stage, of_transaction(key, version, producer_id))
    assert len(of_ids(stage)) == 1
    assert stage.client(of_transaction(key, version, 2**63 - 1)) == b""


@pytest.mark.parametrize(("key", "version"), APIS)
def test_shadow_mode_counts_and_refuses_nothing(key: int, version: int) -> None:
    stage = Stage(counted(enforced=ALL_TYPES))
    for producer_id in (1000, 2000, 2000):
        answered(stage, of_transaction(key, version, producer_id))
    assert not stage.muted
    rows = of_ids(stage)
    assert [row.outcome for row in rows] == [ADMITTED, REJECTED, REJECTED]
    assert not any(row.memo.enforced for row in rows)


def test_several_transactions_go_on_together_or_not_at_all() -> None:
    stage = Stage(counted(3))
    answered(stage, of_transactions([Transaction(1), Transaction(2), Transaction(1)]))
    only_verified = [Transaction(number, verify_only=True) for number in range(100, 200)]
    answered(stage, of_transactions([Transaction(1), *only_verified]))
    assert [row.memo.producer_id for row in of_ids(stage)] == [1, 2]

    assert stage.client(of_transactions([Transaction(2), Transaction(3), Transaction(4)])) == b""

    assert errors_of(split(stage.to_client)[-1], ADD_PARTITIONS, 5) == {("", -1): AGAIN_LATER}
    assert [(row.value, row.outcome) for row in of_ids(stage)[2:]] == [(1, ADMITTED), (1, REJECTED)]
    stage.advance(HOUR_MS)
    answered(stage, of_transactions([Transaction(2), Transaction(3), Transaction(4)]))


def test_a_thousand_transactions_are_decided_on_a_little_at_a_time() -> None:
    stage = Stage(counted(2000))
    frame = of_transactions(Transaction(number, topics={}) for number in range(1000))
    answered(stage, frame)
    rows = of_ids(stage)
    assert 980 <= sum(row.value for row in rows) <= 1000  # a few look like known ones
    assert len(rows) < 50
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_a_connection_that_ends_while_it_is_decided_on_holds_no_memory() -> None:
    stage = Stage(counted(2000))
    frame = of_transactions(Transaction(number, topics={}) for number in range(1000))
    machine = stage.machine
    machine.from_client(frame, stage.cluster.clock.now_us())
    assert stage.cluster.shared.budgets.used_bytes >= len(frame)
    machine.close()
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_requests_in_flight_stay_in_order() -> None:
    stage = spent_stage()
    heartbeats = [frames.request(HEARTBEAT, 0, correlation=number) for number in (10, 12)]
    refused = of_transaction(ADD_OFFSETS, 1, 2000, correlation=11)
    known = of_transaction(COMMIT_OFFSETS, 3, 1000, correlation=13)

    assert stage.client(heartbeats[0] + refused + heartbeats[1] + known) == heartbeats[0]
    assert stage.muted
    assert stage.advance(30_000) == heartbeats[1] + known

    before = len(stage.to_client)
    stage.broker(frames.answer(HEARTBEAT, 0, correlation=10, throttle_ms=None))
    stage.broker(frames.answer(HEARTBEAT, 0, correlation=12, throttle_ms=None))
    stage.broker(frames.answer(COMMIT_OFFSETS, 3, correlation=13))
    told = [int.from_bytes(frame[4:8], "big") for frame in split(stage.to_client[before:])]
    assert told == [10, 11, 12, 13]


def test_a_new_one_in_the_middle_of_others_goes_on_in_its_turn() -> None:
    stage = Stage(counted(5))
    some = [
        frames.request(HEARTBEAT, 0, correlation=1),
        of_transaction(ADD_PARTITIONS, 3, 1000, correlation=2),
        frames.request(HEARTBEAT, 0, correlation=3),
        of_transaction(COMMIT_OFFSETS, 5, 1001, correlation=4),
    ]
    assert stage.client(b"".join(some)) == b"".join(some)


@pytest.mark.parametrize(("key", "version"), APIS)
def test_one_that_arrives_in_pieces_is_decided_on_when_it_is_whole(key: int, version: int) -> None:
    stage = Stage(counted())
    whole = of_transaction(key, version, 1000)
    assert stage.client(*(whole[at : at + 1] for at in range(len(whole) - 1))) == b""
    assert stage.client(whole[-1:]) == whole


def test_a_user_without_a_quota_costs_nothing() -> None:
    stage = Stage(Cluster(enforced=COUNTED))
    for key, version in APIS:
        answered(stage, of_transaction(key, version, 1000))
        assert stage.machine.caller.routes[key << 16 | version].kind == Kind.PASS
    assert not stage.cluster.producer_ids.ids.users


@pytest.mark.parametrize("key", [ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS])
def test_a_quota_that_comes_or_goes_counts_from_the_next_request_on(key: int) -> None:
    stage = Stage(Cluster(enforced=COUNTED))
    route = key << 16 | 3
    answered(stage, of_transaction(key, 3, 1))
    quota = stage.cluster.producer_ids

    quota.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, 1.0)])
    stage.look_again()
    answered(stage, of_transaction(key, 3, 2))
    assert stage.client(of_transaction(key, 3, 3)) == b""
    stage.advance(HOUR_MS)

    quota.change([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, None)])
    answered(stage, of_transaction(key, 3, 4))  # before it is told so, too
    stage.look_again()
    assert stage.machine.caller.routes[route].kind == Kind.PASS
    answered(stage, of_transaction(key, 3, 5))
    assert [row.outcome for row in of_ids(stage)] == [ADMITTED, REJECTED]


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_broken_one_ends_the_connection(key: int, version: int) -> None:
    stage = spent_stage()
    whole = of_transaction(key, version, 2000)
    with pytest.raises(ProtocolError):
        stage.client(frames.resized(whole[:18]))
    stage.end()
    assert stage.cluster.shared.budgets.used_bytes == 0
