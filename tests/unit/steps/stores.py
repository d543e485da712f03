"""Alterations in both stores, on a loop that takes each step by itself: stored, put in force, told.

10,000 entities have quotas, and 5,000 clients are counted meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from tests.unit.steps.quota_messages import ENTITIES, KEY, quotas_of
from tests.unit.steps.stand import Measure
from tests.unit.store.test_topic_store import Kept

from kvota.model.client_quotas import KeyChange, of_engine
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.file_store import FileStore
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_rows import encode_rows
from kvota.store.quota_store import QuotaStore
from kvota.store.topic_store import TopicStore
from kvota.testing.manual_clock import START_MS, ManualClock
from kvota.testing.stage import Cluster

COUNTED = 5_000
STORES = ("file", "topic")


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Everything that it calls is a step."""

    measure = Measure()

    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        step = partial(self._take, callback, args)
        return super()._call_soon(step, (), context)  # type: ignore[misc]

    def _take(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.measure.take(
            getattr(callback, "__qualname__", "a task goes on"), partial(callback, *args)
        )


def run_measured(
    measure: Measure, work: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
) -> None:
    """``work`` is given what begins the measuring."""
    loop = MeasuredLoop()

    def begin() -> None:
        loop.measure = measure

    try:
        loop.run_until_complete(work(begin))
        loop.measure = Measure()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def counted() -> Cluster:
    """The quotas are in force, and there are clients who have them."""
    cluster = Cluster(quotas_of().configured())
    for number in range(COUNTED):
        lane = cluster.engine.lane(QuotaType.PRODUCE, 1, f"user-{number}", "app", START_MS)
        assert lane is not None
        lane.charge(1_000, START_MS)
    return cluster


def opened(source: str, path: Path) -> QuotaStore:
    quotas = quotas_of()
    if source == "file":
        path.write_bytes(QuotaDocument(quotas).content())
        return FileStore(path)
    rows = (
        KeyChange(entity, key, value)
        for entity, values in quotas.entries().items()
        for key, value in values.items()
    )
    return TopicStore(Kept(*encode_rows(rows)), path, clock=ManualClock())


def alter_in_store(measure: Measure, source: str, path: Path, *, count: int) -> Cluster:
    """So many users get another value in one request, measured from when it is stored to when it is answered."""
    cluster = counted()
    store = opened(source, path)

    async def work(begin: Callable[[], None]) -> None:
        store.begin(lambda changes: cluster.shared.change_quotas(tuple(of_engine(changes))))
        following = asyncio.create_task(store.follow())
        for _ in range(1_000):  # rounds of the loop, until a topic has been read
            await asyncio.sleep(0.01 * (store.refusal is not None))
        assert store.refusal is None
        assert len(store.quotas) == ENTITIES
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        changes = [KeyChange(QuotaEntity(user=f"user-{one}"), KEY, 2e6) for one in range(count)]
        begin()
        store.alter(StoreQuotas(changes, "somebody"), done.set_result)
        assert await done is None
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await store.end()

    run_measured(measure, work)
    entity = QuotaEntity(user=f"user-{count - 1}")
    assert cluster.engine.quotas.limit(entity, QuotaType.PRODUCE) == 2e6
    return cluster
