"""Following a topic, against one in memory: what is judged by rows that cannot be read, or are there twice."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from struct import Struct
from uuid import UUID

import pytest

from kvota.client import BrokerError, Cluster
from kvota.client.producer_state import NO_PRODUCER, ProducerState
from kvota.client.record_batches import Decoded, Row, decode_batches
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import KvotaError, UnreachableError
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store import document_file, topic_store, topic_writer
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_rows import EncodedRow, encode_rows, encode_settings
from kvota.store.quota_topic import QuotaTopic, TooLargeError
from kvota.store.topic_store import TopicStore
from kvota.testing.manual_clock import ManualClock

ALICE, BOB, CAROL = QuotaEntity("alice"), QuotaEntity("bob"), QuotaEntity("carol")
RATE = "producer_byte_rate"
NUM = "quota.window.num"
NEWER = b'{"version":2,"value":9.0}'
# Where a batch has its producer id, epoch and first sequence.
PRODUCER_AT, PRODUCER = 43, Struct(">qhi")


def row_of(entity: QuotaEntity, value: float | None) -> EncodedRow:
    (row,) = encode_rows([KeyChange(entity, RATE, value)])
    return row


def keep(snapshot: Path, quotas: dict[QuotaEntity, dict[str, float]]) -> None:
    snapshot.write_bytes(QuotaDocument(ClientQuotas(quotas)).content())


class Kept(QuotaTopic):
    """A topic in memory; of a producer it takes a batch once, as brokers do.

    Args:
        rows: what is in it.
        empty: so many answers in a row have nothing.
        filled_by_another: who has made it puts these rows into it a moment later.

    Attributes:
        producers: so many have got an id; None: nobody may have one.
    """

    def __init__(
        self, *rows: EncodedRow, empty: int = 0, filled_by_another: Sequence[EncodedRow] = ()
    ) -> None:
        super().__init__("quotas", lambda: Cluster(["127.0.0.1:9"]))
        self.refusals: list[KvotaError | None] = []
        self.finds_next: UUID | None = None
        self._filled_by_another = list(filled_by_another)
        self.rows = list(rows)
        self.batches: list[int] = []
        self.empty = empty
        self.came = asyncio.Event()
        self.producers: int | None = 0
        self._last_of: dict[tuple[int, int, int], int] = {}

    async def new_producer(self) -> ProducerState:
        if self.producers is None:
            return NO_PRODUCER
        self.producers += 1
        return ProducerState(self.producers, 0, 0)

    async def find(self) -> bool:
        self.topic_id = self.finds_next
        return True

    async def find_or_make(self, *, batch_bytes: int = 0) -> bool:
        if self._filled_by_another:
            asyncio.get_running_loop().call_later(0.5, self.rows.extend, self._filled_by_another)
        return not self._filled_by_another and not self.rows

    async def bounds(self) -> tuple[int, int]:
        return 0, len(self.rows)

    async def append(self, batch: bytes, count: int) -> int:
        # Beside the loop, whose steps some tests count: this is a broker's work.
        rows = (await asyncio.to_thread(decode_batches, batch, 0)).rows
        assert len(rows) == count
        if len(batch) > self.batch_bytes_max:
            raise self._too_large(count, len(batch), f"={self.batch_bytes_max}")
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None and not isinstance(refusal, UnreachableError):
            raise refusal
        sent = PRODUCER.unpack_from(batch, PRODUCER_AT)
        if sent not in self._last_of:
            self.batches.append(count)
            self.rows += [(row.key or b"", row.value) for row in rows if isinstance(row, Row)]
            self.came.set()
        last = self._last_of.get(sent, len(self.rows) - 1)
        if sent[0] >= 0:
            self._last_of[sent] = last
        if refusal is not None:  # its answer is lost
            raise refusal
        return last

    async def read(self, offset: int, *, wait: timedelta = timedelta(seconds=1)) -> Decoded:
        if not wait:
            return Decoded([], offset)
        if self.empty:
            self.empty -= 1
            return Decoded([], offset)
        while offset >= len(self.rows):
            if offset > len(self.rows):
                raise BrokerError("topic quotas", 1)
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

    def altering(self, changes: Sequence[KeyChange]) -> "asyncio.Future[Refusal | None]":
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self.store.alter(StoreQuotas(changes, "admin from 10.0.0.1"), answer.set_result)
        return answer

    async def alter(self, *changes: KeyChange) -> Refusal | None:
        return await self.altering(changes)


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


@pytest.mark.parametrize("how", ["half", "garbage", "newer", "[]", "folder"])
async def test_a_damaged_snapshot_is_written_anew_once_the_topic_has_been_read(
    snapshot: Path, how: str
) -> None:
    keep(snapshot, {ALICE: {RATE: 5.0}, BOB: {RATE: 6.0}})
    damage(snapshot, how)

    async with following(Kept(row_of(ALICE, 1.0)), snapshot) as followed:
        assert await followed.alter(KeyChange(BOB, RATE, 2.0)) is None
        assert followed.store.quotas.entries() == {ALICE: {RATE: 1.0}, BOB: {RATE: 2.0}}

    if how != "folder":  # which nobody overwrites
        again = TopicStore(Kept(), snapshot, clock=ManualClock())
        assert again.quotas == followed.store.quotas


def content_of(snapshot: Path) -> bytes:
    return snapshot.read_bytes()


def damage(snapshot: Path, how: str) -> None:
    whole = snapshot.read_bytes()
    if how == "folder":
        snapshot.unlink()
        snapshot.mkdir()
        return
    damaged = {
        "half": whole[: len(whole) // 2],
        "garbage": b"\0" * 100,
        "newer": whole.replace(b'"version": 1', b'"version": 3'),
        "[]": whole.replace(b'"version": 1', b'"version": []'),
    }
    snapshot.write_bytes(damaged[how])


async def test_a_snapshot_that_would_not_be_read_again_is_said_and_the_older_one_stays(
    snapshot: Path, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(snapshot, {ALICE: {RATE: 5.0}})
    size_bytes = len(content_of(snapshot))
    monkeypatch.setattr(document_file, "BYTES_MAX", size_bytes)

    async with following(Kept(row_of(ALICE, 1.0)), snapshot) as followed:
        assert await followed.alter(KeyChange(BOB, RATE, 2.0)) is None

    assert len(followed.store.quotas) == 2
    assert f"more than {size_bytes} are not read" in said.text
    assert TopicStore(Kept(), snapshot, clock=ManualClock()).quotas.value(ALICE, RATE) is not None


async def test_what_is_altered_last_is_in_the_snapshot(snapshot: Path) -> None:
    loop, is_free = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as threads:

        class Blocking(Kept):
            async def append(self, batch: bytes, count: int) -> int:
                last = await super().append(batch, count)
                threads.submit(is_free.wait, 10)  # whoever writes comes behind
                return last

        loop.set_default_executor(threads)
        async with following(Blocking(), snapshot) as followed:
            assert await followed.alter(KeyChange(BOB, RATE, 2.0)) is None
            await asyncio.sleep(0.01)
            loop.call_later(0.1, is_free.set)  # it is to be written, and the gateway ends

    assert TopicStore(Kept(), snapshot, clock=ManualClock()).quotas.value(BOB, RATE) == 2.0


@pytest.mark.parametrize(("empty", "read"), [(1, 2), (3, 2), (4, 0)])
async def test_an_empty_answer_is_asked_again_before_it_is_believed(empty: int, read: int) -> None:
    topic = Kept(row_of(ALICE, 1.0), row_of(BOB, 2.0), empty=empty)

    chunks = [decoded async for decoded in topic.all_rows()]

    assert sum(len(chunk.rows) for chunk in chunks) == read
    assert chunks[-1].next_offset == 2


# ------------------------------------------------------------------ whole or not at all

MANY = [KeyChange(QuotaEntity(f"user-{number}"), RATE, 1e12) for number in range(10_000)]
LONG = [KeyChange(QuotaEntity(f"user-{number}".ljust(900)), RATE, 1e12) for number in range(10_000)]
TOPIC, ANOTHER = UUID(int=1), UUID(int=2)


async def test_the_largest_alteration_is_one_batch_and_seen_whole(snapshot: Path) -> None:
    topic = Kept()
    async with following(topic, snapshot) as followed:
        seen = set()
        followed.store.begin(lambda _: seen.add(len(followed.store.quotas)))
        assert await followed.alter(*MANY) is None

        assert topic.batches == [10_000]
        assert seen == {10_000}  # also for who describes, or keeps, them while they come into force
        assert followed.store.quotas == ClientQuotas().with_changes(MANY)


async def test_what_is_too_large_is_refused_whole_and_for_itself_alone(snapshot: Path) -> None:
    topic = Kept()
    async with following(topic, snapshot) as followed:
        small = [followed.altering([each]) for each in MANY[:50]]
        refused = followed.altering(LONG)
        behind = followed.altering([KeyChange(ALICE, RATE, 1.0)])

        assert {await each for each in (*small, behind)} == {None}
        refusal = await refused
        assert refusal is not None
        assert refusal.error_code == 44
        assert "10000 values are 9" in str(refusal.message)
        assert "(max.message.bytes=8388608), so none was stored" in str(refusal.message)
        assert len(followed.store.quotas) == 51
        assert topic.batches == [50, 1]  # those that are small together go together


async def test_what_a_topic_that_is_new_takes_is_one_batch(snapshot: Path) -> None:
    keep(snapshot, {entity: {RATE: value or 0.0} for entity, _, value in LONG})
    topic = Kept()
    topic.batch_bytes_max = 16 * 2**20  # as it is made for so many
    async with following(topic, snapshot):
        assert topic.batches == [10_000]


async def test_who_finds_a_topic_that_another_one_fills_takes_that(snapshot: Path) -> None:
    keep(snapshot, {ALICE: {RATE: 5.0}})
    topic = Kept(filled_by_another=[row_of(BOB, 6.0)])
    async with following(topic, snapshot) as followed:
        assert followed.store.quotas.entries() == {BOB: {RATE: 6.0}}
        assert topic.batches == []


async def test_an_answer_that_is_lost_is_no_failure(snapshot: Path) -> None:
    topic = Kept()
    topic.refusals = [UnreachableError("lost"), BrokerError("topic quotas", 19), None]
    async with following(topic, snapshot) as followed:
        assert await followed.alter(KeyChange(ALICE, RATE, 1.0)) is None
        assert followed.store.quotas.entries() == {ALICE: {RATE: 1.0}}


class Overtaken(Kept):
    """Where an answer is lost, another gateway has altered the quota of ALICE before it is sent again."""

    async def append(self, batch: bytes, count: int) -> int:
        try:
            return await super().append(batch, count)
        except UnreachableError:
            self.rows.append(row_of(ALICE, 7.0))
            self.came.set()
            raise


async def test_what_is_altered_elsewhere_while_an_answer_is_lost_is_not_undone(
    snapshot: Path,
) -> None:
    topic = Overtaken()
    async with following(topic, snapshot) as followed:
        topic.refusals = [UnreachableError("lost")] * 2
        assert await followed.alter(KeyChange(ALICE, RATE, 1.0)) is None

        seven = row_of(ALICE, 7.0)
        assert topic.rows == [row_of(ALICE, 1.0), seven, seven]
        await until(lambda: followed.store.quotas.entries() == {ALICE: {RATE: 7.0}})
        # What comes next is the same producer's, and another batch.
        assert await followed.alter(KeyChange(ALICE, RATE, 1.0)) is None
        assert (topic.rows[3:], topic.producers) == ([row_of(ALICE, 1.0)], 1)


async def test_who_may_not_have_a_producer_id_does_not_try_again_what_may_be_there(
    snapshot: Path,
) -> None:
    topic = Overtaken()
    topic.producers = None
    async with following(topic, snapshot) as followed:
        assert await followed.alter(KeyChange(BOB, RATE, 1.0)) is None
        topic.refusals = [BrokerError("topic quotas", 19), UnreachableError("lost")]
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

        assert topic.rows[1:] == [row_of(ALICE, 1.0), row_of(ALICE, 7.0)]
    assert "lost. It was not tried again: the gateway's own user lacks IDEMPOTENT_WRITE" in str(refusal)  # fmt: skip
    assert "Describe them to see whether it has them" in str(refusal)


@pytest.mark.parametrize("code", [45, 59])
@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_producer_that_a_broker_has_forgotten_is_another_one(
    snapshot: Path, code: int, *, is_lost: bool
) -> None:
    topic = Kept()
    async with following(topic, snapshot) as followed:
        assert await followed.alter(KeyChange(BOB, RATE, 1.0)) is None
        lost = [UnreachableError("lost")] if is_lost else []
        topic.refusals = [*lost, BrokerError("topic quotas", code)]
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

        # Where it had been sent before, nobody knows now whether it was taken.
        assert ("Describe them to see whether it has them" in str(refusal)) is is_lost
        assert (refusal is None) is not is_lost
        assert topic.rows[1:] == [row_of(ALICE, 1.0)]
        assert await followed.alter(KeyChange(BOB, RATE, 2.0)) is None
        assert topic.producers == 2


@pytest.mark.parametrize("is_lost", [True, False])
async def test_who_may_have_stored_it_is_told_so(snapshot: Path, *, is_lost: bool) -> None:
    topic = Kept()
    unauthorized = BrokerError("topic quotas", 29)
    topic.refusals = [UnreachableError("lost"), unauthorized] if is_lost else [unauthorized]
    async with following(topic, snapshot) as followed:
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

    assert refusal is not None
    words = "Describe them to see whether it has them: it has all of them or none"
    assert (words in str(refusal.message)) is is_lost
    assert "topic_authorization_failed (29)" in str(refusal.message)


async def test_nothing_is_appended_to_another_topic_of_the_name(snapshot: Path) -> None:
    topic = Kept()
    topic.finds_next = TOPIC
    async with following(topic, snapshot) as followed:
        topic.refusals = [BrokerError("topic quotas", 19)]
        topic.finds_next = ANOTHER
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

        assert "another topic has its name" in str(refusal)
        assert topic.rows == []


class MadeAnew(Kept):
    """A topic that another one takes the place of.

    Args:
        is_refused: whether an append is refused when that has happened; else the other one gets it.
        is_made_here: whether who looks for it then makes it.
    """

    def __init__(
        self, *rows: EncodedRow, is_refused: bool = True, is_made_here: bool = False
    ) -> None:
        super().__init__(*rows)
        self.finds_next = TOPIC
        self.next_rows: list[EncodedRow] | None = None
        self._is_refused, self._is_made_here = is_refused, is_made_here

    def make_anew(self, *rows: EncodedRow) -> None:
        self.rows, self.finds_next, self._last_of = list(rows), ANOTHER, {}
        self.came.set()

    async def find_or_make(self, *, batch_bytes: int = 0) -> bool:
        return self._is_made_here and self.finds_next == ANOTHER

    async def append(self, batch: bytes, count: int) -> int:
        if self.next_rows is not None:
            rows, self.next_rows = self.next_rows, None
            self.make_anew(*rows)
            if self._is_refused:
                raise BrokerError("topic quotas", 3)
        return await super().append(batch, count)


async def followed_again(followed: Followed, topic: Kept) -> None:
    async with asyncio.timeout(10):
        while topic.topic_id != ANOTHER or followed.store.refusal is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def nobody_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_store, "_FILLED_S", 0.01)


@pytest.mark.usefixtures("nobody_fills")
@pytest.mark.parametrize("is_made_here", [True, False])
async def test_what_waits_when_the_topic_is_made_anew_does_not_become_all_there_is(
    snapshot: Path, *, is_made_here: bool
) -> None:
    topic = MadeAnew(row_of(BOB, 5.0), is_made_here=is_made_here)
    async with following(topic, snapshot) as followed:
        topic.next_rows = []
        first = followed.altering(MANY[:900])  # which are appended alone
        await asyncio.sleep(0)
        behind = followed.altering([KeyChange(ALICE, RATE, 2.0)])

        assert "unknown_topic_or_partition" in str(await first)
        assert "it cannot be followed" in str(await behind) or "another topic" in str(await behind)
        await followed_again(followed, topic)
        assert followed.store.quotas.entries() == {BOB: {RATE: 5.0}}
        assert topic.rows == [row_of(BOB, 5.0)]
        assert await followed.alter(KeyChange(ALICE, RATE, 2.0)) is None


async def test_who_was_told_that_the_topic_is_gone_looks_before_appending_again(
    snapshot: Path,
) -> None:
    class Unnoticed(MadeAnew):
        async def read(self, offset: int, *, wait: timedelta = timedelta(seconds=1)) -> Decoded:
            if wait and offset:
                await asyncio.Event().wait()  # who reads does not hear of it
            return await super().read(offset, wait=wait)

    topic = Unnoticed(row_of(BOB, 5.0))
    async with following(topic, snapshot) as followed:
        topic.next_rows = []
        assert "unknown_topic_or_partition" in str(await followed.alter(*MANY[:2]))
        refusal = await followed.alter(KeyChange(ALICE, RATE, 2.0))

        assert str(refusal).endswith("quotas: another topic has its name.')")
        assert topic.rows == []


@pytest.mark.usefixtures("nobody_fills")
@pytest.mark.parametrize("is_made_here", [True, False])
async def test_what_a_new_topic_has_already_counts_and_takes_no_other_quota_away(
    snapshot: Path, said: pytest.LogCaptureFixture, *, is_made_here: bool
) -> None:
    carol, dave = QuotaEntity("carol"), QuotaEntity("dave")
    old = [row_of(who, 5.0) for who in (ALICE, BOB, carol)] + encode_settings({NUM: "5"})
    topic = MadeAnew(*old, is_made_here=is_made_here)
    async with following(topic, snapshot) as followed:
        topic.make_anew(row_of(ALICE, 6.0), row_of(carol, None), row_of(dave, 7.0))
        await followed_again(followed, topic)
        expected = {ALICE: {RATE: 6.0}, BOB: {RATE: 5.0}, dave: {RATE: 7.0}}
        assert followed.store.quotas.entries() == expected
        assert topic.batches == [2]
    # Somebody may have removed them while nobody followed.
    assert f"are put into it: {RATE} of user-principal 'bob', {NUM}\n" in said.text

    # It is all there for who knows nothing.
    async with following(topic, snapshot.with_name("another.json")) as another:
        assert another.store.quotas.entries() == expected
        assert another.store.settings == {NUM: "5"}


async def test_who_has_filled_a_new_topic_meanwhile_has_filled_it_for_all(snapshot: Path) -> None:
    topic = MadeAnew(row_of(ALICE, 5.0), row_of(BOB, 5.0))
    async with following(topic, snapshot) as followed:
        topic.make_anew(row_of(ALICE, 6.0))
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, topic.rows.append, row_of(BOB, 5.0))
        await followed_again(followed, topic)

        assert followed.store.quotas.entries() == {ALICE: {RATE: 6.0}, BOB: {RATE: 5.0}}
        assert topic.batches == []


@pytest.mark.usefixtures("nobody_fills")
async def test_what_a_new_topic_of_the_name_has_got_unnoticed_is_said(snapshot: Path) -> None:
    topic = MadeAnew(row_of(ALICE, 5.0), row_of(BOB, 5.0), is_refused=False)
    async with following(topic, snapshot) as followed:
        topic.next_rows = []
        refusal = await followed.alter(KeyChange(ALICE, RATE, 6.0))
        assert "another topic has its name. Describe them to see" in str(refusal)

        await followed_again(followed, topic)
        assert followed.store.quotas.entries() == {ALICE: {RATE: 6.0}, BOB: {RATE: 5.0}}


@pytest.mark.usefixtures("nobody_fills")
async def test_a_topic_that_is_made_anew_while_it_is_read_is_read_again(snapshot: Path) -> None:
    class Hasty(MadeAnew):
        async def read(self, offset: int, *, wait: timedelta = timedelta(seconds=1)) -> Decoded:
            decoded = await super().read(offset, wait=wait)
            if self.finds_next == TOPIC:
                self.make_anew(row_of(BOB, 2.0))
                await self.find()  # as who appends does after a failure
            return decoded

    async with following(Hasty(row_of(ALICE, 1.0)), snapshot) as followed:
        async with asyncio.timeout(10):
            while followed.store.quotas.value(BOB, RATE) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert followed.store.quotas.entries() == {ALICE: {RATE: 1.0}, BOB: {RATE: 2.0}}


@pytest.mark.parametrize("refusals", [[], [BrokerError("topic quotas", 19)]])
async def test_what_is_under_way_when_the_time_is_over_may_be_there(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, refusals: list[KvotaError | None]
) -> None:
    class Slow(Kept):
        async def append(self, batch: bytes, count: int) -> int:
            last = await super().append(batch, count)
            await asyncio.Event().wait()  # its answer does not come
            return last

    monkeypatch.setattr(topic_writer, "_APPEND_S", 2)
    topic = Slow()
    topic.refusals = list(refusals)
    async with following(topic, snapshot) as followed:
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

    assert "has not taken them in 2 s" in str(refusal)
    assert "Describe them to see whether it has them" in str(refusal)
    assert topic.rows == [row_of(ALICE, 1.0)]


@pytest.mark.parametrize("then", ["too large", "another topic"])
async def test_what_may_be_there_is_said_whatever_comes_then(snapshot: Path, then: str) -> None:
    topic = Kept()
    topic.finds_next = TOPIC
    too_large = TooLargeError("the topic takes fewer at once")
    topic.refusals = [UnreachableError("lost"), too_large]
    async with following(topic, snapshot) as followed:
        topic.finds_next = TOPIC if then == "too large" else ANOTHER
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))

    expected = str(too_large) if then == "too large" else "another topic has its name"
    assert f"{expected}. Describe them to see whether it has them" in str(refusal)


async def test_too_few_replicas_are_said_when_the_time_is_over(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time is over behind the first try: in the midst of one nobody knows what became of it.
    monkeypatch.setattr(topic_writer, "_APPEND_S", 2)
    monkeypatch.setattr(topic_writer, "RETRY_S", 60)
    topic = Kept()
    async with following(topic, snapshot) as followed:
        topic.refusals = [BrokerError("topic quotas", 19)] * 100
        refusal = await followed.alter(KeyChange(ALICE, RATE, 1.0))
        assert refusal is not None
        assert "has not taken them in 2 s (topic quotas: not_enough_replicas" in str(refusal)
        assert "Describe them" not in str(refusal)  # it is known that nothing is there
        assert topic.rows == []

        topic.refusals = []
        assert await followed.alter(KeyChange(ALICE, RATE, 2.0)) is None


async def test_a_snapshot_that_cannot_be_written_is_said_and_the_topic_goes_on(
    snapshot: Path, said: pytest.LogCaptureFixture
) -> None:
    blocked = snapshot.with_name(f"{snapshot.name}.tmp")
    blocked.mkdir()  # what is written first has this name
    async with following(Kept(), snapshot) as followed:
        assert await followed.alter(KeyChange(ALICE, RATE, 1.0)) is None
        async with asyncio.timeout(10):
            while "a start without the cluster would have older quotas" not in said.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert followed.store.refusal is None
        blocked.rmdir()
        assert await followed.alter(KeyChange(BOB, RATE, 2.0)) is None

    assert TopicStore(Kept(), snapshot, clock=ManualClock()).quotas.value(BOB, RATE) == 2.0


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


# ------------------------------------------------------------------ answered, and not read back


class Perishable(Kept):
    """One that can be read no more, or is deleted, when a test says so.

    Args:
        rows: what is in it.
        made_with: another gateway makes it again, with these rows; None: nobody does.
    """

    def __init__(self, *rows: EncodedRow, made_with: Sequence[EncodedRow] | None = None) -> None:
        super().__init__(*rows)
        self.finds_next = TOPIC
        self.is_there = True
        self.made_with = made_with
        self.is_read = asyncio.Event()
        self.is_read.set()

    def stall(self) -> None:
        """Who reads waits from now on; also who does already, and hears of what comes."""
        self.is_read.clear()

    def delete(self) -> None:
        self.rows, self.is_there = [], False
        self.is_read.set()

    async def find(self) -> bool:
        if not self.is_there and self.made_with is not None:
            self._is_made(self.made_with)
        return await super().find() and self.is_there

    async def find_or_make(self, *, batch_bytes: int = 0) -> bool:
        is_made = not await self.find()
        if is_made:
            self._is_made(())
            await self.find()
        return is_made

    def _is_made(self, rows: Sequence[EncodedRow]) -> None:
        self.rows, self.is_there, self.finds_next = list(rows), True, ANOTHER

    async def read(self, offset: int, *, wait: timedelta = timedelta(seconds=1)) -> Decoded:
        topic_id = self.topic_id
        while wait and offset >= len(self.rows) and self.is_there and self.is_read.is_set():
            self.came.clear()
            waiting = asyncio.create_task(self.came.wait())
            await asyncio.wait([waiting], timeout=0.01)
            waiting.cancel()
        await self.is_read.wait()
        if not self.is_there or self.topic_id != topic_id or offset > len(self.rows):
            raise BrokerError("topic quotas", 3)
        return await super().read(offset, wait=wait)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.005)


async def alter_and_lose_the_topic(followed: Followed, topic: Perishable) -> None:
    """Alter quotas and a setting, which is answered, for they are stored; then the topic is gone, and made again."""
    topic.stall()
    answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    changes = [KeyChange(ALICE, RATE, 2.0), KeyChange(BOB, RATE, 3.0)]
    followed.store.alter(StoreQuotas(changes, "admin", {NUM: "5"}), answer.set_result)
    await until(lambda: len(topic.batches) == 1)
    assert followed.store.quotas.entries() == {ALICE: {RATE: 1.0}}

    topic.delete()

    assert await asyncio.wait_for(answer, 10) is None
    await until(lambda: followed.store.refusal is not None or topic.finds_next == ANOTHER)
    await until(lambda: topic.finds_next == ANOTHER and followed.store.refusal is None)


async def test_what_was_answered_before_it_was_read_back_is_in_the_topic_that_is_made_again(
    snapshot: Path, said: pytest.LogCaptureFixture
) -> None:
    topic = Perishable(row_of(ALICE, 1.0))
    async with following(topic, snapshot) as followed:
        await alter_and_lose_the_topic(followed, topic)

        assert followed.store.quotas.entries() == {ALICE: {RATE: 2.0}, BOB: {RATE: 3.0}}
        assert followed.store.settings == {NUM: "5"}
        assert topic.batches[1:] == [3]  # all there is in one batch
        assert "are in topic quotas, and not in force here yet" in said.text
        assert await followed.alter(KeyChange(BOB, RATE, 4.0)) is None


async def test_what_was_answered_and_is_missing_in_anothers_topic_is_put_there(
    snapshot: Path,
) -> None:
    # Longer than the one before, so that offsets alone say nothing.
    filled = [row_of(QuotaEntity(f"user-{number}"), 9.0) for number in range(10)]
    topic = Perishable(row_of(ALICE, 1.0), made_with=[row_of(ALICE, 1.0), *filled])
    async with following(topic, snapshot) as followed:
        await alter_and_lose_the_topic(followed, topic)
        await until(lambda: followed.store.quotas.value(BOB, RATE))

        assert followed.store.quotas.value(ALICE, RATE) == 2.0
        assert followed.store.quotas.value(BOB, RATE) == 3.0
        assert followed.store.settings == {NUM: "5"}
        assert len(followed.store.quotas) == 12
        assert topic.batches[1:] == [2, 1]  # what has no row there, and what has an older one


async def test_what_was_altered_again_in_anothers_topic_stays_so(snapshot: Path) -> None:
    made_with = [row_of(ALICE, 7.0), row_of(BOB, 3.0), *encode_settings({NUM: "9"})]
    topic = Perishable(row_of(ALICE, 1.0), made_with=made_with)
    async with following(topic, snapshot) as followed:
        await alter_and_lose_the_topic(followed, topic)
        assert await followed.alter(KeyChange(CAROL, RATE, 1.0)) is None

        expected = {ALICE: {RATE: 7.0}, BOB: {RATE: 3.0}, CAROL: {RATE: 1.0}}
        assert followed.store.quotas.entries() == expected
        assert followed.store.settings == {NUM: "9"}
        assert topic.batches[1:] == [1]


async def test_what_cannot_be_read_back_in_time_is_answered_and_comes_into_force_later(
    snapshot: Path, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "_BACK_S", 0.05)
    topic = Perishable(row_of(ALICE, 1.0))
    async with following(topic, snapshot) as followed:
        topic.stall()
        assert await followed.alter(KeyChange(ALICE, RATE, 2.0)) is None
        assert "are in topic quotas, and not in force here yet" in said.text
        assert followed.store.quotas.value(ALICE, RATE) == 1.0

        topic.is_read.set()
        await until(lambda: followed.store.quotas.value(ALICE, RATE) == 2.0)

        topic.delete()  # and it is not put into another one a second time
        await until(lambda: topic.finds_next == ANOTHER and followed.store.refusal is None)
        assert topic.batches == [1, 1]
        assert followed.store.quotas.entries() == {ALICE: {RATE: 2.0}}
