"""Many producers of one library that together send more than their quota, all else as it is by default.

    python producers.py LIBRARY BOOTSTRAP TOPIC CLIENT_ID PRODUCERS RECORDS PAUSE_S BYTES IDEMPOTENT

Each producer sends RECORDS records with a pause in between. One line on standard output for each
record, "delivered KEY" or "failed KEY ERROR"; it ends when there is one for all of them.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer


def librdkafka(topic: str, settings: dict[str, object], plan: "Plan") -> None:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    producers = [Producer(own) for _ in range(plan.producers)]

    def told(error: object, message: object) -> None:
        plan.tell(message.key().decode(), error and error.name())  # type: ignore[attr-defined]

    for number in range(plan.records):
        for one, producer in enumerate(producers):
            producer.produce(topic, plan.value, key=f"{one}-{number}", on_delivery=told)
        plan.pause(lambda: [producer.poll(0) for producer in producers])
    while any(producer.flush(0.05) for producer in producers):
        pass


def kafka_python(topic: str, settings: dict[str, object], plan: "Plan") -> None:
    producers = [KafkaProducer(**settings) for _ in range(plan.producers)]
    for number in range(plan.records):
        for one, producer in enumerate(producers):
            key = f"{one}-{number}"
            sent = producer.send(topic, plan.value, key=key.encode())
            sent.add_callback(lambda _, key=key: plan.tell(key, None))
            sent.add_errback(lambda error, key=key: plan.tell(key, type(error).__name__))
        plan.pause(lambda: None)
    plan.all_told.wait()
    for producer in producers:
        producer.close(5)


def aiokafka(topic: str, settings: dict[str, object], plan: "Plan") -> None:
    async def send(producer: AIOKafkaProducer, key: str) -> None:
        try:
            await (await producer.send(topic, plan.value, key=key.encode()))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is reported)
            plan.tell(key, type(error).__name__)
        else:
            plan.tell(key, None)

    async def main() -> None:
        producers = [AIOKafkaProducer(**settings) for _ in range(plan.producers)]
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for producer in producers:
                await stack.enter_async_context(producer)
            for number in range(plan.records):
                for one, producer in enumerate(producers):
                    tasks.create_task(send(producer, f"{one}-{number}"))
                await asyncio.sleep(plan.pause_s)
            await asyncio.to_thread(plan.all_told.wait)

    asyncio.run(main())


class Plan:
    """What each producer sends, and what has become of it."""

    def __init__(self, producers: str, records: str, pause_s: str, size: str) -> None:
        self.producers = int(producers)
        self.records = int(records)
        self.pause_s = float(pause_s)
        self.value = bytes(int(size))
        self.all_told = threading.Event()
        self._left = self.producers * self.records
        self._lock = threading.Lock()

    def tell(self, key: str, error: object) -> None:
        with self._lock:
            sys.stdout.write(f"failed {key} {error}\n" if error else f"delivered {key}\n")
            sys.stdout.flush()
            self._left -= 1
            if not self._left:
                self.all_told.set()

    def pause(self, meanwhile) -> None:
        end = time.monotonic() + self.pause_s
        while time.monotonic() < end:
            meanwhile()
            time.sleep(0.01)


LIBRARIES = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    library, bootstrap, topic, client_id, *plan, idempotent = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    settings: dict[str, object] = {
        "bootstrap_servers": bootstrap,
        "client_id": client_id,
        "enable_idempotence": idempotent == "true",
    }
    LIBRARIES[library](topic, settings, Plan(*plan))


if __name__ == "__main__":
    main()
