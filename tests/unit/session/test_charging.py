"""What Produce and Fetch are charged, and how the throttle reaches the client."""

from dataclasses import replace

import pytest

from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, THROTTLED
from kvota.model.errors import ProtocolError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import (
    FETCH,
    HEADER_TAGS,
    PRODUCE,
    answer,
    decoded,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    resized,
    throttle_of,
)
from kvota.testing.manual_clock import START_MS
from kvota.testing.stage import Cluster, Stage, quotas

# 100 bytes/s over ten seconds: a charge of 1,000 fits, one of 2,000 is 10 s too much.
TIGHT = 100
# What larger answers than an empty window are muted beyond what they are told.
WINDOW_MS = 10_000
LARGE = b"x" * 2_000


def tight(**limits: float) -> Cluster:
    return Cluster(quotas(**(limits or {"PRODUCE": TIGHT, "FETCH": TIGHT})))


def expected_throttle_ms(value: int) -> int:
    """Kafka's formula for one charge in an empty window of 11 x 1 s: a window of 10 s."""
    return round((value / 10 - TIGHT) / TIGHT * 10_000)


# ------------------------------------------------------------------ Produce


@pytest.mark.parametrize("version", range(14))
def test_a_produce_request_is_charged_its_announced_size(version: int) -> None:
    stage = Stage(tight())
    frame = produce(version, records=b"x" * 500)

    stage.client(frame)
    stage.broker(produce_answer(version))

    (row,) = stage.cluster.rows
    assert row.value == len(frame) - 4
    assert (row.memo.api_key, row.memo.api_version) == (PRODUCE, version)
    assert (row.throttle_ms, row.upstream_ms, row.outcome) == (0, 0, ADMITTED)
    assert row.ts_us == START_MS * 1000


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("upstream_ms", [0, 7, 90_000])
def test_a_produce_answer_tells_the_longer_throttle_time(version: int, upstream_ms: int) -> None:
    stage = Stage(tight())
    frame = produce(version, records=LARGE)
    stage.client(frame)
    plain = produce_answer(version, throttle_ms=upstream_ms)

    told = stage.broker(plain)

    (row,) = stage.cluster.rows
    assert row.throttle_ms == expected_throttle_ms(len(frame) - 4)
    assert (row.upstream_ms, row.outcome) == (upstream_ms, THROTTLED)
    assert stage.mutes == [row.throttle_ms]
    assert throttle_of(told, PRODUCE, version) == max(row.throttle_ms, upstream_ms)
    assert told == produce_answer(version, throttle_ms=max(row.throttle_ms, upstream_ms))


@pytest.mark.parametrize("version", range(10, 14))
@pytest.mark.parametrize("upstream_ms", [0, 90_000])
def test_throttle_time_and_node_endpoints_change_together(version: int, upstream_ms: int) -> None:
    stage = Stage(tight())
    frame = produce(version, records=LARGE)
    stage.client(frame)
    sent = produce_answer(
        version, throttle_ms=upstream_ms, error=6, endpoints=[(2, "broker-2.inside", 256)]
    )

    told = decoded(stage.broker(sent), PRODUCE, version)

    before = decoded(sent, PRODUCE, version)
    charged_ms = stage.cluster.rows[0].throttle_ms
    assert told.throttle_time.total_seconds() * 1000 == max(charged_ms, upstream_ms)
    assert told.node_endpoints[0].port == 20_002
    assert replace(
        told, throttle_time=before.throttle_time, node_endpoints=before.node_endpoints
    ) == before  # fmt: skip


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_oldest_produce_answers_are_patched_where_they_have_the_field(version: int) -> None:
    stage = Stage(tight())
    stage.client(produce(version, records=LARGE))

    told = stage.broker(produce_answer(version))

    throttle_ms = stage.cluster.rows[0].throttle_ms
    assert throttle_ms > 0
    assert told == produce_answer(version, throttle_ms=throttle_ms if version else 0)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize(
    ("transactional_id", "tags"), [(None, b"\0"), ("t", b"\0"), (None, HEADER_TAGS), ("t" * 200, HEADER_TAGS)]
)  # fmt: skip
def test_a_produce_request_without_acks_is_answered_by_nobody(
    version: int, transactional_id: str | None, tags: bytes
) -> None:
    stage = Stage(tight())
    frame = produce(version, acks=0, transactional_id=transactional_id, tags=tags, records=LARGE)

    forwarded = stage.client(frame)

    assert forwarded == frame
    assert stage.machine.due_count == 0
    (row,) = stage.cluster.rows
    assert (row.value, row.upstream_ms, row.outcome) == (len(frame) - 4, NO_ANSWER, THROTTLED)
    assert stage.mutes == [row.throttle_ms]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize(
    ("transactional_id", "tags"), [(None, b"\0"), ("t", b"\0"), (None, HEADER_TAGS), ("", HEADER_TAGS)]
)  # fmt: skip
def test_a_produce_request_with_acks_waits_for_its_answer(
    version: int, acks: int, transactional_id: str | None, tags: bytes
) -> None:
    stage = Stage(tight())
    frame = produce(version, acks=acks, transactional_id=transactional_id, tags=tags)

    stage.client(frame)

    assert stage.machine.due_count == 1
    assert stage.cluster.rows == []
    stage.broker(produce_answer(version))
    assert [row.value for row in stage.cluster.rows] == [len(frame) - 4]


