"""The gateway's own look at the cluster: told to who wants to know, kept while nobody answers, said once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.unit.gateway.own_callback import OwnCallback
from tests.unit.gateway.world import World, Worlds, until

from kvota.callbacks import ChosenCallback, ClusterView, TopicView
from kvota.gateway import callback_in_force
from kvota.gateway import cluster_watch as module
from kvota.gateway.cluster_watch import ClusterWatch
from kvota.model.errors import KvotaError, UnreachableError, UsageError
from kvota.testing.manual_clock import ManualClock

SHARE = ChosenCallback(
    "kvota.callbacks.PartitionShareQuotaCallback", {"client.quota.callback.share.separator": "_"}
)
ONE, TWO = (ClusterView(topics={"a_1": TopicView("a_1", leaders)}) for leaders in ((1, 1), (1, 2)))


FAILED = "cluster: topics and leaders cannot be looked at: nobody is there"


class Looks:
    """What a test says the cluster is; an error is raised."""

    def __init__(self) -> None:
        self.size_bytes = 100
        self.now: ClusterView | KvotaError = ONE
        self.partitions: int | KvotaError | None = 7
        self.count = 0

    async def look(self) -> ClusterView:
        self.count += 1
        if isinstance(self.now, KvotaError):
            raise self.now
        return self.now

    async def default_partitions(self, view: ClusterView) -> int | None:
        if isinstance(self.partitions, KvotaError):
            raise self.partitions
        return self.partitions


class Watched:
    """A gateway, and a watch whose looks are a test's."""

    def __init__(self, world: World, make: Callable[[], Awaitable[Looks]], *, always: bool) -> None:
        self.world = world
        self.clock = ManualClock()
        facts = world.shared.facts
        self.watch = ClusterWatch(
            make, world.gateway.quota_callback, facts, clock=self.clock, always=always
        )
        self.task = asyncio.get_running_loop().create_task(self.watch.run())

    @property
    def is_stale_by_metric(self) -> bool:
        return self.world.shared.facts.cluster_is_old

    @property
    def default_partitions(self) -> int | None:
        return self.world.shared.facts.default_partitions(self.clock.now_ms())


@pytest.fixture
def looks() -> Looks:
    return Looks()


Watch = Callable[..., Watched]


