"""Topics made through one node and deleted at once through another: none of it is uncharged."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, parts, request
from kvota.testing.kafka_messages import milliseconds

QUOTAS = """
[[quota]]
user_default = true
controller_mutation_rate = 1000000
"""
ROUNDS, CLIENTS, NODES = 200, 4, 3
TIMEOUT = milliseconds(60_000)


def creation(name: str, partitions: int) -> bytes:
    row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}  # fmt: skip
    topics = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", row)
    return request(CREATE_TOPICS, 7, topics=topics, timeout=TIMEOUT, validate_only=False)


def growth(name: str, partitions: int) -> bytes:
    row = {"name": name, "count": partitions, "assignments": None}
    topics = parts(CREATE_PARTITIONS, 3, "request", "CreatePartitionsTopic", row)
    return request(CREATE_PARTITIONS, 3, topics=topics, timeout=TIMEOUT, validate_only=False)


def deletion(name: str) -> bytes:
    return request(DELETE_TOPICS, 5, topic_names=(name,), timeout=TIMEOUT)


def change_topics(gateway: TappedGateway, number: int) -> int:
    """Partitions that were created, added and deleted, by the brokers' own answers."""
    changed = 0
    nodes = [RawClient(gateway.node(node)) for node in range(1, NODES + 1)]
    for turn in range(ROUNDS // CLIENTS):
        # The same few names, so that a broker that lags knows a topic as it was before.
        name, size = f"moved-{number}-{turn % 3}", 1 + turn % 5
        first, second, third = (nodes[(turn + step) % NODES] for step in range(NODES))
        (made,) = first.ask(creation(name, size)).topics
        changed += size if made.error_code == 0 else 0
        if turn % 3 == 0:
            (grown,) = second.ask(growth(name, size + 2)).results
            changed += 2 if grown.error_code == 0 else 0
            size += 2
        (gone,) = third.ask(deletion(name)).responses
        changed += size if gone.error_code == 0 else 0
        assert (made.error_code, gone.error_code) == (0, 0), (made, gone)
    for node in nodes:
        node.socket.close()
    return changed


def test_what_is_charged_is_what_the_brokers_have_changed(
    kafka3: LocalKafka, tmp_path: Path
) -> None:
    with tapped_gateway(tmp_path, kafka3, quotas=QUOTAS) as gateway:
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.ask(request(3, 12, topics=()))  # the gateway learns the nodes
        with ThreadPoolExecutor(CLIENTS) as clients:
            changed = sum(
                clients.map(lambda number: change_topics(gateway, number), range(CLIENTS))
            )
        rows = gateway.recorded()

    assert sum(float(str(row["value"])) for row in rows) == changed
