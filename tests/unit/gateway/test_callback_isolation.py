"""Whatever a quota callback does, in whichever of its methods: only its own threads notice.

Each row of the table is one method and one way to fail in it, in a gateway with clients that it knows and one that is new.
"""

import asyncio
import itertools
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.gateway.world import World, until

from kvota.callbacks import (
    ClientQuotaCallback,
    ClusterView,
    DefaultQuotaCallback,
    QuotaEntity,
    QuotaType,
    Tags,
)
from kvota.gateway import callback_asking, callback_in_force, callback_telling
from kvota.model.bucket_settings import BucketSettings
from kvota.session import caller
from kvota.testing.frames import fetch, produce, produce_answer
from kvota.testing.stage import quotas

P = QuotaType.PRODUCE
GOOD, DEFAULT = 5e8, 7e8
KNOWN = 3


class Hostile(ClientQuotaCallback):
    """Gives everybody a counter of one's own and one limit, but where ``acts`` has something else for a method."""

    def __init__(self) -> None:
        self.acts: dict[str, Callable[[], object]] = {}
        self.calls: dict[str, int] = {}
        self.gate = threading.Event()

    def _do(self, method: str, good: object) -> Any:
        self.calls[method] = self.calls.get(method, 0) + 1
        return self.acts[method]() if method in self.acts else good

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        return self._do("quota_metric_tags", {"client": client_id})  # type: ignore[no-any-return]

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        return self._do("quota_limit", GOOD)  # type: ignore[no-any-return]

    def broker_limit(self, quota_type: QuotaType, tags: Tags, node_id: int) -> float | None:
        return self._do("broker_limit", self.quota_limit(quota_type, tags))  # type: ignore[no-any-return]

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        self._do("update_quota", None)

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        self._do("remove_quota", None)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        # One says so whatever becomes of it: so everybody is asked about again and again.
        return self._do("quota_reset_required", True)  # type: ignore[no-any-return]

    def update_cluster_metadata(self, cluster: ClusterView) -> bool:
        return self._do("update_cluster_metadata", False)  # type: ignore[no-any-return]

    def enabled(self, quota_type: QuotaType) -> bool:
        return self._do("enabled", True)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._do("close", None)


class Unspeakable(Exception):  # noqa: N818  (it is no ordinary error)
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RecursionError

    __repr__ = __str__


