"""Producers that crash-loop, until standard input ends: each has a new producer id, sends some records and is gone.

    python storming.py LIBRARY BOOTSTRAP USER SECRET TOPIC PARTITIONS SLOTS RECORDS

LIBRARY is ``librdkafka``, ``kafka-python`` or ``aiokafka``. In each slot one idempotent producer follows the other, five requests
in flight, a record in each; a value is ``PRODUCER-NUMBER``. Lines on standard output: "began" when a producer has had its first record
acknowledged; of each producer that is through "failed VALUE ERROR" for some records and "sent PRODUCER COUNT TOLD", where TOLD is of
how many records the client has said what became of them.
"""

import asyncio
import logging
import sys
import threading
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

# Longer than any wait for a token, and a broker's start.
PATIENCE_S = 240
_ENDED = threading.Event()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Job(NamedTuple):
    """What each producer has to do."""

    bootstrap: str
    user: str
    secret: str
    topic: str
    partitions: int
    records: int

    def value(self, producer: str, number: int) -> bytes:
        return f"{producer}-{number}".encode()


def librdkafka(job: Job, name: str) -> dict[int, str]:
    """Send all records; returns what the client has said of each, an empty text for a delivered one."""
    told: dict[int, str] = {}
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": job.user,
            "sasl.password": job.secret,
            "enable.idempotence": True,
            "max.in.flight": 5,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "message.timeout.ms": PATIENCE_S * 1000,
            "log_level": 0,
        }
    )
    for number in range(job.records):

        def on_delivery(error: object, _message: object, number: int = number) -> None:
            told[number] = "" if error is None else str(error.name())  # type: ignore[attr-defined]

        value = job.value(name, number)
        partition = number % job.partitions
        producer.produce(job.topic, value, partition=partition, on_delivery=on_delivery)
    producer.flush(PATIENCE_S + 30)
    return told


def _login(job: Job) -> dict[str, str]:
    """As kafka-python and aiokafka have it."""
    return {
        "bootstrap_servers": job.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": job.user,
        "sasl_plain_password": job.secret,
    }


def kafka_python(job: Job, name: str) -> dict[int, str]:
    """The same."""
    producer = KafkaProducer(
        **_login(job),
        enable_idempotence=True,
        batch_size=0,
        linger_ms=0,
        delivery_timeout_ms=PATIENCE_S * 1000,
        max_block_ms=PATIENCE_S * 1000,
    )
    futures = {
        number: producer.send(job.topic, job.value(name, number), partition=number % job.partitions)
        for number in range(job.records)
    }
    told: dict[int, str] = {}
    for number, future in futures.items():
        try:
            future.get(PATIENCE_S + 30)
            told[number] = ""
        except KafkaError as error:
            if future.is_done:
                told[number] = type(error).__name__
    producer.close(timeout=5)
    return told


async def _aiokafka(job: Job, name: str) -> dict[int, str]:
    producer = AIOKafkaProducer(
        **_login(job),
        enable_idempotence=True,
        max_batch_size=100,
        request_timeout_ms=PATIENCE_S * 1000,
    )
    told: dict[int, str] = {}
    await producer.start()
    try:
        futures = {
            number: await producer.send(
                job.topic, job.value(name, number), partition=number % job.partitions
            )
            for number in range(job.records)
        }
        for number, future in futures.items():
            try:
                await future
                told[number] = ""
            except Exception as error:  # noqa: BLE001 - whatever it says, it has said it
                told[number] = type(error).__name__
    finally:
        await producer.stop()
    return told


def aiokafka(job: Job, name: str) -> dict[int, str]:
    """The same."""
    return asyncio.run(_aiokafka(job, name))


LIBRARIES = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    library, bootstrap, user, secret, topic, partitions, slots, records = sys.argv[1:]
    logging.basicConfig(level=logging.CRITICAL)
    job = Job(bootstrap, user, secret, topic, int(partitions), int(records))
    run = LIBRARIES[library]

    def loop(slot: int) -> None:
        made = 0
        while not _ENDED.is_set():
            name = f"{slot}.{made}"
            made += 1
            try:
                told = run(job, name)
            except (
                KafkaError,
                AioKafkaError,
                OSError,
            ) as error:  # it has not begun: its cluster is away
                say(f"restart {name} {type(error).__name__}")
                _ENDED.wait(1)
                continue
            if "" in told.values():
                say("began")
            for number, error in told.items():
                if error:
                    say(f"failed {name}-{number} {error}")
            say(f"sent {name} {job.records} {len(told)}")

    threads = [threading.Thread(target=loop, args=(slot,)) for slot in range(int(slots))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    _ENDED.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
