"""Producers that write to a partition for the first time when a broker that was killed comes back, without anything that plays a broker.

While a broker becomes the leader of its partitions it answers batches with error 6, and takes the next one, whatever its sequence. The more partitions
it has, the longer that takes.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from tests.endurance.topic_log import all_of, read_log

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

_TOPIC, _WARM_UP = "begun", "warm-up"
_AT_MOST_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """How often a broker is killed, and who begins meanwhile.

    Attributes:
        partitions: of the topic; each producer writes to one of them.
        producers: librdkafka's, new ones behind each kill.
        records: of each producer, a batch for each.
        in_flight: requests of a producer at a time.
        through_gateway: whether they write through a gateway, with a quota on producer ids that nobody reaches.
    """

    restarts: int
    in_flight: int
    through_gateway: bool
    partitions: int = 400
    producers: int = 20
    records: int = 10


def run_restarts(folder: Path, plan: Restarts) -> dict[str, int]:
    """What was reported as delivered, and of that what is not in the log."""
    delivered: set[str] = set()
    failed = 0

    def told(error: object, message: object) -> None:
        nonlocal failed
        if error is None:
            delivered.add(message.value().decode())  # type: ignore[attr-defined]
        else:
            failed += 1

    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(host="127.0.0.2"))
        kafka.create_topic(_TOPIC, partitions=plan.partitions)
        kafka.create_topic(_WARM_UP)
        servers = kafka.bootstrap_servers
        if plan.through_gateway:
            servers = stack.enter_context(_gateway(kafka, folder)).bootstrap_servers
        for restart in range(plan.restarts):
            producers = [_producer(servers, plan.in_flight) for _ in range(plan.producers)]
            for producer in producers:
                producer.produce(_WARM_UP, b"")
            assert sum(producer.flush(_AT_MOST_S) for producer in producers) == 0
            kafka.kill(1)
            for number, producer in enumerate(producers):
                partition = number * (plan.partitions // plan.producers)
                for record in range(plan.records):
                    value = f"{restart}.{number}-{record}".encode()
                    producer.produce(_TOPIC, value, partition=partition, on_delivery=told)
            kafka.start_node(1)
            assert sum(producer.flush(_AT_MOST_S) for producer in producers) == 0
        log = Counter(all_of(read_log(kafka.bootstrap_servers, _TOPIC, plan.partitions)))
    return {
        "delivered": len(delivered),
        "failed": failed,
        "in_the_log": sum(log.values()),
        "twice": sum(count > 1 for count in log.values()),
        "lost": len(delivered - log.keys()),
    }


def _gateway(kafka: LocalKafka, folder: Path) -> GatewayProcess:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers, node_ids="0-1", enforce={"PRODUCER_ID": True}
    )
    quotas = "[[quota]]\nuser_default = true\nproducer_ids_rate = 100000\n"
    return GatewayProcess(folder, config=config, quotas=quotas)


def _producer(servers: str, in_flight: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "max.in.flight": in_flight,
            "batch.num.messages": 1,
            "linger.ms": 0,
            # They are there when the broker is.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