def test_an_answer_goes_to_the_request_with_acks_behind_one_without() -> None:
    stage = Stage(tight())

    stage.client(produce(acks=0, correlation=1) + produce(acks=1, correlation=2))

    assert stage.broker(produce_answer(correlation=2)) == produce_answer(correlation=2)


# ------------------------------------------------------------------ Fetch


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("upstream_ms", [0, 7, 90_000])
def test_a_fetch_answer_is_charged_its_body_and_four_and_tells_the_longer_throttle_time(
    version: int, upstream_ms: int
) -> None:
    stage = Stage(tight())
    stage.client(fetch(version))
    sent = fetch_answer(version, records=LARGE, throttle_ms=upstream_ms)

    told = stage.broker(sent)

    (row,) = stage.cluster.rows
    header_bytes = 9 if version >= 12 else 8
    assert row.value == 4 + len(sent) - header_bytes
    assert row.throttle_ms == expected_throttle_ms(int(row.value))
    assert (row.upstream_ms, row.outcome) == (upstream_ms, THROTTLED)
    assert told == fetch_answer(
        version, records=LARGE, throttle_ms=max(row.throttle_ms, upstream_ms)
    )
    assert stage.mutes == [row.throttle_ms + WINDOW_MS]


@pytest.mark.parametrize("version", [12, 15, 18])
def test_tags_in_an_answers_header_are_not_charged_and_survive(version: int) -> None:
    stage = Stage(tight())
    stage.client(fetch(version))
    plain = fetch_answer(version, records=LARGE)

    told = stage.broker(fetch_answer(version, records=LARGE, tags=HEADER_TAGS))

    (row,) = stage.cluster.rows
    assert row.value == 4 + len(plain) - 9
    assert told[8:13] == HEADER_TAGS
    assert told[13:17] == row.throttle_ms.to_bytes(4, "big")


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_large_fetch_answer_is_charged_and_patched_when_its_head_is_here(version: int) -> None:
    stage = Stage(tight())
    stage.client(fetch(version))
    sent = fetch_answer(version, records=b"f" * 300_000)

    told = stage.broker(sent[:1_000])

    (row,) = stage.cluster.rows
    assert len(told) == 1_000
    assert stage.mutes == [row.throttle_ms + WINDOW_MS]
    told += stage.broker(sent[1_000:])
    assert told == fetch_answer(version, records=b"f" * 300_000, throttle_ms=row.throttle_ms)


