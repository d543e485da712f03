"""Idempotent producers that begin all at once, each in a partition of its own, and tell of each record what became of it.

    python beginning.py LIBRARY BOOTSTRAP TOPIC PRODUCERS RECORDS IN_FLIGHT PATIENCE_S

LIBRARY is ``librdkafka``, ``kafka-python`` or ``aiokafka`` (which has one batch of a partition in flight, whatever IN_FLIGHT says). There is a record in
each batch; a value is ``PRODUCER-NUMBER``, and the producer is the partition's number. Lines on standard output: "delivered VALUE", "failed VALUE ERROR";
nothing of a record of which the client says nothing.
"""

import asyncio
import logging
import sys
import threading
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

# Behind a client's own time-out it may need this to say so.
_LONGER_S = 10.0
_REQUEST_S = 5


class Job(NamedTuple):
    """What each producer has to do."""

    bootstrap: str
    topic: str
    records: int
    in_flight: int
    patience_s: int


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def librdkafka(job: Job, partition: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "max.in.flight": job.in_flight,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "message.timeout.ms": job.patience_s * 1000,
            "log_level": 0,
        }
    )

    def on_delivery(error: object, message: object) -> None:
        value = message.value().decode()  # type: ignore[attr-defined]
        name = "" if error is None else error.name()  # type: ignore[attr-defined]
        say(f"failed {value} {name}" if name else f"delivered {value}")

    for number in range(job.records):
        value = f"{partition}-{number}".encode()
        producer.produce(job.topic, value, partition=partition, on_delivery=on_delivery)
    producer.flush(job.patience_s + _LONGER_S)


def kafka_python(job: Job, partition: int) -> None:
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        max_in_flight_requests_per_connection=job.in_flight,
        batch_size=0,
        linger_ms=0,
        request_timeout_ms=_REQUEST_S * 1000,
        delivery_timeout_ms=job.patience_s * 1000,
    )
    futures = [
        producer.send(job.topic, f"{partition}-{number}".encode(), partition=partition)
        for number in range(job.records)
    ]
    producer.flush(job.patience_s + _LONGER_S)
    for number, future in enumerate(futures):
        if future.is_done:
            error = type(future.exception).__name__
            say(
                f"failed {partition}-{number} {error}"
                if future.failed()
                else f"delivered {partition}-{number}"
            )
    producer.close(timeout=5)


async def _aiokafka(job: Job, partition: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        max_batch_size=100,
        request_timeout_ms=job.patience_s * 1000,
    )
    await producer.start()
    futures = [
        await producer.send(job.topic, f"{partition}-{number}".encode(), partition=partition)
        for number in range(job.records)
    ]
    await asyncio.wait(futures, timeout=job.patience_s + _LONGER_S)
    for number, future in enumerate(futures):
        if future.done():
            error = future.exception()
            value = f"{partition}-{number}"
            say(f"failed {value} {type(error).__name__}" if error else f"delivered {value}")
    await producer.stop()


def aiokafka(job: Job, partition: int) -> None:
    asyncio.run(_aiokafka(job, partition))


LIBRARIES = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    library, bootstrap, topic, *numbers = sys.argv[1:]
    logging.basicConfig(level=logging.CRITICAL)
    producers, records, in_flight, patience_s = map(int, numbers)
    job = Job(bootstrap, topic, records, in_flight, patience_s)
    threads = [
        threading.Thread(target=LIBRARIES[library], args=(job, partition))
        for partition in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
