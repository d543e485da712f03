"""An answer cut in any way is walked to the same place, and no address survives it."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.testing.kafka_messages import RandomMessages, part_type, payload_type, to_frame
from kvota.wire import fetch, produce
from kvota.wire.fetch_walker import FetchAnswerWalker
from kvota.wire.node_endpoints import blank_endpoints
from kvota.wire.produce_walker import ProduceAnswerWalker

SEEDS = st.integers(0, 2**32)
SECRET = "the-brokers-own-host.example"
PORT = 54_321


def answer_with(endpoints: int, seed: int, version: int) -> bytes:
    messages = RandomMessages(Random(seed))
    endpoint = part_type(payload_type(1, version, "response"), "NodeEndpoint")
    given_endpoints = tuple(
        messages.entity(endpoint, host=SECRET, port=PORT) for _ in range(endpoints)
    )
    return to_frame(messages.payload(1, version, "response", node_endpoints=given_endpoints))


def streamed(frame: bytes, version: int, cuts: list[int]) -> bytes:
    """Forward an answer as a gateway does that buffers nothing but the last tags."""
    walker = FetchAnswerWalker(version)
    sent, last_tags = bytearray(), bytearray()
    found = False
    for at, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        chunk = memoryview(frame)[at:stop]
        tags_at = 0 if found else walker.feed(chunk)
        found = tags_at >= 0
        sent += chunk if tags_at < 0 else chunk[:tags_at]
        last_tags += b"" if tags_at < 0 else chunk[tags_at:]
    return bytes(sent) + blank_endpoints(last_tags)


def cuts_of(frame: bytes, data: st.DataObject) -> list[int]:
    return sorted(data.draw(st.lists(st.integers(0, len(frame)), max_size=30)))


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(0, 3), data=st.data())
@settings(deadline=None, max_examples=300)
def test_any_cuts_give_the_same_bytes(
    version: int, seed: int, endpoints: int, data: st.DataObject
) -> None:
    frame = answer_with(endpoints, seed, version)

    whole = streamed(frame, version, [])
    in_pieces = streamed(frame, version, cuts_of(frame, data))

    assert in_pieces == whole


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_byte_by_byte_gives_the_same_bytes(version: int, seed: int, endpoints: int) -> None:
    frame = answer_with(endpoints, seed, version)

    assert streamed(frame, version, list(range(1, len(frame)))) == streamed(frame, version, [])


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(1, 3), data=st.data())
@settings(deadline=None, max_examples=100)
def test_no_address_survives_and_no_length_changes(
    version: int, seed: int, endpoints: int, data: st.DataObject
) -> None:
    frame = answer_with(endpoints, seed, version)
    tags_at = fetch.tags_offset(frame, version)

    forwarded = streamed(frame, version, cuts_of(frame, data))

    assert len(forwarded) == len(frame)
    assert forwarded[:tags_at] == frame[:tags_at]
    assert SECRET.encode() not in forwarded
    assert set(forwarded[tags_at + 5 :]) <= {0}


@given(
    version=st.integers(9, 13),
    seed=SEEDS,
    plain=st.lists(st.integers(0, 40), max_size=4),
    data=st.data(),
)
@settings(deadline=None, max_examples=300)
def test_any_cuts_of_a_produce_answer_lead_to_its_throttle_time(
    version: int, seed: int, plain: list[int], data: st.DataObject
) -> None:
    """Among random topics there are some with runs of partitions without errors."""
    messages = RandomMessages(Random(seed))
    payload = payload_type(0, version, "response")
    topic, partition = (
        part_type(payload, name) for name in ("TopicProduceResponse", "PartitionProduceResponse")
    )
    nothing: dict[str, object] = {"record_errors": (), "error_message": None}
    if version >= 10:
        nothing["current_leader"] = part_type(payload, "LeaderIdAndEpoch")()
    topics = [
        messages.entity(
            topic,
            partition_responses=tuple(
                messages.entity(partition, **(nothing if number % (run + 1) else {}))
                for number in range(2 * run)
            ),
        )
        for run in plain
    ]
    frame = to_frame(messages.payload(0, version, "response", responses=tuple(topics)))
    expected = produce.throttle_offset(frame[:-5] + b"\x01\0\0\0\0", version)

    walker, found = ProduceAnswerWalker(version), -1
    cuts = cuts_of(frame, data)
    for at, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        if found < 0:
            found = walker.feed(frame, at, stop)

    assert found == expected
