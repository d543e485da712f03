"""Following a topic, against one in memory: what is judged by rows that cannot be read, or are there twice."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kvota.client import Cluster
from kvota.client.record_batches import Decoded, Row, decode_batches
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_rows import EncodedRow, encode_rows, encode_settings
from kvota.store.quota_topic import QuotaTopic
from kvota.store.topic_store import TopicStore
from kvota.testing.manual_clock import ManualClock

ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob")
RATE = "producer_byte_rate"
NUM = "quota.window.num"
NEWER = b'{"version":2,"value":9.0}'


def row_of(entity: QuotaEntity, value: float | None) -> EncodedRow:
    (row,) = encode_rows([KeyChange(entity, RATE, value)])
    return row


def keep(snapshot: Path, quotas: dict[QuotaEntity, dict[str, float]]) -> None:
    snapshot.write_bytes(QuotaDocument(ClientQuotas(quotas)).content())


class Kept(QuotaTopic):
    """A topic in memory; ``empty`` answers in a row have nothing."""

    def __init__(self, *rows: EncodedRow, empty: int = 0) -> None:
        super().__init__("quotas", lambda: Cluster(["127.0.0.1:9"]))
        self.rows = list(rows)
        self.batches: list[int] = []
        self.empty = empty
        self.came = asyncio.Event()

    async def find(self) -> bool:
        return True

    async def find_or_make(self, *, batch_bytes: int = 0) -> bool:  # noqa: ARG002
        return True

    async def bounds(self) -> tuple[int, int]:
        return 0, len(self.rows)

    async def append(self, batch: bytes, count: int) -> int:
        rows = decode_batches(batch, 0).rows
        assert len(rows) == count
        self.batches.append(count)
        self.rows += [(row.key or b"", row.value) for row in rows if isinstance(row, Row)]
        self.came.set()
        return len(self.rows) - 1

    async def read(self, offset: int) -> Decoded:
        if self.empty:
            self.empty -= 1
            return Decoded([], offset)
        while offset >= len(self.rows):
            self.came.clear()
            await self.came.wait()
        rows = enumerate(self.rows[offset:], offset)
        return Decoded([Row(at, *row) for at, row in rows], len(self.rows))


class Followed:
    """A store that follows, and what it has put in force."""

    def __init__(self, topic: Kept, snapshot: Path) -> None:
        self.in_force: list[KeyChange] = []
        self.store = TopicStore(topic, snapshot, clock=ManualClock())
        self.store.begin(self.in_force.extend)

    async def alter(self, *changes: KeyChange) -> Refusal | None:
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self.store.alter(StoreQuotas(changes, "admin from 10.0.0.1"), answer.set_result)
        return await answer


@asynccontextmanager
async def following(topic: Kept, snapshot: Path) -> AsyncIterator[Followed]:
    """Yields when all has been read; the snapshot is written behind it."""
    followed = Followed(topic, snapshot)
    task = asyncio.create_task(followed.store.follow())
    try:
        async with asyncio.timeout(10):
            while followed.store.refusal is not None:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.001)
        yield followed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await followed.store.end()


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return tmp_path / "quotas.json"


@pytest.fixture(autouse=True)
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


async def test_what_is_in_force_already_is_appended_and_changes_nothing(snapshot: Path) -> None:
    topic = Kept(row_of(ALICE, 1.0))
    async with following(topic, snapshot) as followed:
        before = list(followed.in_force)
        assert await followed.alter(KeyChange(ALICE, RATE, 1.0), KeyChange(BOB, RATE, None)) is None

        assert topic.rows[1:] == [row_of(ALICE, 1.0), row_of(BOB, None)]
        assert followed.in_force == before == [KeyChange(ALICE, RATE, 1.0)]


async def test_of_changes_that_come_together_each_counts_after_the_one_before(
    snapshot: Path,
) -> None:
    async with following(Kept(row_of(ALICE, 1.0)), snapshot) as followed:
        there_and_back = [KeyChange(ALICE, RATE, 2.0), KeyChange(ALICE, RATE, 1.0)]
        assert await followed.alter(*there_and_back) is None

        assert followed.store.quotas.value(ALICE, RATE) == 1.0
        assert followed.in_force[-2:] == there_and_back


@pytest.mark.parametrize("older", [None, 3.0])
async def test_a_quota_whose_row_cannot_be_read_stays_as_it_was(
    snapshot: Path, said: pytest.LogCaptureFixture, older: float | None
) -> None:
    keep(snapshot, {ALICE: {RATE: 5.0}, BOB: {RATE: 6.0}})
    key, _ = row_of(ALICE, 0.0)
    rows = [(key, NEWER)] if older is None else [row_of(ALICE, older), (key, NEWER)]
    async with following(Kept(*rows), snapshot) as followed:
        expected = ClientQuotas({ALICE: {RATE: older or 5.0}})
        assert followed.store.quotas == expected  # who follows from there on would have it, too

    assert ("they stay as they were last: producer_byte_rate of user-principal 'alice'" in said.text) is (
        older is None
    )  # fmt: skip
    async with following(Kept(*rows), snapshot) as again:
        assert again.store.quotas == expected


async def test_a_quota_that_was_removed_does_not_come_back_with_a_row_that_cannot_be_read(
    snapshot: Path,
) -> None:
    keep(snapshot, {ALICE: {RATE: 5.0}})
    key, _ = row_of(ALICE, 0.0)
    async with following(Kept(row_of(ALICE, None), (key, NEWER)), snapshot) as followed:
        assert len(followed.store.quotas) == 0


def test_a_damaged_snapshot_is_said(snapshot: Path, said: pytest.LogCaptureFixture) -> None:
    snapshot.write_bytes(b"{")
    TopicStore(Kept(), snapshot, clock=ManualClock())

    (line,) = [each for each in said.records if each.levelno == logging.ERROR]
    assert f"{snapshot} cannot be used: it is no whole JSON document" in line.getMessage()
    assert "nobody has a quota" in line.getMessage()
    assert "put a good copy in its place" in line.getMessage()


@pytest.mark.parametrize(("empty", "read"), [(1, 2), (3, 2), (4, 0)])
async def test_an_empty_answer_is_asked_again_before_it_is_believed(empty: int, read: int) -> None:
    topic = Kept(row_of(ALICE, 1.0), row_of(BOB, 2.0), empty=empty)

    chunks = [decoded async for decoded in topic.all_rows()]

    assert sum(len(chunk.rows) for chunk in chunks) == read
    assert chunks[-1].next_offset == 2


# ------------------------------------------------------------------ the gateway's settings


async def test_gateways_share_settings_as_they_share_quotas(tmp_path: Path) -> None:
    topic = Kept(*encode_settings({NUM: "5"}))
    seen = asyncio.Event()
    async with (
        following(topic, tmp_path / "a.json") as first,
        following(topic, tmp_path / "b.json") as second,
    ):
        assert first.store.settings == second.store.settings == {NUM: "5"}
        second.store.on_settings = seen.set
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        errand = StoreQuotas((), "admin", {NUM: None, "quota.window.size.seconds": "2"})
        first.store.alter(errand, answer.set_result)

        assert await answer is None
        await asyncio.wait_for(seen.wait(), 10)
        assert first.store.settings == second.store.settings == {"quota.window.size.seconds": "2"}
    await second.store.end()

    # A start without the cluster has what was there last.
    again = TopicStore(Kept(), tmp_path / "b.json", clock=ManualClock())
    assert again.settings == {"quota.window.size.seconds": "2"}


async def test_a_topic_that_is_new_takes_the_settings(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(QuotaDocument(settings={NUM: "5"}).content())
    topic = Kept()

    async with following(topic, tmp_path / "a.json") as followed:
        assert followed.store.settings == {NUM: "5"}

    assert topic.rows == encode_settings({NUM: "5"})
