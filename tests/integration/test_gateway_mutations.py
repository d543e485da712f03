"""Topic mutations through the gateway, held beside a real broker with the same quota (KIP-599)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.testing.frames import (
    CREATE_TOPICS,
    FETCH,
    METADATA,
    decoded,
    parts,
    request,
)
from kvota.testing.kafka_messages import from_frame, throttle

# The design's example: 5 partitions/s, 100 x 1 s, so 500 at once; seven topics of 80 partitions.
RATE, SAMPLES, PARTITIONS = 5, 100, 80
# 60 tokens too many at 5 a second.
DEBT_MS = 12_000
GATED, DIRECT = "gated", "direct"
QUOTAS = f"""
[[quota]]
client_id = "{GATED}-strict"
controller_mutation_rate = {RATE}
[[quota]]
client_id = "{GATED}-permissive"
controller_mutation_rate = {RATE}
[[quota]]
client_id = "{GATED}-empty"
controller_mutation_rate = 0.01
[[quota]]
client_id = "{GATED}-slow"
controller_mutation_rate = 0.01
"""
NONE, EXISTS, REFUSED = 0, 36, 89


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """A node with the design's window, and the same quotas for clients that come directly."""
    properties = {
        "controller.quota.window.num": str(SAMPLES),
        "controller.quota.window.size.seconds": "1",
        "log.index.size.max.bytes": "4096",  # 560 partitions are many files
    }
    local = LocalKafka(host="127.0.0.2", properties=properties, java_options=SHORT_LIVED)
    local.start()
    for mode in ("strict", "permissive"):
        _limit_on_the_broker(local, f"{DIRECT}-{mode}")
    # A broker follows its controller, step by step: who knows these has what came before them in force.
    local.create_topic("existing", partitions=3)
    local.create_topic("slow", partitions=1)
    yield local
    local.stop(keep_logs=request.session.testsfailed > 0)


def _limit_on_the_broker(kafka: LocalKafka, client_id: str) -> None:
    entity = parts(49, 1, "request", "EntityData", {"entity_type": "client-id", "entity_name": client_id})  # fmt: skip
    op = parts(49, 1, "request", "OpData", {"key": "controller_mutation_rate", "value": float(RATE), "remove": False})  # fmt: skip
    entries = parts(49, 1, "request", "EntryData", {"entity": entity, "ops": op})
    with RawClient(kafka.nodes[0].address) as client:
        told = client.ask(request(49, 1, entries=entries, validate_only=False))
    assert told.entries[0].error_code == NONE


@pytest.fixture(scope="module")
def gateway(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedGateway]:
    window = {"controller.quota.window.num": SAMPLES, "controller.quota.window.size.seconds": 1}
    with tapped_gateway(
        tmp_path_factory.mktemp("mutations"), kafka, quotas=QUOTAS, kafka_properties=window
    ) as tapped:
        yield tapped


@dataclass(frozen=True)
class Told:
    """An answer, and how long it took."""

    errors: dict[str, int]
    throttle_ms: int
    took_ms: float
    messages: set[str | None]


def create(
    address: tuple[str, int], client_id: str, names: list[str], version: int, count: int = PARTITIONS
) -> Told:  # fmt: skip
    rows = (
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in names
    )  # fmt: skip
    topics = parts(CREATE_TOPICS, version, "request", "CreatableTopic", *rows)
    asked = request(
        CREATE_TOPICS, version, client=client_id, topics=topics, validate_only=False,
        timeout=throttle(60_000),
    )  # fmt: skip
    with RawClient(address) as client:
        started_s = time.perf_counter()
        told = client.ask(asked)
        took_ms = (time.perf_counter() - started_s) * 1000
    refused = (topic.error_message for topic in told.topics if topic.error_code == REFUSED)
    return Told(
        {topic.name: int(topic.error_code) for topic in told.topics},
        _throttle_ms(told),
        took_ms,
        set(refused),
    )


def _throttle_ms(told: Any) -> int:
    return round(told.throttle_time.total_seconds() * 1000)


def ask(
    address: tuple[str, int], who: str, mode: str, count: int, version: int, prefix: str
) -> Told:
    """Create so many topics, whose names end in their number."""
    names = [f"{who}-{prefix}-{number}" for number in range(count)]
    return create(address, f"{who}-{mode}", names, version)


def both(
    kafka: LocalKafka, gateway: TappedGateway, mode: str, count: int, version: int, prefix: str
) -> tuple[Told, Told]:
    """The same request to the broker itself and to the gateway."""
    told = [
        ask(address, who, mode, count, version, prefix)
        for who, address in ((DIRECT, kafka.nodes[0].address), (GATED, gateway.node(1)))
    ]
    return told[0], told[1]


def by_number(told: Told) -> list[tuple[str, int]]:
    return sorted((name.rpartition("-")[2], error) for name, error in told.errors.items())


