"""Offsets of partitions whose leaders die, hang, or are several."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from types import SimpleNamespace

import pytest

from kvota.admin import ApiTimeoutError, Patience, TopicPartition
from kvota.admin.asking import AnswerLostError, Asker, Content, Deadline, NotSentError
from kvota.admin.offsets import list_offsets
from kvota.client import Answer, Cluster, Destination
from kvota.model.errors import KvotaError
from kvota.wire.apis import METADATA
from kvota.wire.error_code import ErrorCode

QUICK = Patience(retry_backoff_ms=5, retry_backoff_max_ms=20)
LATEST = -1


class Leaders(Asker):
    """Answers as brokers that lead the partitions of topic ``t``.

    Attributes:
        leaders: node ids, by partition.
        asked: whom offsets were asked of.
        failing: what an ask of a broker ends with.
        behind: how often a leader still answers that it knows of no partition.
        together: so many asks for offsets wait for each other.
    """

    def __init__(self, *leaders: int, together: int = 1) -> None:
        super().__init__(Cluster(["127.0.0.1:9"]), QUICK, Random(1))
        self.leaders = list(leaders)
        self.asked: list[Destination] = []
        self.failing: dict[Destination, KvotaError] = {}
        self.behind = 0
        self.looks = 0
        self.dies: Callable[[], None] = lambda: None
        self._together = asyncio.Barrier(together)

    async def look_again(self, deadline: Deadline) -> None:
        self.looks += 1

    async def ask(
        self,
        key: int,
        content: Content,
        *,
        to: Destination,
        deadline: Deadline,
        read: Callable[[int, bytes], Answer] | None = None,
        version_max: int | None = None,
    ) -> Answer:
        if key == METADATA:
            return self._described()
        fields = content(7, 1_000)
        assert isinstance(fields, dict)
        self.asked.append(to)
        await self._together.wait()
        if to in self.failing:
            self.dies()
            raise self.failing[to]
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.behind > 0 else 0
        self.behind -= 1
        found = [
            SimpleNamespace(partition_index=each["partition_index"], error_code=code, offset=7, timestamp=-1)
            for each in fields["topics"][0]["partitions"]
        ]  # fmt: skip
        return SimpleNamespace(
            topics=[SimpleNamespace(name="t", partitions=found)], throttle_time=timedelta()
        )

    def _described(self) -> Answer:
        partitions = [
            SimpleNamespace(
                partition_index=index, leader_id=leader, replica_nodes=(1, 2), isr_nodes=(2,), error_code=0
            )
            for index, leader in enumerate(self.leaders)
        ]  # fmt: skip
        topic = SimpleNamespace(
            name="t", topic_id=None, is_internal=False, partitions=partitions, error_code=0
        )
        return SimpleNamespace(topics=[topic], throttle_time=timedelta())


def of(*partitions: int) -> dict[TopicPartition, int]:
    return dict.fromkeys((TopicPartition("t", index) for index in partitions), LATEST)


@pytest.mark.parametrize("error", [NotSentError("refused"), AnswerLostError("closed")])
async def test_who_leads_after_a_dead_leader_is_asked(error: KvotaError) -> None:
    leaders = Leaders(1)
    leaders.failing = {1: error}
    leaders.dies = lambda: leaders.leaders.__setitem__(0, 2)

    found = await list_offsets(of(0), leaders, Deadline(4_000))

    assert [each.offset for each in found.all().values()] == [7]
    assert leaders.asked == [1, 2]
    assert leaders.looks == 1


async def test_a_leader_that_stays_dead_is_told_when_time_is_up() -> None:
    leaders = Leaders(1, 2)
    leaders.failing = {1: NotSentError("broker 1: connection refused")}

    found = await list_offsets(of(0, 1), leaders, Deadline(2_000))

    assert found.result(TopicPartition("t", 1)).offset == 7
    error = found.exception(TopicPartition("t", 0))
    assert isinstance(error, ApiTimeoutError)
    assert str(error) == (
        "the offset of t-0 cannot be listed within 2 s: broker 1: connection refused"
    )
    assert leaders.asked.count(2) == 1
    assert leaders.asked.count(1) > 1


async def test_a_leader_that_does_not_know_its_new_partition_yet_is_asked_again() -> None:
    leaders = Leaders(1)
    leaders.behind = 3

    found = await list_offsets(of(0), leaders, Deadline(60_000))

    assert [each.offset for each in found.all().values()] == [7]
    assert leaders.asked == [1, 1, 1, 1]


async def test_a_leader_that_never_knows_its_partition_is_told_when_time_is_up() -> None:
    leaders = Leaders(1)
    leaders.behind = 1_000_000

    found = await list_offsets(of(0), leaders, Deadline(2_000))

    error = found.exception(TopicPartition("t", 0))
    assert str(error) == "the offset of t-0 cannot be listed: unknown_topic_or_partition (3)"


async def test_a_partition_that_nobody_leads_is_not_asked_for_again() -> None:
    leaders = Leaders(1)

    found = await list_offsets(of(0, 5), leaders, Deadline(60_000))

    assert found.result(TopicPartition("t", 0)).offset == 7
    error = found.exception(TopicPartition("t", 5))
    assert str(error) == "the offset of t-5 cannot be listed: unknown_topic_or_partition (3)"
    assert leaders.asked == [1]


async def test_leaders_are_asked_at_once() -> None:
    leaders = Leaders(1, 2, 3, together=3)

    async with asyncio.timeout(5):
        found = await list_offsets(of(0, 1, 2), leaders, Deadline(4_000))

    assert list(found.all()) == list(of(0, 1, 2))
