"""Producers of librdkafka and aiokafka that send all they can until they are told to stop."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from typing import Self

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

_RECORD = bytes(20_000)
_END_S = 110.0


class FullSpeed(ABC):
    """A thread that sends until it is told to stop, or until the block ends.

    Attributes:
        delivered: records that were acknowledged.
        failed: why others were not.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.delivered = 0
        self.failed: list[str] = []
        self._servers, self._topic = servers, topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def ask_to_stop(self) -> None:
        """Send no more."""
        self._stopping.set()

    def stop(self) -> None:
        """Send no more; return when all that was sent has been acknowledged, or has failed."""
        self._stopping.set()
        self._thread.join(_END_S)
        assert not self._thread.is_alive(), f"what was sent to {self._topic} has not ended"

    @abstractmethod
    def _run(self) -> None:
        """Send until ``_stopping`` is set, and then until all that was sent has ended."""


class LibrdkafkaAtFullSpeed(FullSpeed):
    """Ignores throttle times; ``buffered_kbytes`` wait to be sent when it is told to stop."""

    def __init__(self, servers: str, topic: str, *, buffered_kbytes: int = 16_384) -> None:
        super().__init__(servers, topic)
        self._buffered_kbytes = buffered_kbytes

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "client.id": "librdkafka",
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.kbytes": self._buffered_kbytes,
                "batch.size": 200_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        while not self._stopping.is_set():
            try:
                producer.produce(self._topic, _RECORD, on_delivery=self._ended)
                producer.poll(0)
            except BufferError:
                producer.poll(0.05)
        producer.flush(_END_S)

    def _ended(self, error: object, _message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(str(error))


class AiokafkaAtFullSpeed(FullSpeed):
    """One request at a time for each broker."""

    def _run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        # Whoever fails is told by the test; where the gateway has gone it would go on saying so.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            client_id="aiokafka",
            enable_idempotence=True,
            request_timeout_ms=120_000,
            max_batch_size=200_000,
        )
        await producer.start()
        sent: set[asyncio.Future[object]] = set()
        while not self._stopping.is_set():
            # Where its batches are full it waits; nobody is told to stop meanwhile.
            try:
                async with asyncio.timeout(0.5):
                    future = await producer.send(self._topic, _RECORD)
            except TimeoutError:
                continue
            sent.add(future)
            future.add_done_callback(self._ended)
            future.add_done_callback(sent.discard)
        if sent:
            await asyncio.wait(sent, timeout=_END_S)
        await producer.stop()

    def _ended(self, future: "asyncio.Future[object]") -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed.append("cancelled" if future.cancelled() else str(future.exception()))
        else:
            self.delivered += 1
