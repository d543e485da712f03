"""What stands in a quotas topic of a real cluster: each alteration once, however often it is sent; the same after compaction."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.settings_client import NUM, dynamic
from tests.integration.settings_client import alter as alter_settings
from tests.integration.test_client_quotas import address, asked
from tests.integration.test_quota_topic import alter, quotas, said, settings_of, sharing
from tests.unit.quota_api.written import alteration, altered

from kvota.app.gateway_process import GatewayProcess
from kvota.client import Cluster
from kvota.client.record_batches import Row
from kvota.localkafka import LocalKafka
from kvota.model.address import Address
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import UnreachableError
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_topic import QuotaTopic
from kvota.store.topic_store import TopicStore
from kvota.testing.manual_clock import ManualClock
from kvota.wire.apis import INCREMENTAL_ALTER_CONFIGS

RATE = "producer_byte_rate"
TOPIC, BROKER = 2, 4
COMPACTED_S = 120.0


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(COMPACTED_S):
        while not await is_so():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.1)


def named(kafka: LocalKafka, name: str, kind: type[QuotaTopic] = QuotaTopic) -> QuotaTopic:
    return kind(name, lambda: Cluster(kafka.bootstrap_servers.split(",")))


async def rows_of(topic: QuotaTopic) -> list[tuple[str, float | str | None]]:
    """Of whom each row is, and what it says, in their order."""
    rows = [row async for decoded in topic.all_rows() for row in decoded.rows]
    found = []
    for row in rows:
        assert isinstance(row, Row)
        key = json.loads(row.key or b"")
        value = None if row.value is None else json.loads(row.value)["value"]
        found.append((key.get("user") or key["setting"], value))
    return found


# ------------------------------------------------------------------ sent twice


class Losing(QuotaTopic):
    """One whose next answer to a Produce is lost, and something happens before it is sent again."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def append(self, batch: bytes, count: int) -> int:
        last = await super().append(batch, count)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
            msg = "its answer was lost"
            raise UnreachableError(msg)
        return last


@asynccontextmanager
async def following(topic: QuotaTopic, snapshot: Path) -> AsyncIterator[TopicStore]:
    store = TopicStore(topic, snapshot, clock=ManualClock())
    store.begin(lambda _: None)
    task = asyncio.create_task(store.follow())
    try:
        async with asyncio.timeout(60):
            while store.refusal is not None:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.02)
        yield store
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await store.end()


async def stored(store: TopicStore, user: str, value: float) -> Refusal | None:
    answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    change = KeyChange(QuotaEntity(user=user), RATE, value)
    store.alter(StoreQuotas([change], "admin"), answer.set_result)
    return await answer


async def test_what_is_altered_elsewhere_while_an_answer_is_lost_is_not_undone(
    kafka3: LocalKafka, tmp_path: Path
) -> None:
    topic = named(kafka3, "quotas-sent-twice", Losing)
    assert isinstance(topic, Losing)
    async with (
        following(topic, tmp_path / "a.json") as first,
        following(named(kafka3, topic.name), tmp_path / "b.json") as second,
    ):
        assert await stored(first, "alice", 1.0) is None
        topic.meanwhile = lambda: stored(second, "alice", 7.0)

        assert await stored(first, "alice", 5.0) is None

        assert await stored(first, "bob", 6.0) is None
        expected = [("alice", 1.0), ("alice", 5.0), ("alice", 7.0), ("bob", 6.0)]
        assert await rows_of(topic) == expected
        assert first.quotas.value(QuotaEntity(user="alice"), RATE) == 7.0


# ------------------------------------------------------------------ compaction

COMPACTED, ROLLS = "quotas-compacted", "rolls"
USERS = [f"user-{number}" for number in range(20)]
GONE, KEPT = USERS[:8], USERS[8:]
# A segment is closed by the next append, and whatever is closed is compacted at once.
AT_ONCE = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
# Of all brokers: how long their cleaners rest, 15 s else.
REST = "log.cleaner.backoff.ms"


