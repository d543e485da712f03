"""Frames through one connection: what is forwarded, when, and whose answer is whose."""

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.session.requests import EVIDENCE_BYTES
from kvota.session.settings import ConnectionSettings
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    HEARTBEAT,
    METADATA,
    answer,
    decoded,
    fetch,
    fetch_answer,
    metadata_answer,
    parts,
    produce,
    produce_answer,
    request,
    resized,
    split,
)
from kvota.testing.stage import BROKER, GATEWAY, Cluster, Stage, quotas

INCREMENTAL_ALTER_CONFIGS = 44


def heartbeat(correlation: int = 1) -> bytes:
    return request(HEARTBEAT, 4, correlation=correlation)


def heartbeat_answer(correlation: int = 1) -> bytes:
    return answer(HEARTBEAT, 4, correlation=correlation)


def newer_api_versions(correlation: int) -> bytes:
    frame = request(API_VERSIONS, 0, correlation=correlation)
    return frame[:6] + b"\0\5" + frame[8:]


# ------------------------------------------------------------------ passing through


def test_a_request_that_is_only_passed_on_is_not_changed() -> None:
    stage = Stage()

    forwarded = stage.client(heartbeat())

    assert forwarded == heartbeat()
    assert stage.broker(heartbeat_answer()) == heartbeat_answer()


def test_requests_of_one_chunk_are_forwarded_together_and_answered_in_order() -> None:
    stage = Stage()
    sent = produce(correlation=5) + heartbeat(3) + fetch(correlation=3) + heartbeat(9)

    forwarded = stage.client(sent)

    assert forwarded == sent
    answers = (
        produce_answer(correlation=5)
        + heartbeat_answer(3)
        + fetch_answer(correlation=3)
        + heartbeat_answer(9)
    )
    assert stage.broker(answers) == answers
    assert stage.machine.idle


def test_an_answer_to_another_request_than_the_oldest_closes() -> None:
    stage = Stage()
    stage.client(heartbeat(1) + heartbeat(2))

    with pytest.raises(ProtocolError, match="answered request 2, 1 was due"):
        stage.broker(heartbeat_answer(2))


def test_equal_correlation_ids_are_told_apart_by_their_order() -> None:
    stage = Stage()
    stage.client(heartbeat(7) + produce(correlation=7))

    answers = heartbeat_answer(7) + produce_answer(correlation=7)

    assert stage.broker(answers) == answers
    assert [row.value for row in stage.cluster.rows] == [len(produce()) - 4]


