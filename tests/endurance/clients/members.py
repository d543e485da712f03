"""Members of one consumer group that say what they get, until their standard input ends.

    python members.py LIBRARY PROTOCOL BOOTSTRAP TOPIC GROUP MEMBERS

LIBRARY is librdkafka, kafka-python or aiokafka; PROTOCOL of the group is classic, cooperative or consumer (KIP-848), the
last two of librdkafka alone. All else is as it is by default; offsets are committed as the library does it by itself. Lines on standard
output: "got VALUE" for each record, "error NAME" for what is said in the place of one (librdkafka), "began" when each member has had a
record.
"""

import asyncio
import sys
import threading
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer
from kafka import KafkaConsumer

COMMITS_MAX = 100
ended = threading.Event()
lock = threading.Lock()
have_begun: set[int] = set()
Say = Callable[[int, str], None]


def librdkafka(
    protocol: str, bootstrap: str, topic: str, group: str, number: int, say: Say
) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "client.id": group,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "group.protocol": "consumer" if protocol == "consumer" else "classic",
        "log_level": 0,
    }
    if protocol == "cooperative":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not ended.is_set():
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                say(number, message.value().decode())
            else:
                with lock:
                    sys.stdout.write(f"error {message.error().name()}\n")
    consumer.close()


def kafka_python(_: str, bootstrap: str, topic: str, group: str, number: int, say: Say) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=group,
        group_id=group,
        auto_offset_reset="earliest",
    )
    while not ended.is_set():
        for records in consumer.poll(100).values():
            for record in records:
                say(number, record.value.decode())
    consumer.close()


def aiokafka(_: str, bootstrap: str, topic: str, group: str, number: int, say: Say) -> None:
    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            client_id=group,
            group_id=group,
            auto_offset_reset="earliest",
        )
        async with consumer:
            while not ended.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        say(number, record.value.decode())
            await commit(consumer)

    async def commit(consumer: AIOKafkaConsumer) -> None:
        """Closed while it looks for its coordinator it would never end; once it has committed it knows it."""
        for _ in range(COMMITS_MAX):
            try:
                await consumer.commit()
            except KafkaError:
                await asyncio.sleep(0.2)
            else:
                break

    asyncio.run(consume())


LIBRARIES = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    library, protocol, bootstrap, topic, group, count = sys.argv[1:]

    def say(number: int, value: str) -> None:
        with lock:
            have_begun.add(number)
            began = "began\n" if len(have_begun) == int(count) else ""
            sys.stdout.write(f"{began}got {value}\n")
            sys.stdout.flush()

    threads = [
        threading.Thread(
            target=LIBRARIES[library],
            args=(protocol, bootstrap, topic, group, number, say),
            daemon=True,
        )
        for number in range(int(count))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
