"""librdkafka, unmodified, in a thread of its own: numbers in order, until all are acknowledged."""

import threading

from confluent_kafka import Producer


class IdempotentProducer:
    """Sends ``records`` numbers, or as many as it can until ``stop`` is called."""

    def __init__(self, bootstrap_servers: str, topic: str, records: int, pause_s: float) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        self._topic, self._records, self._pause_s = topic, records, pause_s
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": "idempotent",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Send no more; returns when all that was sent has been acknowledged or has failed."""
        self._stopping.set()
        self.thread.join(130)

    def _run(self) -> None:
        for number in range(self._records):
            if self._stopping.is_set():
                break
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered)
            self._producer.poll(0 if number % 100 else self._pause_s)
        self._producer.flush(120)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))
