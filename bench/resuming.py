"""Producers of librdkafka or aiokafka, each of which says when it is served; ``bench volumes`` starts them.

    python resuming.py BOOTSTRAP TOPIC PRODUCERS librdkafka|aiokafka

Each sends a record of 1 KB every 50 ms, whatever has become of those before; all settings are as they are by default. Each line on standard
input is a mark. "served MARK PRODUCER" is said for the first record that a producer has acknowledged behind the MARKth one (0: the first of all).
It ends with its standard input.
"""

import asyncio
import logging
import os
import sys
import threading
import time

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

VALUE = bytes(1_000)
PAUSE_S = 0.05


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Marks:
    """How often it was marked, and who has been served since."""

    def __init__(self, producers: int) -> None:
        self.count = 0
        self._told = [-1] * producers

    def ended(self, number: int, error: object) -> None:
        """A record of this producer has come to its end."""
        if error is not None:
            say(f"failed {number} {error}")
        elif self._told[number] != self.count:
            self._told[number] = self.count
            say(f"served {self.count} {number}")

    def read(self) -> None:
        for _ in sys.stdin:
            self.count += 1
        os._exit(0)


def librdkafka(servers: str, topic: str, marks: Marks, count: int) -> None:
    settings = {"bootstrap.servers": servers, "client.id": "librdkafka", "log_level": 0}
    producers = [Producer(settings) for _ in range(count)]
    while True:
        for number, producer in enumerate(producers):
            producer.poll(0)
            producer.produce(
                topic, VALUE, on_delivery=lambda error, _, of=number: marks.ended(of, error)
            )
        end = time.monotonic() + PAUSE_S
        while time.monotonic() < end:
            for producer in producers:
                producer.poll(0)
            time.sleep(0.005)


async def aiokafka(servers: str, topic: str, marks: Marks, count: int) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def one(number: int) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, client_id="aiokafka")
        await producer.start()
        while True:
            sent = await producer.send(topic, VALUE)
            sent.add_done_callback(lambda done: marks.ended(number, done.exception()))
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(one(number) for number in range(count)))


def main() -> None:
    servers, topic, count, kind = sys.argv[1:]
    marks = Marks(int(count))
    threading.Thread(target=marks.read, daemon=True).start()
    if kind == "librdkafka":
        librdkafka(servers, topic, marks, int(count))
    else:
        asyncio.run(aiokafka(servers, topic, marks, int(count)))


if __name__ == "__main__":
    main()
