"""REQUEST on one connection: what is charged when, who is told, and Kafka's order of throttle times."""

from random import Random

import pytest

from kvota.engine.thread_share import percent_seconds
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.request_time import UNANSWERED_NS
from kvota.testing.frames import (
    FETCH,
    HEADER_TAGS,
    HEARTBEAT,
    PRODUCE,
    answer,
    decoded,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
    throttle_of,
)
from kvota.testing.kafka_messages import RandomMessages, throttle, to_frame, versions
from kvota.testing.stage import Cluster, Row, Stage, quotas
from kvota.wire import throttle_field
from kvota.wire.apis import API_VERSIONS, APIS, METADATA, Treatment

MS = 1_000_000
# Of the smallest quota used here: one request of this is far over it.
LONG_NS = 500 * MS
PASSED_ON = [
    (key, version)
    for key, api in APIS.items()
    if api.treatment in {Treatment.PASS, Treatment.COUNTED}
    for version in versions(key)
    if version <= api.version_max
]


def stage_of(step_ns: int = 0, cluster: Cluster | None = None, **limits: float) -> Stage:
    stage = Stage(cluster or Cluster(quotas(**limits)))
    stage.step_ns = step_ns
    return stage


def ask(stage: Stage, frame: bytes) -> None:
    """A request on which much time is spent; what is done later takes none."""
    stage.step_ns = LONG_NS
    stage.client(frame)
    stage.step_ns = 0


def of_time(cluster: Cluster) -> list[Row]:
    return [row for row in cluster.rows if row.memo.quota_type is QuotaType.REQUEST]


def rate_of(cluster: Cluster, quota_type: QuotaType) -> float:
    lane = cluster.engine.lane(quota_type, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    assert lane.counter is not None
    return lane.counter.peek_rate(cluster.now_ms)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ what is charged


def test_without_a_quota_nothing_is_measured() -> None:
    stage = stage_of(LONG_NS, PRODUCE=1e9)

    assert stage.machine.request_time is None
    assert stage.machine.from_upstream.__self__ is not None
    assert "RequestTime" not in repr(stage.machine.from_upstream)
    stage.client(produce())
    stage.broker(produce_answer(9))

    assert of_time(stage.cluster) == []


def test_each_answer_has_a_row_of_what_was_spent_before_it() -> None:
    stage = stage_of(2 * MS, REQUEST=50.0)
    for number in range(3):
        stage.client(request(HEARTBEAT, 4, correlation=number))
        stage.broker(answer(HEARTBEAT, 4, correlation=number))

    rows = of_time(stage.cluster)
    # The answer's own 2 ms are charged with the next one.
    assert [round(row.value, 4) for row in rows] == [0.2, 0.4, 0.4]
    assert {(row.memo.api_key, row.memo.api_version, row.outcome) for row in rows} == {
        (HEARTBEAT, 4, ADMITTED)
    }
    memo = rows[0].memo
    assert (memo.user, memo.client_id, memo.tags) == (
        "ANONYMOUS",
        "app",
        "client-id=,user=ANONYMOUS",
    )
    assert (memo.limit, memo.samples, memo.sample_ms, memo.node_id) == (50.0, 11, 1000, -1)
    stage.end()
    assert sum(row.value for row in of_time(stage.cluster)) == pytest.approx(1.2, abs=1e-4)


def test_answers_that_come_together_are_one_row() -> None:
    stage = stage_of(MS, REQUEST=50.0)
    stage.client(b"".join(request(HEARTBEAT, 4, correlation=number) for number in range(5)))
    stage.broker(b"".join(answer(HEARTBEAT, 4, correlation=number) for number in range(5)))

    assert [round(row.value, 4) for row in of_time(stage.cluster)] == [0.1]


@pytest.mark.parametrize("cut", [1, 7, 9, 20])
def test_an_answer_in_pieces_is_charged_once(cut: int) -> None:
    stage = stage_of(REQUEST=1.0)
    ask(stage, request(HEARTBEAT, 4))
    whole = answer(HEARTBEAT, 4)
    told = stage.broker(whole[:cut], whole[cut:])

    assert len(of_time(stage.cluster)) == 1
    assert len(told) == len(whole)
    assert stage.muted


def test_nobody_is_charged_for_records_that_no_answer_is_awaited_for() -> None:
    stage = stage_of(3 * MS, REQUEST=1.0)
    for _ in range(10):
        stage.client(produce(acks=0))
    assert stage.cluster.shared.exempt_ns == 30 * MS
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))

    assert [round(row.value, 4) for row in of_time(stage.cluster)] == [0.3]
    assert not stage.muted


