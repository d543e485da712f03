"""What Spark is told of a topic of events: how far it goes, what is in it, and what is gone. Asked as Spark asks."""

import asyncio
import random

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.integration.topic_events import forget, recorded

from kvota.localkafka import LocalKafka
from kvota.model.errors import NegativeError
from kvota.pipeline.ingest.topic_source import TopicReader
from kvota.record.event_block import read_block

ALL = ReadAllAvailable()
Offsets = dict[str, int]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name[:200]


def reader_of(kafka: LocalKafka, topic: str) -> TopicReader:
    servers = kafka.bootstrap_servers
    return TopicReader({"topic": topic, "servers": servers, "checkpoint": "/the/checkpoint"})


def pieces(reader: TopicReader, start: Offsets, end: Offsets) -> list[dict[str, object]]:
    return [
        piece
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for piece in batch.to_pylist()
    ]


def test_blocks_come_in_their_order_as_many_at_once_as_asked_for(
    kafka: LocalKafka, topic: str
) -> None:
    kafka.create_topic(topic, partitions=2)
    recorded(kafka, topic, rows=5_000)
    reader = reader_of(kafka, topic)
    start = reader.initialOffset()
    assert start == {"0": 0, "1": 0}

    end = reader.latestOffset(start, ReadMaxRows(6))
    assert sorted(end.values()) == [0, 3], "three of each partition"
    last = reader.latestOffset(end, ReadMaxRows(6))
    assert sorted(last.values()) == [0, 5]
    assert reader.latestOffset(last, ALL) == last
    assert reader.partitions(last, last) == []

    first, second = pieces(reader, start, end), pieces(reader, end, last)
    assert [piece["offset"] for piece in first + second] == [0, 1, 2, 3, 4]
    assert pieces(reader, start, end) == first, "begun again it is the same"
    rows = [seq for piece in first + second for seq in read_block(piece["value"])["seq"].to_pylist()]  # type: ignore[arg-type]  # fmt: skip
    assert rows == list(range(5_000))


def test_what_comes_after_it_began_is_left_where_it_shall_end(
    kafka: LocalKafka, topic: str
) -> None:
    kafka.create_topic(topic, partitions=1)
    recorded(kafka, topic, rows=1_000)
    reader = reader_of(kafka, topic)
    reader.prepareForTriggerAvailableNow()
    recorded(kafka, topic, rows=2_000)

    end = reader.latestOffset({"0": 0}, ALL)

    assert end == {"0": 1}
    assert reader.latestOffset(end, ALL) == end
    assert reader_of(kafka, topic).latestOffset({"0": 0}, ALL) == {"0": 3}


def test_what_is_no_record_of_ours_is_named_by_its_place(kafka: LocalKafka, topic: str) -> None:
    kafka.create_topic(topic, partitions=1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "gzip", "linger.ms": 0}
    )
    producer.produce(topic, random.Random(1).randbytes(20) * 50)
    assert producer.flush(60) == 0
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    plain.produce(topic, None, key=b"k")
    assert plain.flush(60) == 0
    recorded(kafka, topic, rows=10)
    reader = reader_of(kafka, topic)

    found = pieces(reader, {"0": 0}, reader.latestOffset({"0": 0}, ALL))

    assert [(piece["source"], piece["offset"], piece["fault"]) for piece in found] == [
        (f"{topic}/0", 0, "a compressed batch"),
        (f"{topic}/0", 1, "a record without a value"),
        (f"{topic}/0", 2, None),
    ]


def test_blocks_that_are_gone_before_they_were_read_are_named(
    kafka: LocalKafka, topic: str
) -> None:
    kafka.create_topic(topic, partitions=1)
    recorded(kafka, topic, rows=5_000)
    reader = reader_of(kafka, topic)
    end = reader.latestOffset({"0": 1}, ALL)
    (planned,) = reader.partitions({"0": 1}, end)
    asyncio.run(forget(kafka, topic, 4))
    words = (
        f"topic {topic}, partition 0: the blocks from offset 1 to 3 are gone, deleted .* remove the checkpoint "
        r"\(/the/checkpoint\)"
    )

    for ask in (
        lambda: reader.latestOffset({"0": 1}, ALL),
        lambda: reader.partitions({"0": 1}, end),
        lambda: list(reader.read(planned)),
    ):
        with pytest.raises(NegativeError, match=words):
            ask()
    assert len(pieces(reader, {"0": 4}, end)) == 1
    assert reader.initialOffset() == {"0": 4}


def test_another_topic_of_this_name_and_none_are_told(kafka: LocalKafka, topic: str) -> None:
    with pytest.raises(NegativeError, match=f"there is no topic {topic}"):
        reader_of(kafka, topic).initialOffset()
    kafka.create_topic(topic, partitions=1)
    recorded(kafka, topic, rows=1_000)

    with pytest.raises(NegativeError, match="ends at offset 1, and 7 was reached before"):
        reader_of(kafka, topic).latestOffset({"0": 7}, ALL)
