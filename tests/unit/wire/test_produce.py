"""acks and the throttle time of Produce, against kio's encoding."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    body_offset,
    part_type,
    payload_type,
    throttle,
    to_frame,
)
from kvota.wire import produce

SEEDS = st.integers(0, 2**32)
ACKS = st.sampled_from((-1, 0, 1))
TRANSACTIONAL_IDS = st.sampled_from((None, "", "t", "a-transaction", "x" * 200))
VERSIONS = st.integers(3, 13)


def request(version: int, seed: int, acks: int, transactional_id: str | None) -> tuple[bytes, int]:
    messages = RandomMessages(Random(seed))
    frame = messages.frame(0, version, "request", acks=acks, transactional_id=transactional_id)
    return frame, body_offset(frame, 0, version, "request")


@given(version=VERSIONS, seed=SEEDS, acks=ACKS, transactional_id=TRANSACTIONAL_IDS)
@settings(deadline=None)
def test_acks_are_those_kio_wrote(
    version: int, seed: int, acks: int, transactional_id: str | None
) -> None:
    frame, at = request(version, seed, acks, transactional_id)

    assert produce.acks(frame, at, version, len(frame)) == acks


@given(version=VERSIONS, seed=SEEDS, acks=ACKS, transactional_id=TRANSACTIONAL_IDS, data=st.data())
@settings(deadline=None)
def test_a_request_that_is_not_all_here_gives_its_acks_or_asks_for_more(
    version: int, seed: int, acks: int, transactional_id: str | None, data: st.DataObject
) -> None:
    frame, at = request(version, seed, acks, transactional_id)
    here_bytes = data.draw(st.integers(at, len(frame)))
    id_bytes = len(transactional_id or "")
    acks_end = at + (2 if version < 9 else 1 + (id_bytes > 126)) + id_bytes + 2

    found = produce.acks(frame[:here_bytes], at, version, len(frame))

    assert found == (acks if here_bytes >= acks_end else None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_transactions_acks_came_first(version: int) -> None:
    assert produce.acks(b"head\xff\xff\0\0\0\x01", 4, version) == -1


@pytest.mark.parametrize(("version", "body"), [(2, b"\0"), (8, b"\x7f\xff"), (9, b"\x81\x7f")])
def test_a_request_that_ends_before_its_acks_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(ProtocolError, match="ends before its acks"):
        produce.acks(body, 0, version, len(body))


@given(version=VERSIONS, seed=SEEDS, throttle_ms=st.sampled_from((0, 1, 256, 77, 2**31 - 1)))
@settings(deadline=None, max_examples=400)
def test_the_throttle_time_is_found_in_any_answer(
    version: int, seed: int, throttle_ms: int
) -> None:
    messages = RandomMessages(Random(seed))
    frame = messages.frame(0, version, "response", throttle_time=throttle(throttle_ms))
    other = RandomMessages(Random(seed)).frame(
        0, version, "response", throttle_time=throttle(throttle_ms ^ 1)
    )

    at = produce.throttle_offset(frame, version)

    assert frame[at : at + 4] == throttle_ms.to_bytes(4, "big")
    assert other == frame[:at] + (throttle_ms ^ 1).to_bytes(4, "big") + frame[at + 4 :]


@pytest.mark.parametrize("version", range(9, 14))
def test_an_answer_without_errors_needs_no_walk(version: int) -> None:
    frame = plain_answer(version)

    assert frame.endswith(produce.PLAIN_TAIL)
    # The middle is unreadable, so only the tail can have been read.
    damaged = frame[:9] + b"\xff" * (len(frame) - 18) + frame[-9:]
    assert produce.throttle_offset(damaged, version) == len(frame) - 5


def plain_answer(version: int) -> bytes:
    answer = payload_type(0, version, "response")
    messages = RandomMessages(Random(version))
    partition = messages.entity(
        part_type(answer, "PartitionProduceResponse"),
        record_errors=(),
        error_message=None,
        **({"current_leader": default_leader(answer)} if version >= 10 else {}),
    )
    topic = messages.entity(
        part_type(answer, "TopicProduceResponse"), partition_responses=(partition,)
    )
    return to_frame(answer(responses=(topic,), throttle_time=throttle(0)))


def default_leader(answer: object) -> object:
    return part_type(answer, "LeaderIdAndEpoch")()


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (0, b"\0\0\0\x0c" + bytes(12)),
        (1, b"\0\0\0\x08" + bytes(8)),
        (9, b"\0\0\0\x05\0\0\0\x01\0"),
        (9, b"\0\0\0\x0b\0\0\0\x01\0\xff\xff\xff\xff\x0f\0"),
    ],
)
def test_an_answer_without_room_for_a_throttle_time_is_refused(version: int, frame: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"Produce v{version} answer"):
        produce.throttle_offset(frame, version)


def test_an_answer_with_bytes_behind_its_end_is_refused() -> None:
    frame = bytearray(plain_answer(9) + b"\x07")
    frame[3] += 1

    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        produce.throttle_offset(bytes(frame), 9)