@pytest.mark.parametrize("version", [11, 12])
def test_a_fetch_answer_too_short_for_its_fields_closes(version: int) -> None:
    stage = Stage(tight())
    stage.client(fetch(version))

    with pytest.raises(ProtocolError, match=r"tagged fields end|an answer of 4 bytes"):
        stage.broker(resized(bytes(4) + (1).to_bytes(4, "big")))


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("tags", [b"\0", HEADER_TAGS])
def test_a_fetch_request_asks_for_no_more_than_the_window_still_takes(
    version: int, tags: bytes
) -> None:
    stage = Stage(tight())
    stage.client(fetch(version))
    stage.broker(fetch_answer(version, records=b"f" * 300))
    left = 10 * TIGHT - int(stage.cluster.rows[0].value)

    forwarded = stage.client(fetch(version, correlation=2, min_bytes=5_000, tags=tags))

    assert forwarded == fetch(version, correlation=2, min_bytes=left, max_bytes=left, tags=tags)


def test_a_fetch_request_asks_for_one_byte_at_least() -> None:
    stage = Stage(tight())
    now_ms = stage.cluster.now_ms
    lane = stage.cluster.engine.lane(QuotaType.FETCH, 1, "ANONYMOUS", "app", now_ms)
    lane.admit(10 * TIGHT, now_ms)

    forwarded = decoded(stage.client(fetch()), FETCH, 12, is_answer=False)

    assert (forwarded.min_bytes, forwarded.max_bytes) == (1, 1)


def test_a_fetch_request_within_the_window_is_not_changed() -> None:
    stage = Stage(tight())

    assert stage.client(fetch(max_bytes=1_000)) == fetch(max_bytes=1_000)


# ------------------------------------------------------------------ shadow mode


@pytest.mark.parametrize("version", [4, 8, 12, 16, 18])
def test_shadow_mode_changes_nothing_but_the_record_for_fetch(version: int) -> None:
    stage = Stage(Cluster(quotas(FETCH=TIGHT), enforced=frozenset()))
    enforced = Stage(tight(FETCH=TIGHT))
    sent = fetch_answer(version, records=LARGE)
    enforced.client(fetch(version))
    enforced.broker(sent)

    assert stage.client(fetch(version)) == fetch(version)
    assert stage.broker(sent) == sent
    assert stage.mutes == []
    assert not stage.machine.pausing.reasons
    (row,), (other,) = stage.cluster.rows, enforced.cluster.rows
    assert (row.value, row.throttle_ms, row.outcome) == (other.value, other.throttle_ms, THROTTLED)
    assert (row.memo.enforced, other.memo.enforced) == (False, True)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_shadow_mode_changes_nothing_but_the_record_for_produce(version: int) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=TIGHT), enforced=frozenset({QuotaType.FETCH})))
    frame = produce(version, records=LARGE)

    assert stage.client(frame + frame) == frame + frame
    answers = produce_answer(version) * 2
    assert stage.broker(answers) == answers
    assert stage.mutes == []
    assert [row.outcome for row in stage.cluster.rows] == [THROTTLED, THROTTLED]
    assert [row.memo.enforced for row in stage.cluster.rows] == [False, False]


def test_without_any_quota_charges_are_observed() -> None:
    stage = Stage()
    stage.client(produce(records=LARGE) + fetch(correlation=2))
    stage.broker(produce_answer() + fetch_answer(correlation=2, records=LARGE))

    rows = stage.cluster.rows
    assert [(row.memo.samples, row.memo.limit, row.throttle_ms) for row in rows] == [(0, None, 0)] * 2  # fmt: skip


# ------------------------------------------------------------------ whose quota


def test_each_client_id_of_a_connection_has_its_own_counter() -> None:
    table = ConfiguredQuotas({QuotaEntity(client_id=DEFAULT): {QuotaType.PRODUCE: TIGHT}})
    stage = Stage(Cluster(table, enforced=frozenset()))

    for number, client in enumerate(("a", "b", "a", None)):
        stage.client(produce(records=b"x" * 800, client=client, correlation=number))
        stage.broker(produce_answer(correlation=number))

    rows = stage.cluster.rows
    assert [row.memo.client_id for row in rows] == ["a", "b", "a", ""]
    assert [row.memo.tags for row in rows][:2] == ["client-id=a,user=", "client-id=b,user="]
    assert [row.outcome for row in rows] == [ADMITTED, ADMITTED, THROTTLED, ADMITTED]
    assert rows[3].memo.limit is None