def test_an_answer_to_nothing_closes() -> None:
    stage = Stage()

    with pytest.raises(ProtocolError, match="answer to nothing"):
        stage.broker(heartbeat_answer())


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_an_answer_of_impossible_size_closes(size: int) -> None:
    stage = Stage()
    stage.client(heartbeat())

    with pytest.raises(ProtocolError, match=f"answer of {size} bytes"):
        stage.broker(size.to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big"))


def test_a_large_answer_that_is_only_passed_on_is_not_held() -> None:
    stage = Stage()
    stage.client(heartbeat())
    large = resized(heartbeat_answer() + bytes(300_000))

    assert stage.broker(large[:100]) == large[:100]
    assert stage.broker(large[100:200_000]) == large[100:200_000]
    assert not stage.machine.idle
    assert stage.broker(large[200_000:]) == large[200_000:]
    assert stage.machine.idle


# ------------------------------------------------------------------ what a client may send


@pytest.mark.parametrize("size", [2**31 - 1, 0, -1, 9, -(2**31), 100 * 2**20 + 1])
def test_a_frame_of_impossible_size_closes_as_soon_as_its_size_is_here(size: int) -> None:
    stage = Stage()

    with pytest.raises(ProtocolError, match=f"request of {size} bytes is announced"):
        stage.client(size.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize(
    ("key", "version", "reason"),
    [
        (4, 0, "API key 4 is none that clients use"),
        (83, 0, "API key 83 is none that clients use"),
        (78, 0, "ShareFetch v0 is outside the offered versions 1-2"),
        (-1, 0, "API key 65535 is none that clients use"),
        (0, 14, "Produce v14 is outside the offered versions 0-13"),
        (1, -1, "Fetch v65535 is outside"),
    ],
)
def test_an_api_that_was_not_offered_closes(key: int, version: int, reason: str) -> None:
    stage = Stage()
    head = (100).to_bytes(4, "big") + key.to_bytes(2, "big", signed=True)

    with pytest.raises(ProtocolError, match=reason):
        stage.client(head + version.to_bytes(2, "big", signed=True))


def test_an_api_has_its_own_cap() -> None:
    stage = Stage()
    announced = resized(heartbeat() + bytes(2 * 2**20))

    with pytest.raises(ProtocolError, match="API key 12 v4: a request of"):
        stage.client(announced[:20])


@pytest.mark.parametrize("length", [-2, 9, 30_000])
def test_a_client_id_that_does_not_fit_closes(length: int) -> None:
    stage = Stage()
    frame = bytearray(resized(heartbeat()[:14] + bytes(8)))
    frame[12:14] = length.to_bytes(2, "big", signed=True)

    with pytest.raises(ProtocolError, match=f"client id of {length} bytes"):
        stage.client(bytes(frame))


@pytest.mark.parametrize("key_version", [(0, 9), (0, 3), (0, 0), (1, 12), (1, 4), (3, 12), (19, 7)])
def test_a_request_that_ends_behind_its_header_never_raises_anything_else(
    key_version: tuple[int, int],
) -> None:
    key, version = key_version
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    frames = [resized(bytes(4) + head + bytes(extra)) for extra in range(4)]

    results = [_outcome(frame) for frame in frames]

    assert set(results) <= {"forwarded", "refused"}


def _outcome(frame: bytes) -> str:
    stage = Stage()
    try:
        stage.client(frame)
    except ProtocolError:
        return "refused"
    return "forwarded"


def test_a_half_frame_waits_until_it_is_whole() -> None:
    stage = Stage()
    frame = produce(records=b"r" * 5_000)

    assert stage.client(frame[:1], frame[1:13], frame[13:4_000]) == b""
    assert stage.machine.incomplete
    assert stage.client(frame[4_000:]) == frame
    assert not stage.machine.incomplete


def test_a_large_frame_goes_on_when_its_first_part_is_here() -> None:
    stage = Stage()
    frame = produce(records=b"r" * 100_000)

    assert stage.client(frame[: EVIDENCE_BYTES - 1]) == b""
    assert stage.client(frame[EVIDENCE_BYTES - 1 : 20_000]) == frame[:20_000]
    assert stage.client(frame[20_000:50_000]) == frame[20_000:50_000]
    assert stage.machine.incomplete
    assert stage.client(frame[50_000:]) == frame[50_000:]


def test_thousands_of_rare_requests_in_one_chunk_are_forwarded() -> None:
    stage = Stage(Cluster(limits={"in_flight_max": 5_000}))
    frames = [request(API_VERSIONS, 0, correlation=number) for number in range(2_400)]
    mixed = b"".join(frame + heartbeat(1) for frame in frames)

    assert stage.client(mixed) == mixed
    assert stage.machine.due_count == 4_800


@pytest.mark.parametrize(
    "of_number",
    [
        heartbeat,
        lambda number: request(API_VERSIONS, 0, correlation=number),
        lambda number: produce(correlation=number),
    ],
    ids=["passed on", "rare", "charged"],
)
def test_of_one_chunk_no_more_are_in_flight_than_may_be(of_number: Callable[[int], bytes]) -> None:
    stage = Stage(Cluster(limits={"in_flight_max": 1_000}))

    went_up = split(stage.client(b"".join(map(of_number, range(4_000)))))

    assert len(went_up) == stage.machine.due_count == 1_001
    assert stage.pausing.reasons == Reason.IN_FLIGHT


# ------------------------------------------------------------------ bounds


def test_reading_pauses_when_too_many_answers_are_due_and_goes_on_when_half_have_come() -> None:
    stage = Stage(Cluster(limits={"in_flight_max": 4}))

    stage.client(b"".join(heartbeat(number) for number in range(5)))

    assert stage.machine.pauses_reading
    assert stage.client(heartbeat(5)) == b""
    assert stage.broker(heartbeat_answer(0), heartbeat_answer(1)) != b""
    assert stage.machine.pauses_reading
    before = len(stage.to_broker)
    stage.broker(heartbeat_answer(2))
    assert stage.to_broker[before:] == heartbeat(5)
    assert not stage.machine.pauses_reading


def test_of_a_chunk_no_more_goes_up_than_may_be_in_flight_and_the_rest_follows() -> None:
    stage = Stage()
    at_once = ConnectionSettings().in_flight_max
    sent = [heartbeat(number) for number in range(10_000)]

    went_up = split(stage.client(b"".join(sent)))
    assert len(went_up) == stage.machine.due_count == at_once + 1
    assert stage.machine.pauses_reading

    for number in range(10_000):
        stage.broker(heartbeat_answer(number))
        assert stage.machine.due_count <= at_once + 1
    assert stage.to_broker == b"".join(sent)
    assert not stage.machine.pauses_reading


def test_too_many_requests_are_noticed_in_a_chunk_that_ends_with_half_a_frame() -> None:
    stage = Stage(Cluster(limits={"in_flight_max": 4}))

    stage.client(b"".join(heartbeat(number) for number in range(5)) + heartbeat(5)[:9])

    assert stage.machine.pausing.reasons & Reason.IN_FLIGHT


@pytest.mark.parametrize("cut", [1, 8, 20])
def test_reading_goes_on_when_the_last_answer_due_came_in_pieces(cut: int) -> None:
    stage = Stage(Cluster(limits={"in_flight_max": 1}))
    stage.client(heartbeat(1) + heartbeat(2))
    large = resized(heartbeat_answer(2) + bytes(100))

    stage.broker(heartbeat_answer(1), large[:cut], large[cut:])

    assert stage.machine.pausing.reasons == 0


def test_announced_bytes_of_two_connections_share_one_budget() -> None:
    cluster = Cluster(budget_bytes=150_000)
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    large = produce(records=b"r" * 100_000)
    first.client(large[:20_000])

    assert second.client(large[:20_000]) == b""
    assert second.machine.pauses_reading
    assert second.machine.incomplete  # it does not wait for ever
    assert first.machine.keeps_others_waiting

    first.client(large[20_000:])
    assert second.wakes == 1
    assert second.wake_up() == large[:20_000]
    assert second.client(large[20_000:]) == large[20_000:]
    assert cluster.shared.budgets.used_bytes == 0


def test_small_frames_pass_beside_a_spent_budget() -> None:
    cluster = Cluster(budget_bytes=1)
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    first.client(produce(records=b"r" * 100_000)[:20_000])

    assert second.client(produce()) == produce()


def test_a_frame_larger_than_the_budget_passes_alone() -> None:
    stage = Stage(Cluster(budget_bytes=1_000))
    frame = produce(records=b"r" * 100_000)

    assert stage.client(frame[:50_000], frame[50_000:]) == frame


def test_frames_that_are_held_whole_count_against_the_budget_too() -> None:
    cluster = Cluster(budget_bytes=150_000)
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    names = parts(METADATA, 12, "request", "MetadataRequestTopic", *[{"name": "n" * 200}] * 500)
    large = request(METADATA, 12, topics=names)
    first.client(large[:20_000])

    assert second.client(large[:20_000]) == b""
    assert second.machine.pauses_reading

    assert first.client(large[20_000:]) == large
    assert second.wakes == 1
    assert second.wake_up() == b""
    assert second.client(large[20_000:]) == large
    assert cluster.shared.budgets.used_bytes == 0


def test_a_connection_that_ends_gives_its_share_of_the_budget_back() -> None:
    cluster = Cluster(budget_bytes=150_000)
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    large = produce(records=b"r" * 100_000)
    first.client(large[:20_000])
    second.client(large[:20_000])

    first.end()

    assert second.wake_up() == large[:20_000]


def test_room_is_given_back_when_the_broker_has_let_go_of_a_half_frame() -> None:
    cluster = Cluster(budget_bytes=150_000)
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    large = produce(records=b"r" * 100_000)
    first.client(large[:20_000])
    second.client(large[:20_000])

    first.machine.close()
    assert second.wakes == 0
    first.machine.upstream_gone()

    assert second.wakes == 1
    assert second.wake_up() == large[:20_000]


def test_small_frames_are_let_in_before_large_ones() -> None:
    cluster = Cluster(budget_bytes=300_000)
    holder, large, small = (Stage(cluster, number=number) for number in range(3))
    holder.client(produce(records=b"r" * 290_000)[:20_000])
    large.client(produce(records=b"r" * 280_000)[:20_000])
    small.client(produce(records=b"r" * 30_000)[:20_000])

    holder.end()

    assert (large.wakes, small.wakes) == (0, 1)
    assert small.wake_up() != b""
    small.end()
    assert large.wakes == 1
    assert large.wake_up() != b""


def test_room_that_one_has_no_use_for_is_passed_on() -> None:
    cluster = Cluster(budget_bytes=150_000)
    holder, muted, other = (Stage(cluster, number=number) for number in range(3))
    begun = produce(records=b"r" * 100_000)[:20_000]
    for stage in (holder, muted, other):
        stage.client(begun)
    muted.machine.pausing.mute(1_000)
    holder.end()
    assert (muted.wakes, other.wakes) == (1, 0)

    assert muted.wake_up() == b""

    assert other.wakes == 1
    assert other.wake_up() == begun
    assert cluster.shared.budgets.used_bytes > 100_000
    other.end()
    assert muted.advance(1_000) == begun


def test_room_for_one_that_has_gone_goes_to_the_next() -> None:
    cluster = Cluster(budget_bytes=150_000)
    holder, waits, granted, other = (Stage(cluster, number=number) for number in range(4))
    begun = produce(records=b"r" * 100_000)[:20_000]
    for stage in (holder, granted, waits, other):
        stage.client(begun)
    holder.end()

    waits.end()
    granted.end()

    assert (granted.wakes, waits.wakes, other.wakes) == (1, 0, 1)
    assert other.wake_up() == begun
    other.end()
    assert cluster.shared.budgets.used_bytes == 0


def test_who_waits_for_room_with_one_broker_asks_the_other_one_that_is_reached() -> None:
    cluster = Cluster(budget_bytes=150_000)
    holder, stage = Stage(cluster, number=1), Stage(cluster, number=2)
    begun = produce(records=b"r" * 100_000)[:20_000]
    holder.client(begun)
    assert stage.client(begun) == b""

    stage.machine.redialled(("broker-2.inside", 9092), 2)

    assert stage.wakes == 1
    assert stage.wake_up() == begun
    assert not holder.machine.keeps_others_waiting


def test_a_frame_keeps_its_room_when_another_broker_is_dialled() -> None:
    stage = Stage()
    frame = produce(records=b"r" * 100_000)
    stage.client(frame[:20_000])

    stage.machine.redialled(("broker-2.inside", 9092), 2)

    assert stage.machine.arrived_bytes == 20_000 - 4
    assert stage.cluster.shared.budgets.of(BROKER).used_bytes == 0
    stage.client(frame[20_000:])
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_the_rest_of_a_frame_is_waited_for_in_a_mute_too() -> None:
    buckets = {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}
    stage = Stage(Cluster(quotas(PRODUCE=1_000), buckets=buckets))
    frame = produce(records=b"r" * 100_000)

    stage.client(frame[:20_000])

    assert stage.muted
    assert stage.machine.incomplete
    assert stage.machine.arrived_bytes == 20_000 - 4


# ------------------------------------------------------------------ draining


def test_draining_lets_the_half_frame_through_and_nothing_behind_it() -> None:
    stage = Stage()
    frame = produce(records=b"r" * 100_000)
    stage.client(frame[:50_000])

    stage.machine.pausing.reasons |= Reason.DRAINING

    assert not stage.machine.pauses_reading
    assert stage.client(frame[50_000:] + heartbeat(2)) == frame[50_000:]
    assert stage.machine.pauses_reading
    assert not stage.machine.idle
    assert stage.broker(produce_answer()) == produce_answer()
    assert stage.machine.idle


# ------------------------------------------------------------------ addresses


def test_brokers_in_metadata_are_told_at_the_gateways_address_and_remembered() -> None:
    stage = Stage()
    stage.client(request(METADATA, 12))

    told = stage.broker(
        metadata_answer(12, correlation=1, brokers=[(1, *BROKER), (2, "broker-2.inside", 9092)])
    )

    brokers = decoded(told, METADATA, 12).brokers
    assert [(b.node_id, b.host, b.port) for b in brokers] == [(1, GATEWAY, 20_001), (2, GATEWAY, 20_002)]  # fmt: skip
    assert stage.cluster.shared.topology.brokers == {1: BROKER, 2: ("broker-2.inside", 9092)}


def test_a_refused_setting_names_no_listener_of_the_broker() -> None:
    stage = Stage()
    stage.client(request(METADATA, 12) + request(INCREMENTAL_ALTER_CONFIGS, 1, correlation=2))
    stage.broker(metadata_answer(12, correlation=1, brokers=[(1, *BROKER)]))
    text = "from '[PLAINTEXT://10.0.0.1:9092]', known as broker-1.inside:9092"
    part = {"error_message": text, "resource_name": "1"}
    responses = parts(
        INCREMENTAL_ALTER_CONFIGS, 1, "response", "AlterConfigsResourceResponse", part
    )

    told = stage.broker(answer(INCREMENTAL_ALTER_CONFIGS, 1, correlation=2, responses=responses))

    (response,) = decoded(told, INCREMENTAL_ALTER_CONFIGS, 1).responses
    assert response.error_message == "from '[PLAINTEXT://hidden]', known as hidden"


def test_a_node_outside_the_range_fails_the_answer_and_nothing_of_it_is_forwarded() -> None:
    stage = Stage(Cluster(nodes=(0, 3)))
    stage.client(request(METADATA, 12))

    with pytest.raises(
        ProtocolError, match=r"node 7 at far.inside:9092, outside gateway.node_ids 0-3"
    ):
        stage.broker(metadata_answer(12, correlation=1, brokers=[(7, "far.inside", 9092)]))
    assert stage.to_client == b""


def test_coordinators_and_clusters_are_told_at_the_gateways_address() -> None:
    stage = Stage()
    stage.client(request(FIND_COORDINATOR, 4) + request(DESCRIBE_CLUSTER, 1, correlation=2))
    coordinators = parts(
        FIND_COORDINATOR, 4, "response", "Coordinator",
        {"key": "group", "node_id": 3, "host": "broker-3.inside", "port": 9092},
    )  # fmt: skip
    brokers = parts(
        DESCRIBE_CLUSTER, 1, "response", "DescribeClusterBroker",
        {"broker_id": 4, "host": "broker-4.inside", "port": 9092},
    )  # fmt: skip

    told = split(
        stage.broker(
            answer(FIND_COORDINATOR, 4, coordinators=coordinators)
            + answer(DESCRIBE_CLUSTER, 1, correlation=2, brokers=brokers)
        )
    )

    (coordinator,) = decoded(told[0], FIND_COORDINATOR, 4).coordinators
    (broker,) = decoded(told[1], DESCRIBE_CLUSTER, 1).brokers
    assert (coordinator.host, coordinator.port) == (GATEWAY, 20_003)
    assert (broker.host, broker.port) == (GATEWAY, 20_004)


@pytest.mark.parametrize("version", range(10, 14))
def test_node_endpoints_of_a_produce_answer_are_the_gateways(version: int) -> None:
    stage = Stage()
    stage.client(produce(version))

    told = stage.broker(produce_answer(version, error=6, endpoints=[(2, "broker-2.inside", 9092)]))

    (endpoint,) = decoded(told, 0, version).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, GATEWAY, 20_002)
    assert b"inside" not in told


@pytest.mark.parametrize("version", [16, 17, 18])
def test_node_endpoints_of_a_small_fetch_answer_are_the_gateways(version: int) -> None:
    stage = Stage()
    stage.client(fetch(version))

    told = stage.broker(fetch_answer(version, endpoints=[(2, "broker-2.inside", 9092)]))

    (endpoint,) = decoded(told, 1, version).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, GATEWAY, 20_002)
    assert b"inside" not in told


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("piece", [1_000, 70_000, 131_072, 10**9])
def test_node_endpoints_of_a_streamed_fetch_answer_are_blanked_in_place(
    version: int, piece: int
) -> None:
    stage = Stage()
    stage.client(fetch(version) + heartbeat(2))
    large = fetch_answer(
        version,
        records=b"f" * 20_000,
        partitions=10,
        endpoints=[(2, "broker-2.inside", 9092), (3, "broker-3.inside", 9093)],
    )
    sent = large + heartbeat_answer(2)

    told = stage.broker(*(sent[at : at + piece] for at in range(0, len(sent), piece)))

    first, second = split(told)
    assert len(first) == len(large)
    assert first[:200_000] == large[:200_000]
    assert b"inside" not in told
    assert b"\0\0\x23\x84" not in told
    assert second == heartbeat_answer(2)
    assert stage.machine.idle


