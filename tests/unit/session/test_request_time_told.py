"""REQUEST in answers that the gateway makes itself, and what of a connection's time nobody is charged for."""

import pytest
from tests.unit.quota_api.written import ALTER, DESCRIBE, alteration, description
from tests.unit.session.test_charged_produce import RequestCounter
from tests.unit.session.test_client_quotas import (
    FINE,
    NOT_ALLOWED,
    ONE,
    broker_acls,
    broker_altered,
    broker_described,
)
from tests.unit.session.test_client_quotas import stage as quotas_stage
from tests.unit.session.test_mutations import (
    create,
    created,
    results,
    tell,
)
from tests.unit.session.test_request_time import LONG_NS, MS, ask, of_time, stage_of

from kvota.model.decision_sink import THROTTLED
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import (
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    decoded,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    throttle_of,
)
from kvota.testing.stage import Cluster, Stage, quotas

MUTATION = QuotaType.CONTROLLER_MUTATION


def told_quotas(frame: bytes, *answers: bytes, step_ns: int = LONG_NS, limit: float = 1.0) -> Stage:
    """A request about quotas, on which much time is spent, and what the broker says to our questions."""
    on = quotas_stage(table=quotas(REQUEST=limit))
    on.step_ns = step_ns
    on.client(frame)
    on.step_ns = 0
    for one in answers:
        on.broker(one)
    return on


# ------------------------------------------------------------------ answers of the gateway's own


def test_a_description_tells_it_and_is_charged_before_it_goes() -> None:
    on = told_quotas(description(), broker_described(0, None))

    assert throttle_of(on.to_client, DESCRIBE, 1) == 1_000
    assert on.mutes == [1_000]
    (row,) = of_time(on.cluster)
    assert (row.memo.api_key, row.outcome, round(row.value, 3)) == (DESCRIBE, THROTTLED, 50.0)


def test_a_description_within_the_quota_tells_nothing() -> None:
    on = told_quotas(description(), broker_described(0, None), step_ns=MS, limit=100.0)

    assert throttle_of(on.to_client, DESCRIBE, 1) == 0
    assert not on.muted


def test_an_alteration_tells_it_behind_its_errand() -> None:
    on = told_quotas(alteration(ONE), broker_altered(FINE), broker_acls(NOT_ALLOWED))
    assert on.errands
    assert of_time(on.cluster) == []  # our own questions are charged with what they are asked for
    on.tell(None)

    assert throttle_of(on.to_client, ALTER, 1) == 1_000
    assert [row.memo.api_key for row in of_time(on.cluster)] == [ALTER]


def test_in_shadow_mode_the_gateways_own_answer_tells_nothing() -> None:
    on = quotas_stage(table=quotas(REQUEST=1.0), enforced=frozenset())
    ask(on, description())
    on.broker(broker_described(0, None))

    assert on.to_client
    assert throttle_of(on.to_client, DESCRIBE, 1) == 0
    assert of_time(on.cluster)[0].throttle_ms == 1_000


@pytest.mark.parametrize(("spent", "told_ms"), [(50, 1_000), (3_200, 20_000)])
def test_a_refused_mutation_tells_the_longer_of_both(spent: int, told_ms: int) -> None:
    """``ControllerApis`` answers with the maximum of both (KIP-599)."""
    stage = stage_of(CONTROLLER_MUTATION=10.0, REQUEST=1.0)
    lane = stage.cluster.engine.lane(MUTATION, -1, "ANONYMOUS", "app", stage.cluster.now_ms)
    assert lane is not None
    lane.charge(110 + (1 if spent == 50 else 200), stage.cluster.now_ms)
    ask(stage, create(("a", 1)))
    assert tell(stage, stage.to_broker) == b""

    assert results(stage.to_client, CREATE_TOPICS, 7) == {"a": 89}
    assert throttle_of(stage.to_client, CREATE_TOPICS, 7) == told_ms
    assert max(stage.mutes) == told_ms