async def configure(
    kafka: LocalKafka, kind: int, name: str, values: Mapping[str, str | None]
) -> None:
    """Settings of a topic or of all brokers; None: the default."""
    configs = [
        {"name": key, "config_operation": int(value is None), "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    async with Cluster(kafka.bootstrap_servers.split(",")) as cluster:
        content = {"resources": [resource], "validate_only": False}
        answer = await cluster.ask(INCREMENTAL_ALTER_CONFIGS, content)
        assert [int(each.error_code) for each in answer.responses] == [0], answer
    if kind == TOPIC:  # what is appended next is treated by what the broker knows then
        for node in kafka.nodes:
            await until(lambda of=node: has_settings(of.address, name, values))  # type: ignore[misc]


async def has_settings(node: Address, topic: str, values: Mapping[str, str | None]) -> bool:
    found = await asyncio.to_thread(settings_of, node, topic)
    return all(found.get(key) == value for key, value in values.items())


@pytest.fixture
async def eager_cleaner(kafka: LocalKafka) -> AsyncIterator[LocalKafka]:
    await configure(kafka, BROKER, "", {REST: "100"})
    yield kafka
    await configure(kafka, BROKER, "", {REST: None})


def set_all(client: RawClient, users: Iterable[str], value: float | None) -> None:
    """As one batch."""
    told = altered(asked(client, alteration(*(({"user": user}, {RATE: value}) for user in users))))
    assert {code for _, code, _ in told} == {0}


async def is_compacted(process: GatewayProcess, topic: QuotaTopic, *, tombstones: bool) -> bool:
    """Whether what can be forgotten is; what was appended last is never compacted."""
    assert alter(process, ROLLS, None) == (0, None)
    rows = [row for row in (await rows_of(topic))[:-2] if row[0] != ROLLS]
    removed = {name for name, value in rows if value is None}
    if len({name for name, _ in rows}) < len(rows):
        return False
    # The last tombstone may still be among those that were appended last.
    here = removed & {*GONE, NUM}
    return here == {*GONE, NUM} if tombstones else not here


def remove_all(process: GatewayProcess) -> None:
    with RawClient(address(process)) as client:
        set_all(client, GONE, None)
        for num in ("5", None):
            assert alter_settings(client, {NUM: num}) == (0, None)


def keep_older(folder: Path) -> None:
    """What a gateway has had that was away since then."""
    older = {QuotaEntity(user=user): {RATE: 3.0} for user in (*USERS, "nobody-has-heard-of")}
    folder.mkdir()
    (folder / "quotas.json").write_bytes(QuotaDocument(ClientQuotas(older), {NUM: "3"}).content())


async def starts_with_the_same(folder: Path, kafka: LocalKafka, process: GatewayProcess) -> None:
    """And goes on from there."""
    keep_older(folder)
    with sharing(folder, kafka, COMPACTED) as other:
        await asyncio.to_thread(said, other, "has been read: quotas of")
        assert quotas(other) == quotas(process)
        with RawClient(address(other)) as client:
            assert NUM not in dynamic(client)
        assert alter(other, "another", 8.0) == (0, None)


@pytest.mark.timeout(400)
async def test_a_gateway_that_starts_after_compaction_has_exactly_the_same(
    eager_cleaner: LocalKafka, tmp_path: Path
) -> None:
    """Also where removed quotas have left nothing, and where it was away since before."""
    topic = named(eager_cleaner, COMPACTED)
    with sharing(tmp_path / "a", eager_cleaner, COMPACTED) as process:
        said(process, "has been read: quotas of")
        with RawClient(address(process)) as client:
            for value in (1.0, 2.0, 3.0):
                set_all(client, USERS, value)
            set_all(client, KEPT, 4.0)
        remove_all(process)
        before = quotas(process)
        assert before == {user: {RATE: 4.0} for user in KEPT}
        try:
            await configure(eager_cleaner, TOPIC, COMPACTED, AT_ONCE)
            await until(lambda: is_compacted(process, topic, tombstones=True))
            await starts_with_the_same(tmp_path / "b", eager_cleaner, process)

            # A tombstone stays for as long as was said when it was first seen: these are others.
            await configure(eager_cleaner, TOPIC, COMPACTED, {"delete.retention.ms": "0"})
            remove_all(process)
            await until(lambda: is_compacted(process, topic, tombstones=False))
            await starts_with_the_same(tmp_path / "c", eager_cleaner, process)
        finally:
            await topic.close()
        assert quotas(process) == before | {"another": {RATE: 8.0}}