def test_a_streamed_fetch_answer_without_endpoints_is_not_changed() -> None:
    stage = Stage()
    stage.client(fetch(16))
    large = fetch_answer(16, records=b"f" * 200_000)

    assert stage.broker(large[:150_000], large[150_000:]) == large


# ------------------------------------------------------------------ versions


def test_newer_versions_of_apiversions_are_answered_with_error_35_in_the_layout_of_v0() -> None:
    stage = Stage()

    forwarded = stage.client(newer_api_versions(8))

    assert forwarded == b""
    told = decoded(stage.to_client, API_VERSIONS, 0)
    assert told.error_code == 35
    assert [(a.api_key, a.min_version, a.max_version) for a in told.api_keys] == [(18, 0, 4)]


def test_many_different_newer_versions_leave_nothing_behind() -> None:
    stage = Stage()
    frame = request(API_VERSIONS, 0)

    stage.client(*(frame[:6] + n.to_bytes(2, "big") + frame[8:] for n in range(5, 65_536, 100)))

    assert not stage.machine.caller.routes


def test_versions_are_offered_as_far_as_the_gateway_knows_them() -> None:
    stage = Stage()
    stage.client(request(API_VERSIONS, 4))
    offered = parts(
        API_VERSIONS, 4, "response", "ApiVersion",
        {"api_key": 0, "min_version": 0, "max_version": 99},
        {"api_key": 78, "min_version": 1, "max_version": 2},
        {"api_key": CREATE_TOPICS, "min_version": 2, "max_version": 5},
    )  # fmt: skip

    told = decoded(
        stage.broker(answer(API_VERSIONS, 4, api_keys=offered, error_code=ErrorCode(0))),
        API_VERSIONS,
        4,
    )

    assert [(a.api_key, a.min_version, a.max_version) for a in told.api_keys] == [
        (0, 0, 13),
        (19, 2, 5),
        (48, 0, 1),  # these two are the gateway's own
        (49, 0, 1),
    ]
    assert stage.machine.caller.upstream_versions[0] == (0, 99)