def test_a_mutation_that_passes_tells_it_once() -> None:
    stage = stage_of(CONTROLLER_MUTATION=1e6, REQUEST=1.0)
    ask(stage, create(("a", 1)))
    tell(stage, stage.to_broker)
    told = stage.broker(created(("a", 0, 1)))

    assert throttle_of(told, CREATE_TOPICS, 7) == 1_000
    assert len(of_time(stage.cluster)) == 1


def test_a_produce_that_a_further_quota_refuses_tells_what_led_to_it() -> None:
    """It is made at once, so it tells of what was spent before it."""
    cluster = Cluster(quotas(REQUEST=1e-3), produce_quotas=(RequestCounter(allowed=0),))
    stage = stage_of(2 * MS, cluster)
    stage.client(produce())
    first = stage.to_client
    stage.client(produce(correlation=2))

    assert throttle_of(first, PRODUCE, 9) == 0
    assert throttle_of(stage.to_client[len(first) :], PRODUCE, 9) == 1_000
    assert [round(row.value, 4) for row in of_time(cluster)] == [0.2]
    assert stage.muted


def test_a_fetch_that_waits_no_longer_is_charged_what_led_to_it() -> None:
    stage = stage_of(FETCH=1_000.0, REQUEST=1e-3)
    stage.client(fetch())
    stage.broker(fetch_answer(records=bytes(200_000)))
    before = len(stage.to_client)
    ask(stage, fetch(correlation=2))
    stage.advance(60_000)

    told = stage.to_client[before:]
    assert decoded(told, FETCH, 12).responses == ()
    assert throttle_of(told, FETCH, 12) >= 1_000
    assert round(sum(row.value for row in of_time(stage.cluster)), 3) == LONG_NS / 1e7
    assert {row.memo.api_key for row in of_time(stage.cluster)} == {FETCH}


# ------------------------------------------------------------------ whose time is charged


@pytest.mark.parametrize("cut", [16_390, 100_000])
def test_a_large_produce_in_pieces_is_charged_where_it_is_answered(cut: int) -> None:
    stage = stage_of(3 * MS, REQUEST=100.0)
    whole = produce(records=bytes(200_000))
    stage.client(whole[:cut], whole[cut:])
    stage.step_ns = 0
    stage.broker(produce_answer(9))

    assert stage.cluster.shared.exempt_ns == 0
    assert sum(round(row.value, 4) for row in of_time(stage.cluster)) == 0.6


@pytest.mark.parametrize("cut", [16_390, 100_000])
def test_a_large_produce_in_pieces_is_exempt_where_nobody_answers(cut: int) -> None:
    stage = stage_of(3 * MS, REQUEST=100.0)
    whole = produce(records=bytes(200_000), acks=0)
    stage.client(whole[:cut], whole[cut : cut + 50_000], whole[cut + 50_000 :])
    assert stage.cluster.shared.exempt_ns == 9 * MS
    stage.end()

    assert of_time(stage.cluster) == []


def test_a_large_produce_that_breaks_off_is_charged() -> None:
    stage = stage_of(3 * MS, REQUEST=100.0)
    stage.client(produce(records=bytes(200_000))[:100_000])
    stage.end()

    assert [round(row.value, 4) for row in of_time(stage.cluster)] == [0.3]


def test_the_share_of_what_is_exempt_is_that_of_the_last_half_minute() -> None:
    """Two samples of 30 s, as of a broker's ``exempt-request-time``; Kafka divides by no less than one of them."""
    stage = stage_of(MS, REQUEST=100.0)
    for _ in range(300):
        stage.client(produce(acks=0))
        stage.advance(100)
    shared, now_ms = stage.cluster.shared, stage.cluster.now_ms

    assert shared.exempt_share.peek_rate(now_ms) == pytest.approx(1.0, rel=0.01)
    assert shared.exempt_share.peek_rate(now_ms + 61_000) == 0.0
    assert shared.exempt_ns == 300 * MS
