"""Produce answers with thousands of partitions: they go on while they arrive, all but their end."""

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.decision_sink import NO_ANSWER
from kvota.model.errors import ProtocolError
from kvota.session.answer_heads import BUFFERED_FETCH_BYTES_MAX
from kvota.testing.frames import (
    HEARTBEAT,
    PRODUCE,
    answer,
    decoded,
    node_endpoints,
    parts,
    produce,
    request,
    resized,
    throttle_of,
)
from kvota.testing.kafka_messages import part_type, payload_type
from kvota.testing.stage import Cluster, Stage, quotas

VERSIONS = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13]
CHUNK_BYTES = 10_000


def large_answer(
    version: int, *, throttle_ms: int = 7, count: int = 10_000, endpoints: bool = False
) -> bytes:
    """An answer that names so many partitions; every tenth has failed, with a text where it can."""
    if version < 3:
        body = (1).to_bytes(4, "big") + b"\0\1t" + count.to_bytes(4, "big")
        body += bytes(4 + 2 + 8 + 8 * (version >= 2)) * count
        body += throttle_ms.to_bytes(4, "big") * (version >= 1)
        return resized(bytes(4) + (1).to_bytes(4, "big") + body)
    rows: list[dict[str, object]] = []
    for index in range(count):
        row: dict[str, object] = {
            "index": index,
            "error_code": ErrorCode(0 if index % 10 else 3),
            "base_offset": 3,
            "log_append_time": None,
            "log_start_offset": 0,
        }
        if version >= 8:
            row |= {"record_errors": (), "error_message": None if index % 10 else "no such topic"}
        if version >= 10:
            answer_type = payload_type(PRODUCE, version, "response")
            row["current_leader"] = part_type(answer_type, "LeaderIdAndEpoch")()
        if version < 5:
            del row["log_start_offset"]
        rows.append(row)
    responses = parts(PRODUCE, version, "response", "PartitionProduceResponse", *rows)
    topic = parts(
        PRODUCE, version, "response", "TopicProduceResponse", {"partition_responses": responses}
    )
    fields: dict[str, object] = {"responses": topic}
    if version >= 10:
        named = [(1, "broker-1", 9092)] if endpoints else []
        fields["node_endpoints"] = node_endpoints(PRODUCE, version, named)
    return answer(PRODUCE, version, throttle_ms=throttle_ms, **fields)


def chunks(frame: bytes) -> list[bytes]:
    return [frame[at : at + CHUNK_BYTES] for at in range(0, len(frame), CHUNK_BYTES)]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_goes_on_while_it_arrives_with_the_longer_throttle_at_its_end(version: int) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1)))
    stage.client(produce(version))
    frame = large_answer(version)
    assert len(frame) > BUFFERED_FETCH_BYTES_MAX

    for number, chunk in enumerate(chunks(frame)[:-1], 1):
        stage.broker(chunk)
        assert len(stage.to_client) >= number * CHUNK_BYTES - 100
    assert stage.cluster.rows == []
    stage.broker(chunks(frame)[-1])

    (row,) = stage.cluster.rows
    assert row.upstream_ms == (7 if version else 0)
    assert row.throttle_ms > 7
    told = stage.to_client
    if version >= 3:
        assert throttle_of(told, PRODUCE, version) == row.throttle_ms
        assert decoded(told, PRODUCE, version).responses == (
            decoded(frame, PRODUCE, version).responses
        )
    elif version:
        assert told[:-4] == frame[:-4]
        assert int.from_bytes(told[-4:], "big") == row.throttle_ms
    else:
        assert told == frame


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_throttle_it_is_not_changed_and_others_behind_it_follow(version: int) -> None:
    stage = Stage()
    stage.client(produce(version) + request(HEARTBEAT, 4, correlation=2))
    both = large_answer(version) + answer(HEARTBEAT, 4, correlation=2)

    stage.broker(*chunks(both))

    assert stage.to_client == both


@pytest.mark.parametrize("version", [10, 13])
def test_its_endpoints_are_blanked(version: int) -> None:
    stage = Stage()
    stage.client(produce(version))
    frame = large_answer(version, endpoints=True)

    stage.broker(*chunks(frame))

    assert b"broker-1" in frame
    assert b"broker-1" not in stage.to_client
    assert len(stage.to_client) == len(frame)
    differs_at = next(at for at, byte in enumerate(frame) if stage.to_client[at] != byte)
    assert differs_at > len(frame) - 60  # behind all partitions and the throttle time


def test_one_that_breaks_off_is_recorded_as_unanswered() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1)))
    stage.client(produce(11))

    stage.broker(large_answer(11)[:-3])
    stage.end()

    assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER]


def test_one_that_is_none_is_refused_where_that_is_seen() -> None:
    stage = Stage()
    stage.client(produce(11))
    frame = bytearray(large_answer(11))
    frame[20_000:] = b"\xff" * (len(frame) - 20_000)

    with pytest.raises(ProtocolError):
        stage.broker(*chunks(bytes(frame)))

    stage.end()
    assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER]


def test_others_have_their_turn_while_many_partitions_are_walked_over() -> None:
    stage = Stage()
    stage.client(produce(11))
    frame = large_answer(11)

    stage.broker(frame[:256_000])
    assert stage.breaths >= 2
    stage.broker(frame[256_000:])

    assert stage.to_client == frame