def test_what_the_gateway_answers_itself_is_charged_too() -> None:
    stage = stage_of(UNANSWERED_NS // 2, REQUEST=1e-3)
    unknown = request(API_VERSIONS, 4)
    unknown = unknown[:6] + (120).to_bytes(2, "big") + unknown[8:]
    stage.client(unknown)
    assert of_time(stage.cluster) == []
    stage.client(unknown)

    (row,) = of_time(stage.cluster)
    assert (round(row.value, 4), row.outcome) == (1.0, THROTTLED)
    assert stage.muted
    assert stage.cluster.shared.exempt_ns == 0


def test_the_rest_is_charged_when_the_connection_ends() -> None:
    stage = stage_of(4 * MS, REQUEST=1e-3)
    stage.client(request(HEARTBEAT, 4))
    stage.end()

    (row,) = of_time(stage.cluster)
    assert (round(row.value, 4), row.upstream_ms) == (0.4, NO_ANSWER)


def test_a_clock_that_steps_back_charges_nothing() -> None:
    stage = stage_of(-3_600 * 1000 * MS, REQUEST=1.0)
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))

    assert [row.value for row in of_time(stage.cluster)] == [0.0]


def test_a_stranger_is_charged_when_it_is_known() -> None:
    stage = stage_of(5 * MS, REQUEST=1.0)
    stage.cluster.shared.asks_for_logins = True
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))
    assert of_time(stage.cluster) == []
    stage.machine.caller.is_let_in = True
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))

    assert [round(row.value, 4) for row in of_time(stage.cluster)] == [1.5]


def test_each_client_id_has_its_own_counter() -> None:
    table = ConfiguredQuotas({QuotaEntity(client_id=DEFAULT): {QuotaType.REQUEST: 1.0}})
    stage = stage_of(MS, Cluster(table))
    for client in ("one", "two", "one"):
        stage.client(request(HEARTBEAT, 4, client=client))
        stage.broker(answer(HEARTBEAT, 4))

    stage.end()
    rows = of_time(stage.cluster)
    assert [row.memo.client_id for row in rows] == ["one", "one", "two", "two", "one", "one"]
    assert {row.memo.tags for row in rows} == {"client-id=one,user=", "client-id=two,user="}
    # The request's own, and what its answer took, which is charged before the other's begins.
    assert [round(row.value, 4) for row in rows] == [0.1] * 6


@pytest.mark.parametrize(("limit", "rows"), [(100.0, 3), (1.0, 22), (None, 3)])
def test_little_time_is_charged_when_it_is_worth_a_row(limit: float | None, rows: int) -> None:
    """1 ms, or a thousandth of what the quota has in its window; the first answer finds the counter."""
    entity = QuotaEntity(user=DEFAULT) if limit else QuotaEntity(user="somebody else")
    stage = stage_of(50_000, Cluster(ConfiguredQuotas({entity: {QuotaType.REQUEST: limit or 1.0}})))
    for number in range(22):
        stage.client(request(HEARTBEAT, 4, correlation=number))
        stage.broker(answer(HEARTBEAT, 4, correlation=number))
    charged = len(of_time(stage.cluster))
    stage.end()

    assert charged == rows
    assert sum(row.value for row in of_time(stage.cluster)) == pytest.approx(0.22, abs=1e-3)


# ------------------------------------------------------------------ who is told