@pytest.fixture
async def watch(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    for name in ("_PAUSE_S", "_RETRY_S"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(module, "_STALE_S", 0.1)
    for name in ("_LOOK_S", "_WARM_S"):  # a callback waits for its first look, and to be told of it
        monkeypatch.setattr(callback_in_force, name, 10.0)
    made: list[Watched] = []

    async def made_at_once() -> Looks:
        return looks

    def watch(
        world: World, *, always: bool = True, make: Callable[[], Awaitable[Looks]] = made_at_once
    ) -> Watched:
        made.append(Watched(world, make, always=always))
        return made[-1]

    yield watch
    for each in made:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)


async def test_a_callback_is_told_of_each_cluster_that_is_another_one(
    worlds: Worlds, watch: Watch, looks: Looks
) -> None:
    callback = OwnCallback()
    watched = watch(await worlds(callback=callback), always=False)
    await until(lambda: callback.of("update_cluster_metadata") == [(ONE,)])
    looks_before = looks.count
    await until(lambda: looks.count > looks_before + 5)

    looks.now = TWO

    await until(lambda: callback.of("update_cluster_metadata") == [(ONE,), (TWO,)])
    assert watched.watch.view is TWO


async def test_nobody_looks_while_nobody_wants_to_know(
    worlds: Worlds, watch: Watch, looks: Looks
) -> None:
    world = await worlds()
    watch(world, always=False)
    await asyncio.sleep(0.05)
    assert looks.count == 0

    await world.gateway.quota_callback.change(SHARE)

    # It was waited for: the first charge has the right share.
    assert looks.count > 0
    assert world.engine.callback.share("a", 2) == 0.5  # type: ignore[attr-defined]
    await world.gateway.quota_callback.change(ChosenCallback())
    await asyncio.sleep(0.05)
    count = looks.count
    await asyncio.sleep(0.05)
    assert looks.count == count


async def test_a_callback_that_comes_where_nobody_answers_is_not_waited_for_longer_than_a_second(
    worlds: Worlds, watch: Watch, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvota.gateway.callback_in_force._LOOK_S", 0.05)
    looks.now = UnreachableError("nobody is there")
    world = await worlds()
    watch(world, always=False)

    await world.gateway.quota_callback.change(SHARE)

    assert world.engine.callback.share("a", 2) == 1.0  # type: ignore[attr-defined]
    await until(lambda: world.shared.facts.cluster_is_old)  # and that is shown
    looks.now = ONE
    await until(lambda: world.engine.callback.share("a", 2) == 0.5)  # type: ignore[attr-defined]
    assert not world.shared.facts.cluster_is_old


async def test_who_wants_to_know_later_is_not_told_what_was_so_before(
    worlds: Worlds, watch: Watch, looks: Looks
) -> None:
    world = await worlds()
    watched = watch(world, always=False)
    await world.gateway.quota_callback.change(SHARE)
    looks.now = UnreachableError("nobody is there")
    await until(lambda: watched.is_stale_by_metric)

    await world.gateway.quota_callback.change(ChosenCallback())

    await until(lambda: not watched.is_stale_by_metric)
    assert watched.watch.view is None
    assert world.shared.facts.cluster == ClusterView()
    looks.now = TWO
    await world.gateway.quota_callback.change(SHARE)
    assert world.engine.callback.share("a", 1) == 0.5  # type: ignore[attr-defined]


async def test_while_nobody_answers_what_was_known_stays_and_is_marked_and_said_once(
    worlds: Worlds, watch: Watch, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    callback = OwnCallback()
    watched = watch(await worlds(callback=callback))
    await until(lambda: watched.watch.view is ONE)
    await until(lambda: bool(callback.of("update_cluster_metadata")))  # told on a thread of its own

    looks.now = UnreachableError("nobody is there")
    await until(lambda: callback.of("update_cluster_metadata")[-1][0].is_stale)  # type: ignore[attr-defined]
    count = looks.count
    await until(lambda: looks.count > count + 2)
    assert watched.watch.view is not None
    assert watched.watch.view.topics == ONE.topics
    assert watched.is_stale_by_metric
    looks.now = ONE
    await until(lambda: callback.of("update_cluster_metadata")[-1] == (ONE,))
    assert not watched.is_stale_by_metric

    said = [text for text in caplog.messages if text.startswith("cluster: ")]
    assert said == [
        f"{FAILED}; what was known last stays in force",
        "cluster: what is known of topics and leaders is old by now, and stays in force",
        "cluster: topics and leaders can be looked at again",
    ]


async def test_what_topics_cost_is_known_without_asking_as_their_callers(
    worlds: Worlds, watch: Watch, looks: Looks
) -> None:
    world = await worlds()
    watched = watch(world)

    await until(lambda: watched.default_partitions is not None)

    assert watched.default_partitions == 7
    assert not world.shared.facts.should_ask(watched.clock.now_ms())
    assert world.shared.facts.seen_partitions("a_1") == 2
    assert world.shared.facts.seen_partitions("b") is None
    assert world.shared.facts.seen_partitions(b"id") is None


@pytest.mark.parametrize("partitions", [None, UsageError("cluster_authorization_failed (31)")])
async def test_who_may_not_see_settings_sees_topics_all_the_same(
    worlds: Worlds, watch: Watch, looks: Looks, partitions: KvotaError | None
) -> None:
    looks.partitions = partitions
    watched = watch(await worlds())

    await until(lambda: looks.count > 2)

    assert watched.watch.view is ONE
    assert watched.default_partitions is None


async def test_a_large_cluster_is_looked_at_less_often(
    worlds: Worlds, watch: Watch, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_S", 1_000)
    looks.size_bytes = 20_000
    watch(await worlds())
    await until(lambda: looks.count == 1)

    await asyncio.sleep(0.1)

    assert looks.count == 1


async def test_settings_that_cannot_be_used_are_said_and_traffic_goes_on(
    worlds: Worlds, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    async def make() -> Looks:
        msg = "sasl.mechanism: X cannot be spoken"
        raise UsageError(msg)

    watched = watch(await worlds(), make=make)
    await watched.task

    assert "cluster: topics and leaders are not looked at: sasl.mechanism" in caplog.text