def raises(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


def answers(value: object) -> Callable[[], object]:
    return lambda: value


HUGE = 10**400
RAISED: Mapping[str, BaseException] = {
    "raises": LookupError("no directory of users"),
    "exits": SystemExit(3),
    "interrupts": KeyboardInterrupt(),
    "ends a generator": GeneratorExit(),
    "cancels": asyncio.CancelledError(),
    "stops": StopIteration(7),
    "cannot be shown": Unspeakable(),
    "says much": ValueError("x" * 1_000_000),
}
ANSWERED: Mapping[str, object] = {
    "nan": math.nan,
    "negative": -1.0,
    "infinity": math.inf,
    "text": "8MB/s",
    "none": None,
    "huge": HUGE,
    "complex": 1j,
    "bytes": b"5",
    "a list": [("user", "alice")],
    "tags of numbers": {"user": 5},
    "tags of bytes": {b"user": b"alice"},
}
BEHAVIOURS: Mapping[str, Callable[[], object]] = {
    **{name: raises(error) for name, error in RAISED.items()},
    **{name: answers(value) for name, value in ANSWERED.items()},
}
METHODS = (
    "quota_metric_tags",
    "quota_limit",
    "broker_limit",
    "enabled",
    "update_quota",
    "remove_quota",
    "quota_reset_required",
    "update_cluster_metadata",
    "close",
)
# What is an answer there: of the limits these, of what returns nothing all, and of "enabled" whatever is true or not.
GOOD_ANSWERS: Mapping[str, frozenset[str]] = {
    "quota_limit": frozenset({"infinity", "none"}),
    "broker_limit": frozenset({"infinity", "none"}),
    "update_quota": frozenset(ANSWERED),
    "remove_quota": frozenset(ANSWERED),
    "enabled": frozenset(ANSWERED),
    "close": frozenset(ANSWERED),
}


def is_fault(method: str, behaviour: str) -> bool:
    return behaviour not in GOOD_ANSWERS.get(method, frozenset())


def counted_as(method: str) -> str:
    """A limit that is none is that of ``quota_limit``; what raises is counted where it does."""
    return "quota_limit" if method == "broker_limit" else method


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at some times a second is looked at at once; nobody who is only late counts as hung."""
    monkeypatch.setattr(caller, "ASK_MS_MAX", 60_000)
    for module in callback_asking, callback_telling:
        monkeypatch.setattr(module, "HANGS_S", 60.0)
    monkeypatch.setattr(callback_in_force, "LOOK_S", 0.01)
    monkeypatch.setattr("kvota.gateway.callback_retries._PAUSE_S", 0.02)


def hangs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on; longer than a busy machine keeps a thread that does not hang."""
    monkeypatch.setattr(caller, "ASK_MS_MAX", 100)
    for module in callback_asking, callback_telling:
        monkeypatch.setattr(module, "HANGS_S", 2.0)


@pytest.fixture
def callback() -> Iterator[Hostile]:
    callback = Hostile()
    yield callback
    callback.acts.clear()
    callback.gate.set()


@dataclass
class Stage:
    """A gateway with clients that the callback knows."""

    world: World
    callback: Hostile
    limit: float = DEFAULT

    async def __aenter__(self) -> "Stage":
        await self.world.__aenter__()
        self.clients = [await self.world.connect() for _ in range(KNOWN)]
        await self.all_are_answered()
        assert {row.memo.limit for row in self.world.sink.rows} == {GOOD}
        return self

    async def __aexit__(self, *error: object) -> None:
        self.callback.acts.clear()
        self.callback.gate.set()
        await self.world.__aexit__(*error)  # type: ignore[arg-type]

    async def all_are_answered(self) -> None:
        async with asyncio.timeout(10):
            for number, client in enumerate(self.clients):
                assert await client.ask(produce(client=f"known-{number}")) == produce_answer()

    async def everything_happens(self) -> None:
        """Each method but close is due, whatever becomes of it; and clients go on."""
        shared = self.world.shared
        self.world.gateway.quota_callback.tell_cluster(ClusterView(cluster_id=f"{self.limit}"))
        self.limit += 1
        changed = QuotaEntity(user="alice")
        shared.replace_quotas(quotas(PRODUCE=self.limit))
        shared.replace_quotas(quotas(changed, PRODUCE=self.limit))
        shared.replace_quotas(quotas(PRODUCE=self.limit))
        self.world.gateway.quota_callback._reset([P])
        await self.all_are_answered()


def staged(callback: Hostile) -> Stage:
    return Stage(World(callback=callback, table=quotas(PRODUCE=DEFAULT)), callback)


def said_of(caplog: pytest.LogCaptureFixture, method: str) -> list[str]:
    return [text for text in caplog.messages if f" {method}" in text and "quota callback" in text]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("method", METHODS)
async def test_a_failure_is_counted_and_said_once_and_nobody_notices(
    callback: Hostile, caplog: pytest.LogCaptureFixture, method: str, behaviour: str
) -> None:
    async with staged(callback) as stage:
        in_force = stage.world.gateway.quota_callback
        callback.acts[method] = BEHAVIOURS[behaviour]
        known, rows = counted_as(method), stage.world.sink.rows
        first = len(rows)
        if method != "close":
            for times in 1, 2:
                before = callback.calls.get(method, 0)
                await stage.everything_happens()
                await until(lambda before=before: callback.calls.get(method, 0) > before)
                if is_fault(method, behaviour):
                    await until(lambda t=times: sum(in_force.fault_counts.values()) >= t)
            faults = in_force.fault_counts
            limits = {row.memo.limit for row in rows[first:]}
            new = await stage.world.connect()
            async with asyncio.timeout(10):
                assert await new.ask(produce(client="new")) == produce_answer()
        else:
            await in_force.change(callback_in_force.ChosenCallback())
            await until(lambda: callback.calls.get("close"))
            if is_fault(method, behaviour):
                await until(lambda: in_force.fault_counts)
            faults, limits = in_force.fault_counts, {GOOD}
            await stage.all_are_answered()

        assert stage.world.open_connections >= KNOWN
        if is_fault(method, behaviour):
            # The last good answer stays.
            assert limits == {GOOD}
            await until(lambda: said_of(caplog, ""))
            assert len([text for text in caplog.messages if "quota callback Hostile" in text]) == 1
            assert list(faults) == [known if behaviour in ANSWERED else method]
            assert max(map(len, caplog.messages)) < 2_000
        else:
            assert faults == {}
            # No limit, or an infinite one, is none.
            assert limits <= {GOOD, None}
            assert not [text for text in caplog.messages if "failed in" in text]


@pytest.mark.parametrize("method", METHODS)
async def test_one_that_never_comes_back_is_counted_and_said_and_nobody_waits(
    callback: Hostile,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    async with staged(callback) as stage:
        hangs_soon(monkeypatch)  # those who are known have been asked about
        in_force = stage.world.gateway.quota_callback
        callback.acts[method] = lambda: callback.gate.wait(120)
        if method == "close":
            await in_force.change(callback_in_force.ChosenCallback())
            await until(lambda: callback.calls.get("close"))
            await stage.all_are_answered()
            assert isinstance(in_force.callback, DefaultQuotaCallback)
            await until(lambda: in_force.fault_counts)
        else:
            await stage.everything_happens()
            await until(lambda: in_force.fault_counts)
            await stage.everything_happens()
            new = await stage.world.connect()
            async with asyncio.timeout(10):
                assert await new.ask(produce(client="new")) == produce_answer()
            assert {row.memo.limit for row in stage.world.sink.rows[KNOWN:]} <= {GOOD, stage.limit}
        assert set(in_force.fault_counts) == {method}
        assert caplog.text.count(f"has not come back from {method}") == 1


async def test_what_is_counted_stays_counted_when_another_callback_comes(callback: Hostile) -> None:
    async with staged(callback) as stage:
        in_force = stage.world.gateway.quota_callback
        callback.acts["update_quota"] = callback.acts["close"] = raises(LookupError("gone"))
        await stage.everything_happens()
        await until(lambda: in_force.fault_counts.get("update_quota"))
        counted = in_force.fault_counts["update_quota"]

        await in_force.change(callback_in_force.ChosenCallback())

        assert in_force.fault_counts["update_quota"] >= counted
        await until(lambda: in_force.fault_counts.get("close") == 1)


async def test_a_limit_beyond_all_bounds_counts_as_one(callback: Hostile) -> None:
    for limit, buckets in itertools.product((1.7e308, math.inf), (False, True)):
        async with staged(callback) as stage:
            if buckets:
                bucket = BucketSettings(burst_ms=1_000, debt_max_ms=1_000)
                stage.world.engine.replace_countings({}, {P: bucket, QuotaType.FETCH: bucket})
            callback.acts["quota_limit"] = answers(limit)
            await stage.everything_happens()
            await until(lambda: not stage.world.engine.due_questions())
            client = stage.clients[0]
            async with asyncio.timeout(10):
                for _ in range(3):
                    await client.ask(produce(client="known-0"))
                    assert len(await client.ask(fetch(client="known-0"))) > 50
            assert {row.throttle_ms for row in stage.world.sink.rows} == {0}


# ------------------------------------------------------------------ tags of several users


Collide = Callable[[QuotaType, str, str], Tags]


@pytest.fixture
async def stage(callback: Hostile) -> AsyncIterator[Stage]:
    async with staged(callback) as stage:
        yield stage


async def tags_and_limit(stage: Stage, client_id: str) -> tuple[str, float | None]:
    client = await stage.world.connect()
    assert await client.ask(produce(client=client_id)) == produce_answer()
    memo = stage.world.sink.rows[-1].memo
    return memo.tags, memo.limit


async def test_texts_of_tags_that_look_alike_are_different_counters(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_client: Mapping[str, Tags] = {
        "one": {"a": "1,b=2"},
        "two": {"a": "1", "b": "2"},
        "three": {"a=1": "b=2"},
        "four": {"a": "1", "b": "2", "": ""},
        "five": {},
        "six": {"": ""},
    }
    monkeypatch.setattr(
        Hostile, "quota_metric_tags", lambda _s, _t, _u, client_id: by_client[client_id]
    )

    texts = [(await tags_and_limit(stage, client_id))[0] for client_id in by_client]

    assert len(set(texts)) == len(by_client)


async def test_users_with_one_counter_share_it_and_the_last_answer_is_its_limit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = iter([1e6, 2e6, 3e6])
    monkeypatch.setattr(Hostile, "quota_metric_tags", lambda *_: {"all": "one"})
    monkeypatch.setattr(Hostile, "quota_reset_required", lambda *_: False)
    stage.callback.acts["quota_limit"] = lambda: next(limits, 3e6)

    found = [await tags_and_limit(stage, client_id) for client_id in ("a", "b", "c")]

    assert {tags for tags, _ in found} == {"all=one"}
    lanes = [lane for lane in stage.world.engine._counters.of_type(P) if lane.tags == "all=one"]
    assert len({id(lane.counter) for lane in lanes}) == 1
    assert {lane.limit for lane in lanes} == {3e6}