def test_other_quotas_hold_from_the_next_request_on() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=10**9, FETCH=10**9)))
    stage.client(produce() + fetch(correlation=2))
    stage.broker(produce_answer())

    stage.cluster.engine.replace_quotas(quotas(PRODUCE=TIGHT, FETCH=TIGHT))
    stage.broker(fetch_answer(correlation=2, records=LARGE))
    stage.advance(60_000)
    stage.client(produce(correlation=3, records=LARGE))
    stage.broker(produce_answer(correlation=3))

    limits = [(row.memo.quota_type, row.memo.limit) for row in stage.cluster.rows]
    assert limits == [("PRODUCE", 10**9), ("FETCH", TIGHT), ("PRODUCE", TIGHT)]


def test_each_row_says_the_algorithm_in_force_at_its_charge() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=10**9)))
    stage.client(produce())
    stage.broker(produce_answer())

    stage.cluster.engine.replace_countings({}, {QuotaType.PRODUCE: BucketSettings(burst_ms=700)})
    for correlation in (2, 3):
        stage.client(produce(correlation=correlation))
        stage.broker(produce_answer(correlation=correlation))

    memos = [row.memo for row in stage.cluster.rows]
    assert [(memo.algorithm.value, memo.samples, memo.sample_ms) for memo in memos] == [
        ("sampled_rate", 11, 1_000),
        ("token_bucket", 1, 700),
        ("token_bucket", 1, 700),
    ]


def test_connections_of_one_user_share_a_counter_per_broker() -> None:
    cluster = Cluster(quotas(PRODUCE=TIGHT), enforced=frozenset())
    stages = [Stage(cluster, number=1), Stage(cluster, number=2)]
    stages[1].machine.redialled(("broker-2.inside", 9092), 2)

    for stage in (*stages, *stages):
        stage.client(produce(records=b"x" * 800))
        stage.broker(produce_answer())

    rows = cluster.rows
    assert [(row.memo.node_id, row.memo.connection) for row in rows] == [(1, 1), (2, 2)] * 2
    assert [row.outcome for row in rows] == [ADMITTED, ADMITTED, THROTTLED, THROTTLED]


# ------------------------------------------------------------------ the end of a connection


def test_what_was_charged_and_never_answered_is_recorded_at_the_end() -> None:
    stage = Stage(tight())
    stage.client(produce(correlation=1) + fetch(correlation=2) + produce(correlation=3))
    stage.broker(produce_answer(correlation=1))

    stage.machine.close()

    rows = stage.cluster.rows
    assert [(row.seq, row.upstream_ms) for row in rows] == [(0, 0), (1, NO_ANSWER)]
    assert stage.machine.due_count == 0


def test_each_decision_has_its_number_even_where_answers_come_later() -> None:
    stage = Stage(tight(PRODUCE=10**9, FETCH=10**9))
    stage.client(produce(correlation=1) + fetch(correlation=2) + produce(correlation=3, acks=0))
    stage.broker(produce_answer(correlation=1), fetch_answer(correlation=2))

    assert sorted(row.seq for row in stage.cluster.rows) == [0, 1, 2]
    assert [row.memo.quota_type for row in stage.cluster.rows] == ["PRODUCE", "PRODUCE", "FETCH"]


def test_an_answer_in_error_is_charged_like_any_other() -> None:
    stage = Stage(tight())
    stage.client(produce())

    stage.broker(produce_answer(error=3))

    assert [row.value for row in stage.cluster.rows] == [len(produce()) - 4]


def test_a_fetch_answer_with_an_error_at_the_top_is_charged() -> None:
    stage = Stage(tight())
    stage.client(fetch(12))
    sent = answer(FETCH, 12, responses=(), session_id=0)

    stage.broker(sent)

    assert [row.value for row in stage.cluster.rows] == [len(sent) - 5]