@pytest.mark.parametrize(("key", "version"), PASSED_ON)
def test_every_answer_that_has_the_field_tells_the_throttle(key: int, version: int) -> None:
    stage = stage_of(REQUEST=1.0)
    asked = RandomMessages(Random(2)).payload(key, version, "request")
    ask(stage, to_frame(asked, correlation_id=5, client_id="app"))
    has_field = version >= APIS[key].throttle_from
    given = {"throttle_time": throttle(3)} if has_field else {}
    payload = RandomMessages(Random(3)).payload(key, version, "response", **given)
    whole = to_frame(payload, correlation_id=5)
    told = stage.broker(whole)

    assert stage.mutes == [1000]
    assert throttle_field.read(told, key, version) == (1000 if has_field else None)
    expected = bytearray(whole)
    throttle_field.patch(expected, key, version, 1000)
    assert told == expected


@pytest.mark.parametrize("version", [0, 1, 5, 12])
def test_metadata_tells_it(version: int) -> None:
    stage = stage_of(REQUEST=1.0)
    ask(stage, request(METADATA, version))
    told = stage.broker(
        answer(METADATA, version, throttle_ms=0 if version >= 3 else None, brokers=())
    )

    assert throttle_field.read(told, METADATA, version) == (1000 if version >= 3 else None)


def test_a_longer_throttle_of_the_broker_stays() -> None:
    stage = stage_of(REQUEST=1.0)
    ask(stage, request(HEARTBEAT, 4))

    assert throttle_of(stage.broker(answer(HEARTBEAT, 4, throttle_ms=7_000)), HEARTBEAT, 4) == 7_000


def test_in_shadow_mode_nobody_is_held_back() -> None:
    cluster = Cluster(quotas(REQUEST=1.0), enforced=frozenset())
    stage = stage_of(cluster=cluster)
    ask(stage, request(HEARTBEAT, 4))
    whole = answer(HEARTBEAT, 4)

    assert stage.broker(whole) == whole
    (row,) = of_time(cluster)
    assert (row.throttle_ms, row.outcome, row.memo.enforced) == (1000, THROTTLED, False)
    assert not stage.muted


# ------------------------------------------------------------------ Kafka's order


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize(("bytes_ms", "told_ms"), [(0, 1_000), (400, 1_000), (5_000, 5_000)])
def test_a_produce_tells_the_longer_of_both(version: int, bytes_ms: int, told_ms: int) -> None:
    stage = stage_of(PRODUCE=1_000, REQUEST=1.0)
    lane = stage.cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", stage.cluster.now_ms)
    assert lane is not None
    frame = produce(version)
    if bytes_ms:
        lane.charge(10_000 + bytes_ms - (len(frame) - 4), stage.cluster.now_ms)
    ask(stage, frame)
    told = stage.broker(produce_answer(version))

    assert throttle_of(told, PRODUCE, version) == told_ms
    assert max(stage.mutes) == told_ms
    produced = stage.cluster.rows[0] if bytes_ms else stage.cluster.rows[-1]
    assert {row.memo.quota_type for row in stage.cluster.rows} == {
        QuotaType.PRODUCE,
        QuotaType.REQUEST,
    }
    assert stage.advance(told_ms - 1) == b""
    assert stage.muted
    stage.advance(1)
    assert not stage.muted
    assert produced is not None


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("tags", [b"\0", HEADER_TAGS])
@pytest.mark.parametrize("size", [2_000, 300_000])
def test_a_fetch_over_request_alone_is_emptied_and_its_bytes_do_not_count(
    version: int, tags: bytes, size: int
) -> None:
    stage = stage_of(FETCH=1e9, REQUEST=1.0)
    ask(stage, fetch(version, correlation=3))
    whole = fetch_answer(version, correlation=3, records=bytes(size), session_id=9, tags=tags)
    told = b"".join(stage.broker(part) for part in (whole[:200], whole[200:]))

    assert decoded(told, FETCH, version).responses == ()
    assert throttle_of(told, FETCH, version) == 1_000
    if version >= 7:
        assert decoded(told, FETCH, version).session_id == 9
    assert rate_of(stage.cluster, QuotaType.FETCH) == 0.0
    fetched = [row for row in stage.cluster.rows if row.memo.quota_type is QuotaType.FETCH]
    assert [(row.outcome, row.throttle_ms) for row in fetched] == [(REJECTED, 0)]
    assert [lane.quota_type for lane in stage.machine.caller.muted_by] == [QuotaType.REQUEST]


