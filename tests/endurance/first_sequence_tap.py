"""A tap before a broker that refuses the first batch of a partition in the broker's place, when the second one has passed.

What a broker does in the moment in which it becomes the leader of a partition: it answers the first of several batches that are
on the way with an error that is tried again, and takes the second. A broker takes any first sequence of an id that it does not know.
"""

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field

from tests.tap_thread import Address, Stream, TapThread

from kvota.testing.producer_frames import answer_to, errors_of
from kvota.wire.apis import PRODUCE
from kvota.wire.headers import read_request_head
from kvota.wire.producer_ids import BatchProducer, producers


@dataclass
class PartitionStory:
    """What the tap has seen of one partition.

    Attributes:
        is_refused: whether its first batch was answered here.
        is_overtaken: whether another batch had passed by then.
        answers: base sequence and error code of each batch that the broker has answered, in this order.
    """

    is_refused: bool = False
    is_overtaken: bool = False
    answers: list[tuple[int, int]] = field(default_factory=list)

    def codes_of_first(self) -> list[int]:
        """What the broker has said to each coming of the partition's first batch."""
        return [code for sequence, code in self.answers if sequence == 0]

    def later_codes(self) -> list[int]:
        """What it has said to all others."""
        return [code for sequence, code in self.answers if sequence > 0]


@dataclass
class _Due:
    """An answer that a client waits for; ``batch`` of a Produce, ``answer`` where the broker gives none."""

    version: int
    batch: BatchProducer | None
    answer: bytes = b""


class FirstSequenceTap(TapThread):
    """Listens until the ``with`` block ends; all clients of it produce to one topic, a batch in each request.

    Args:
        listen, broker: host and port; the broker has to advertise the first one.
        error: what the first batch of each partition is answered with; None: the tap only watches.
        overtaken_s: so long that answer waits for a second batch.
    """

    def __init__(
        self, listen: Address, broker: Address, *, error: int | None, overtaken_s: float
    ) -> None:
        super().__init__({listen: broker})
        self._error, self._overtaken_s = error, overtaken_s
        self.partitions: dict[int, PartitionStory] = defaultdict(PartitionStory)
        self._overtaken: dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def relay(self, client: Stream, upstream: Stream) -> None:
        """Answer a partition's first batch in the broker's place, and note what the broker answers."""
        due: asyncio.Queue[_Due] = asyncio.Queue()
        answers = asyncio.create_task(self._answers(upstream[0], client[1], due))
        try:
            await self._requests(client[0], upstream[1], due)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, due: asyncio.Queue[_Due]
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            version, batch = int.from_bytes(frame[6:8], "big"), _only_batch(frame)
            if batch is not None and self._is_refused(batch):
                await due.put(_Due(version, batch, answer_to(frame, error=self._error or 0)))
                continue
            await due.put(_Due(version, batch))
            broker.write(frame)
            await broker.drain()
            if batch is not None:
                self._overtaken[batch.partition].set()

    def _is_refused(self, batch: BatchProducer) -> bool:
        story = self.partitions[batch.partition]
        if self._error is None or story.is_refused or batch.base_sequence > 0:
            return False
        story.is_refused = True
        self._overtaken[batch.partition].clear()
        return True

    async def _answers(
        self, broker: asyncio.StreamReader, client: asyncio.StreamWriter, due: asyncio.Queue[_Due]
    ) -> None:
        try:
            while True:
                each = await due.get()
                client.write(await self._answer(each, broker))
                await client.drain()
        except (OSError, asyncio.IncompleteReadError):
            client.close()

    async def _answer(self, due: _Due, broker: asyncio.StreamReader) -> bytes:
        if not due.answer:
            frame = await _read_frame(broker)
            if due.batch is not None:
                (code,) = errors_of(frame, due.version).values()
                story = self.partitions[due.batch.partition]
                story.answers.append((due.batch.base_sequence, code))
            return frame
        assert due.batch is not None
        overtaken = self._overtaken[due.batch.partition]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(overtaken.wait(), self._overtaken_s)
        self.partitions[due.batch.partition].is_overtaken = overtaken.is_set()
        return due.answer


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def _only_batch(frame: bytes) -> BatchProducer | None:
    """Of a Produce; None for all other requests."""
    if int.from_bytes(frame[4:6], "big") != PRODUCE:
        return None
    head = read_request_head(frame, PRODUCE)
    (batch,) = producers(frame, head.body_at, head.version)
    return batch