@pytest.mark.timeout(300)
def test_the_worked_example_of_the_design_in_a_strict_version(
    kafka: LocalKafka, gateway: TappedGateway
) -> None:
    example = []
    for who, address in ((DIRECT, kafka.nodes[0].address), (GATED, gateway.node(1))):
        began_s = time.perf_counter()
        told = ask(address, who, "strict", 8, 7, "strict")
        following = ask(address, who, "strict", 1, 7, "strict-next")
        example.append((told, following, (time.perf_counter() - began_s) * 1000))
    (straight, *_), (gated, *_) = example

    assert by_number(gated) == by_number(straight)
    assert [error for _, error in by_number(gated)] == [NONE] * 7 + [REFUSED]
    assert abs(gated.throttle_ms - straight.throttle_ms) <= max(gated.took_ms, straight.took_ms)
    for told, following, took_ms in example:
        # Less what was spent until the answer.
        assert DEBT_MS - told.took_ms - 500 <= told.throttle_ms <= DEBT_MS
        assert told.messages == {None}
        # Where both together took as long as the debt, nobody knows what becomes of the second one.
        if took_ms < DEBT_MS - 500:
            assert by_number(following) == [("0", REFUSED)]
            assert 0 < following.throttle_ms < told.throttle_ms


@pytest.mark.timeout(300)
def test_the_worked_example_of_the_design_in_a_permissive_version(
    kafka: LocalKafka, gateway: TappedGateway
) -> None:
    straight, gated = both(kafka, gateway, "permissive", 7, 5, "permissive")

    assert by_number(gated) == by_number(straight)
    assert [error for _, error in by_number(gated)] == [NONE] * 7
    for told in (straight, gated):
        assert DEBT_MS - told.took_ms - 500 <= told.throttle_ms <= DEBT_MS
    assert abs(gated.throttle_ms - straight.throttle_ms) <= max(gated.took_ms, straight.took_ms)


def test_creating_what_exists_is_told_so_under_an_empty_bucket_and_not_charged(
    kafka: LocalKafka, gateway: TappedGateway
) -> None:
    empty = create(gateway.node(1), f"{GATED}-empty", ["filler-1"], 7, count=3)
    refused = create(gateway.node(1), f"{GATED}-empty", ["filler-2"], 7, count=3)

    told = create(gateway.node(1), f"{GATED}-empty", ["existing"], 7, count=3)
    mixed = create(gateway.node(1), f"{GATED}-empty", ["existing", "filler-2"], 7, count=3)

    assert empty.errors == {"filler-1": NONE}
    assert refused.errors == {"filler-2": REFUSED}
    assert (told.errors, told.throttle_ms) == ({"existing": EXISTS}, 0)
    assert mixed.errors == {"existing": EXISTS, "filler-2": REFUSED}
    assert mixed.throttle_ms > 100_000


def test_a_mutation_refused_behind_a_slow_fetch_is_answered_in_order(
    kafka: LocalKafka, gateway: TappedGateway
) -> None:
    create(gateway.node(1), f"{GATED}-slow", ["filler-3"], 7, count=3)
    row = {"name": "filler-4", "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}  # fmt: skip
    creation = request(
        CREATE_TOPICS, 7, client=f"{GATED}-slow", correlation=22, validate_only=False,
        topics=parts(CREATE_TOPICS, 7, "request", "CreatableTopic", row),
    )  # fmt: skip
    with RawClient(gateway.node(1)) as client:
        started_s = time.perf_counter()
        client.send(slow_fetch("slow", correlation=21) + creation + request(METADATA, 12, correlation=23, topics=()))  # fmt: skip
        fetched, refused = client.frame(), client.frame()
        took_s = time.perf_counter() - started_s

    assert [int.from_bytes(frame[4:8], "big") for frame in (fetched, refused)] == [21, 22]
    assert from_frame(fetched, FETCH, 11, "response").error_code == NONE
    told = decoded(refused, CREATE_TOPICS, 7)
    assert {topic.name: int(topic.error_code) for topic in told.topics} == {"filler-4": REFUSED}
    assert took_s >= 1.9, "the long poll was not waited for"


def slow_fetch(topic: str, correlation: int) -> bytes:
    """Waits two seconds for a byte that does not come."""
    entry = parts(
        FETCH, 11, "request", "FetchPartition",
        {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1000},
    )  # fmt: skip
    topics = parts(FETCH, 11, "request", "FetchTopic", {"topic": topic, "partitions": entry})
    return request(
        FETCH, 11, correlation=correlation, replica_id=-1, max_wait=throttle(2_000), min_bytes=1,
        max_bytes=1000, isolation_level=0, session_id=0, session_epoch=-1, topics=topics,
        forgotten_topics_data=(), rack_id="",
    )  # fmt: skip