# ------------------------------------------------------------------ our own answers


def test_our_own_answer_waits_behind_slow_ones_of_the_broker() -> None:
    stage = Stage()
    stage.client(fetch(16, correlation=1) + newer_api_versions(2) + heartbeat(3))
    large = fetch_answer(16, records=b"f" * 200_000, correlation=1)

    assert stage.to_client == b""
    stage.broker(large[:150_000])
    assert stage.to_client == large[:150_000]
    stage.broker(large[150_000:] + heartbeat_answer(3))

    first, own, last = split(stage.to_client)
    assert first == large
    assert decoded(own, API_VERSIONS, 0).error_code == 35
    assert own[4:8] == (2).to_bytes(4, "big")
    assert last == heartbeat_answer(3)


def test_our_own_answer_does_not_cut_an_answer_that_is_being_streamed() -> None:
    stage = Stage()
    stage.client(heartbeat(1))
    large = resized(heartbeat_answer() + bytes(5_000))
    stage.broker(large[:1_000])

    stage.client(newer_api_versions(2))
    assert stage.to_client == large[:1_000]
    stage.broker(large[1_000:])

    first, own = split(stage.to_client)
    assert first == large
    assert decoded(own, API_VERSIONS, 0).error_code == 35
    assert stage.machine.idle


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize("version", [1, 4])
def test_settings_of_topics_are_passed_on_while_they_arrive(version: int) -> None:
    """Only settings of brokers have addresses: a topic may be called as such a setting is."""
    stage = Stage()
    resource = {"resource_type": 2, "resource_name": "listeners", "configuration_keys": None}
    asked = parts(DESCRIBE_CONFIGS, version, "request", "DescribeConfigsResource", resource)
    stage.client(request(DESCRIBE_CONFIGS, version, resources=asked))
    result = {"resource_type": 2, "resource_name": "listeners"}
    results = parts(DESCRIBE_CONFIGS, version, "response", "DescribeConfigsResult", result)
    frame = answer(DESCRIBE_CONFIGS, version, results=results * 5)

    assert stage.broker(frame[:20]) == frame[:20]
    assert stage.broker(frame[20:]) == frame[20:]