@pytest.mark.parametrize("without", [{}, {"FETCH": 1e9}])
def test_it_is_emptied_without_a_quota_on_fetching_and_in_its_shadow(
    without: dict[str, float],
) -> None:
    cluster = Cluster(quotas(REQUEST=1.0, **without), enforced=frozenset({QuotaType.REQUEST}))
    stage = stage_of(cluster=cluster)
    ask(stage, fetch())
    told = stage.broker(fetch_answer(records=bytes(1_000)))

    assert decoded(told, FETCH, 12).responses == ()
    assert throttle_of(told, FETCH, 12) == 1_000


def test_a_fetch_over_both_tells_the_longer_one() -> None:
    stage = stage_of(FETCH=1_000, REQUEST=1.0)
    ask(stage, fetch())
    told = stage.broker(fetch_answer(records=bytes(20_000)))

    assert decoded(told, FETCH, 12).responses == ()
    assert throttle_of(told, FETCH, 12) > 10_000
    lanes = {lane.quota_type for lane in stage.machine.caller.muted_by}
    assert QuotaType.FETCH in lanes


def test_a_fetch_that_failed_is_not_emptied() -> None:
    stage = stage_of(FETCH=1e9, REQUEST=1.0)
    ask(stage, fetch())
    told = stage.broker(fetch_answer(error_code=70))

    assert decoded(told, FETCH, 12).error_code == 70
    assert throttle_of(told, FETCH, 12) == 1_000


# ------------------------------------------------------------------ quotas that change


def test_a_quota_that_is_set_later_counts_from_then_on() -> None:
    stage = stage_of(MS, Cluster())
    stage.client(request(HEARTBEAT, 4))
    stage.cluster.replace_quotas(quotas(REQUEST=10.0))
    stage.look_again()
    stage.broker(answer(HEARTBEAT, 4))
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))
    assert [round(row.value, 4) for row in of_time(stage.cluster)] == [0.0, 0.2]
    assert of_time(stage.cluster)[-1].memo.client_id == "app"

    stage.cluster.replace_quotas(ConfiguredQuotas())
    stage.look_again()
    stage.client(request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))
    assert len(of_time(stage.cluster)) == 2


@pytest.mark.parametrize(("limit", "left_ms"), [(1e-3, 1_000), (10_000.0, 0)])
def test_a_running_mute_follows_the_limit_and_is_never_longer_than_a_sample(
    limit: float, left_ms: int
) -> None:
    stage = stage_of(REQUEST=1.0)
    ask(stage, request(HEARTBEAT, 4))
    stage.broker(answer(HEARTBEAT, 4))
    stage.advance(600)
    stage.cluster.replace_quotas(quotas(REQUEST=limit))
    stage.look_again()
    stage.advance(max(0, left_ms - 1))
    assert stage.muted is bool(left_ms)
    stage.advance(1)
    assert not stage.muted


def test_values_are_whole_counts() -> None:
    stage = stage_of(123_457, REQUEST=10.0)
    for _ in range(50):
        stage.client(request(HEARTBEAT, 4))
        stage.broker(answer(HEARTBEAT, 4))

    for row in of_time(stage.cluster):
        assert row.value / percent_seconds(1) == int(row.value / percent_seconds(1))


@pytest.mark.parametrize("cut", [1, 4, 8, 13, 14, 15, 16, 20])
def test_whose_time_it_is_does_not_depend_on_how_its_request_is_cut(cut: int) -> None:
    stage = Stage(Cluster(quotas(QuotaEntity(client_id="app"), REQUEST=10.0)))
    ask, told = request(HEARTBEAT, 4), answer(HEARTBEAT, 4)
    for _ in range(3):
        stage.step_ns = 30_000_000
        stage.client(ask[:cut], ask[cut:])
        stage.step_ns = 0
        stage.broker(told)
        stage.advance(20)

    rows = [row for row in stage.cluster.rows if row.memo.quota_type is QuotaType.REQUEST]
    assert rows
    assert {(row.memo.client_id, row.memo.limit) for row in rows} == {("app", 10.0)}
