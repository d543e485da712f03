"""Crowds of producers, one for each client library, through a gateway that counts by ``token_bucket``."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.java.find import java_command
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

HERE = Path(__file__).parent
LIBRARIES = ("java", "librdkafka", "aiokafka", "kafka-python")


@dataclass(frozen=True)
class Crowd:
    """Some producers of one library."""

    library: str
    idempotent: bool

    @property
    def name(self) -> str:
        """Topic and client id."""
        return f"{self.library}-{'idempotent' if self.idempotent else 'plain'}"


CROWDS = [Crowd(library, idempotent) for library in LIBRARIES for idempotent in (True, False)]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What each crowd sends: each of its producers offers the whole limit by itself.

    Attributes:
        limit: of each crowd, in bytes per second.
        seconds: for how long they offer it.
        end_s: when each record must have been delivered or reported as failed.
    """

    limit: int = 5_000
    producers: int = 10
    record_bytes: int = 1_000
    seconds: int
    end_s: float

    @property
    def records(self) -> int:
        """Of each producer."""
        return self.seconds * self.limit // self.record_bytes

    @property
    def keys(self) -> set[str]:
        """Of all records of a crowd."""
        return {
            f"{one}-{number}" for one in range(self.producers) for number in range(self.records)
        }


@dataclass
class Seen:
    """What became of the records of one crowd.

    Attributes:
        delivered: keys that the client reported as delivered.
        failed: the error that it reported, by key.
        log: keys, as the broker has them.
    """

    delivered: list[str]
    failed: dict[str, str]
    log: list[str]


@dataclass
class Run:
    """All crowds, and the gateway's word on them."""

    seen: dict[Crowd, Seen]
    log: str
    record: Path


def run_crowds(kafka: LocalKafka, folder: Path, offer: Offer) -> Run:
    """All crowds at once, each under a limit of its own; what clients say stays in the folder."""
    gateway = GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-2",
            enforce={"PRODUCE": True},
            buckets={QuotaType.PRODUCE: BucketSettings()},
            record="record",
        ),
        quotas=f"[[quota]]\nclient_id_default = true\nproducer_byte_rate = {offer.limit}\n",
    )
    for crowd in CROWDS:
        kafka.create_topic(crowd.name)
    with gateway:
        said = _run_all(folder, gateway.bootstrap_servers, offer)
    seen = {}
    for crowd, lines in said.items():
        words = [line.split() for line in lines]
        seen[crowd] = Seen(
            delivered=[word[1] for word in words if word[0] == "delivered"],
            failed={word[1]: word[2] for word in words if word[0] == "failed"},
            log=_read_log(kafka.bootstrap_servers, crowd.name),
        )
    return Run(seen, gateway.log, folder / "record")


def _command(crowd: Crowd, bootstrap_servers: str, offer: Offer) -> list[str]:
    arguments = [bootstrap_servers, crowd.name, crowd.name]
    pause_s = offer.seconds / offer.records
    plan = (offer.producers, offer.records, pause_s, offer.record_bytes)
    arguments += [*map(str, plan), str(crowd.idempotent).lower()]
    if crowd.library != "java":
        return [sys.executable, str(HERE / "producers.py"), crowd.library, *arguments]
    classes = compile_java([HERE / "ManyProducers.java"], classpath=kafka_classpath())
    class_path = f"{classes}:{kafka_classpath()}"
    return [str(java_command()), "-Xmx256m", "-cp", class_path, "ManyProducers", *arguments]


def _run_all(folder: Path, bootstrap_servers: str, offer: Offer) -> dict[Crowd, list[str]]:
    running = {}
    for crowd in CROWDS:
        out, err = folder / f"{crowd.name}.out", folder / f"{crowd.name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            command = _command(crowd, bootstrap_servers, offer)
            running[crowd] = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    end = time.monotonic() + offer.end_s
    try:
        for crowd, process in running.items():
            left_s = max(1.0, end - time.monotonic())
            assert process.wait(left_s) == 0, (folder / f"{crowd.name}.err").read_text()[-2_000:]
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return {crowd: (folder / f"{crowd.name}.out").read_text().splitlines() for crowd in CROWDS}


def _read_log(bootstrap_servers: str, topic: str) -> list[str]:
    """All keys of the topic, asked of the broker itself."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=60)
    consumer.assign([partition])
    keys: list[str] = []
    deadline = time.monotonic() + 60
    # Idempotent producers' batches leave no gaps in the offsets, so there are as many as offsets.
    while len(keys) < end and time.monotonic() < deadline:
        messages = [one for one in consumer.consume(1_000, 1.0) if not one.error()]
        keys += [message.key().decode() for message in messages]
    consumer.close()
    return keys
