"""Idempotent producers of librdkafka that send numbers until their standard input ends.

    python producing.py BOOTSTRAP TOPIC PARTITIONS CLIENT_ID PRODUCERS RECORDS_PER_S

All settings but the client id are as they are by default, but for those that a file adds, which the variable
CLIENT_PROPERTIES of the environment names (``key=value`` a line). A value is ``PRODUCER-NUMBER``; numbers take turns on
the partitions. Lines on standard output: "began" when each producer has a record acknowledged; at the end, when
each record is acknowledged or has failed, "failed VALUE ERROR" for some and "sent PRODUCER COUNT TOLD" for each, where
TOLD is of how many records the client has said what became of them.
"""

import os
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

ROUND_S = 0.02


def added() -> dict[str, str]:
    path = os.environ.get("CLIENT_PROPERTIES")
    lines = Path(path).read_text().splitlines() if path else []
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Numbers:
    """One producer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, client_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": True,
                "log_level": 0,
                **added(),
            }
        )
        self._topic, self._partitions = topic, partitions
        self.sent = self.told = self.delivered = 0
        self.failed: list[str] = []

    def send(self, name: str, most: int) -> None:
        """As many as there is room for in the client's queue."""
        for _ in range(most):
            value = f"{name}-{self.sent}"
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    partition=self.sent % self._partitions,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                break
            self.sent += 1
        self._producer.poll(0)

    def flush(self) -> None:
        while self._producer.flush(1.0):
            pass

    def _on_delivery(self, error: object, message: object) -> None:
        self.told += 1
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(f"{message.value().decode()} {error.name()}")  # type: ignore[attr-defined]


def main() -> None:
    bootstrap, topic, partitions, client_id, count, rate = sys.argv[1:]
    producers = [Numbers(bootstrap, topic, int(partitions), client_id) for _ in range(int(count))]
    each = max(1, round(int(rate) * ROUND_S / len(producers)))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    has_begun = False
    while not ended.is_set():
        next_s = time.monotonic() + ROUND_S
        for number, producer in enumerate(producers):
            producer.send(str(number), each)
        if not has_begun and all(producer.delivered for producer in producers):
            has_begun = True
            say("began")
        time.sleep(max(0.0, next_s - time.monotonic()))
    for number, producer in enumerate(producers):
        producer.flush()
        for line in producer.failed:
            say(f"failed {line}")
        say(f"sent {number} {producer.sent} {producer.told}")


if __name__ == "__main__":
    main()
