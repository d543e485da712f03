"""A Produce with several charges: rows, the longest throttle, and one that refuses it."""

from dataclasses import dataclass, field

import pytest

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, THROTTLED, ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.session.produce_quota import Charge, ProduceRequest
from kvota.testing.frames import (
    HEARTBEAT,
    PRODUCE,
    produce,
    produce_answer,
    request,
    throttle_of,
)
from kvota.testing.stage import Cluster, Row, Stage, quotas

REFUSAL_MS = 700


@dataclass
class RequestCounter:
    """A further quota: so many requests, then refusals; each charge is throttled as it is told."""

    sink_of: Cluster | None = None
    allowed: int = 1_000
    throttle_ms: int = 0
    enforced: bool = True
    seen: list[ProduceRequest] = field(default_factory=list)

    def charge(self, request_: ProduceRequest, now_us: int) -> Charge | bytes:
        self.seen.append(request_)
        if len(self.seen) > self.allowed:
            correlation = int.from_bytes(request_.frame[8:12], "big")
            acks = decoded_acks(request_)
            refusal = produce_answer(request_.version, correlation=correlation, error=89)
            return refusal if acks else b""
        memo = ChargeMemo(
            node_id=request_.node_id,
            quota_type=QuotaType.REQUEST,
            connection=request_.connection,
            user=request_.user,
            client_id=request_.client_id,
            tags="",
            api_key=PRODUCE,
            api_version=request_.version,
            limit=1.0,
            samples=11,
            sample_ms=1000,
            algorithm=Algorithm.SAMPLED_RATE,
            enforced=self.enforced,
        )
        assert self.sink_of is not None
        outcome = THROTTLED if self.throttle_ms else ADMITTED
        return Charge(memo, self.sink_of.sink.next_seq(), now_us, 1, self.throttle_ms, outcome)


def decoded_acks(request_: ProduceRequest) -> int:
    at = 14 + len(request_.client_id) + 1 + 1
    return int.from_bytes(request_.frame[at : at + 2], "big", signed=True)


def stage_with(quota: RequestCounter, **limits: float) -> Stage:
    cluster = Cluster(quotas(**limits), produce_quotas=(quota,))
    quota.sink_of = cluster
    return Stage(cluster)


def of_type(rows: list[Row], quota_type: QuotaType) -> list[Row]:
    return [row for row in rows if row.memo.quota_type is quota_type]


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_each_quota_has_a_row_and_the_longest_throttle_is_answered(version: int) -> None:
    stage = stage_with(RequestCounter(throttle_ms=5_000), PRODUCE=1e9)
    frame = produce(version)

    assert stage.client(frame) == frame
    assert stage.mutes == [5_000]
    answered = stage.broker(produce_answer(version))

    assert throttle_of(answered, PRODUCE, version) == 5_000
    first, second = stage.cluster.rows
    assert (first.memo.quota_type, first.value, first.throttle_ms) == (QuotaType.REQUEST, 1, 5_000)
    assert (second.memo.quota_type, second.value) == (QuotaType.PRODUCE, len(frame) - 4)
    assert {row.seq for row in stage.cluster.rows} == {0, 1}


def test_the_bandwidth_quota_decides_where_it_is_the_longer_one() -> None:
    stage = stage_with(RequestCounter(throttle_ms=5), PRODUCE=10_000)

    stage.client(produce(records=b"x" * 200_000))
    answered = stage.broker(produce_answer())

    shorter_ms, longer_ms = stage.mutes
    assert longer_ms > 5_000
    assert shorter_ms == 5
    assert throttle_of(answered, PRODUCE, 9) == longer_ms


def test_a_quota_in_shadow_mode_is_recorded_and_holds_nobody_back() -> None:
    stage = stage_with(RequestCounter(throttle_ms=5_000, enforced=False), PRODUCE=1e9)

    stage.client(produce())

    assert stage.broker(produce_answer()) == produce_answer()
    assert stage.mutes == []
    assert of_type(stage.cluster.rows, QuotaType.REQUEST)[0].throttle_ms == 5_000


def test_a_longer_throttle_of_the_broker_stays() -> None:
    stage = stage_with(RequestCounter(throttle_ms=50), PRODUCE=1e9)
    stage.client(produce())

    answered = stage.broker(produce_answer(throttle_ms=900))

    assert throttle_of(answered, PRODUCE, 9) == 900
    assert [row.upstream_ms for row in stage.cluster.rows] == [900, 900]


def test_a_refused_request_is_answered_here_and_nothing_of_it_goes_on() -> None:
    stage = stage_with(RequestCounter(allowed=0), PRODUCE=1e9)
    heartbeat = request(HEARTBEAT, 4, correlation=7)

    assert stage.client(produce() + heartbeat) == heartbeat

    assert stage.to_client == produce_answer(error=89)
    assert stage.cluster.rows == []


def test_what_still_comes_of_a_refused_request_is_swallowed() -> None:
    stage = stage_with(RequestCounter(allowed=0), PRODUCE=1e9)
    frame = produce(records=b"x" * 50_000)
    heartbeat = request(HEARTBEAT, 4, correlation=7)

    assert stage.client(frame[:20_000], frame[20_000:30_000]) == b""
    assert stage.to_client == produce_answer(error=89)
    assert stage.machine.incomplete
    assert stage.machine.arrived_bytes == pytest.approx(30_000, abs=4)
    assert stage.client(frame[30_000:] + heartbeat) == heartbeat
    assert not stage.machine.incomplete


def test_the_broker_has_nothing_of_a_refused_request_and_no_room_is_kept_for_it() -> None:
    stage = stage_with(RequestCounter(allowed=0), PRODUCE=1e9)

    stage.client(produce(records=b"x" * 50_000)[:20_000])

    assert not stage.machine.is_inside_frame
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_a_refusal_comes_in_the_order_of_the_answers() -> None:
    stage = stage_with(RequestCounter(allowed=1), PRODUCE=1e9)
    stage.client(produce(correlation=1) + produce(correlation=2))
    assert stage.to_client == b""

    stage.broker(produce_answer(correlation=1))

    assert stage.to_client == produce_answer(correlation=1) + produce_answer(
        correlation=2, error=89
    )


def test_charges_without_an_answer_are_recorded_at_the_end_and_with_acks_0_at_once() -> None:
    stage = stage_with(RequestCounter(), PRODUCE=1e9)

    stage.client(produce(acks=0))
    assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER] * 2
    stage.client(produce(correlation=2))
    stage.end()

    assert len(stage.cluster.rows) == 4
    assert stage.cluster.rows[3].upstream_ms == NO_ANSWER


def test_a_charge_before_the_quota_that_refuses_is_recorded() -> None:
    first, second = RequestCounter(), RequestCounter(allowed=0)
    cluster = Cluster(quotas(PRODUCE=1e9), produce_quotas=(first, second))
    first.sink_of = second.sink_of = cluster
    stage = Stage(cluster)

    stage.client(produce())

    (row,) = stage.cluster.rows
    assert (row.memo.quota_type, row.upstream_ms) == (QuotaType.REQUEST, NO_ANSWER)


def test_a_further_quota_sees_who_asks_and_the_part_that_is_here() -> None:
    quota = RequestCounter()
    stage = stage_with(quota, PRODUCE=1e9)
    frame = produce(records=b"x" * 50_000)

    stage.client(frame[:20_000])

    (seen,) = quota.seen
    assert (seen.user, seen.client_id, seen.connection) == ("ANONYMOUS", "app", 1)
    assert (seen.node_id, seen.version, seen.frame) == (1, 9, frame[:20_000])


def test_the_mute_of_a_further_quota_outlasts_a_changed_limit_of_the_bytes() -> None:
    stage = stage_with(RequestCounter(throttle_ms=20_000), PRODUCE=10_000)
    heartbeat = request(HEARTBEAT, 4, correlation=7)
    stage.client(produce(records=b"x" * 200_000) + heartbeat)

    stage.cluster.replace_quotas(quotas(PRODUCE=1e9))
    stage.look_again()

    assert stage.advance(19_999) == b""
    assert stage.advance(1) == heartbeat
