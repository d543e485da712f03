"""A running gateway and its quota callback: another one takes over, and none holds anybody up."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.gateway.own_callback import OwnCallback, fails
from tests.unit.gateway.world import World, Worlds, reasons_of, until

from kvota.callbacks import (
    ChosenCallback,
    ClusterView,
    DefaultQuotaCallback,
    Tags,
    TopicView,
    own_module,
)
from kvota.engine import Question
from kvota.gateway import callback_in_force, callback_loading
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session import caller
from kvota.session.pausing import Reason
from kvota.testing.frames import produce, produce_answer
from kvota.testing.stage import quotas

P = QuotaType.PRODUCE
GROUP = "kvota.callbacks.GroupQuotaCallback"
GROUP_OF_ALL = {"client.quota.callback.group.all.user.pattern": ".*"}
# What an OwnCallback was made for, by the name of its class; so that a test has the instance.
MADE: list[OwnCallback] = []

OWN_MODULE = """
from tests.unit.gateway.own_callback import OwnCallback, fails, sleeps
from tests.unit.gateway import test_callback_in_force as test

class Own(OwnCallback):
    def __init__(self):
        super().__init__()
        test.MADE.append(self)

class Generous(Own):
    def quota_limit(self, quota_type, tags):
        return 1e9

class Unconfigured(Own):
    def configure(self, properties):
        fails()

class Slow(Own):
    def configure(self, properties):
        sleeps()
"""


@pytest.fixture(autouse=True)
def module_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_quotas.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tests.unit.gateway.test_callback_in_force", sys.modules[__name__])  # fmt: skip
    MADE.clear()
    yield
    sys.modules.pop("own_quotas", None)
    own_module._imported.pop("own_quotas", None)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's own rules do not take over because the machine is busy."""
    monkeypatch.setattr(caller, "ASK_MS_MAX", 15_000)
    monkeypatch.setattr(callback_in_force, "_WARM_S", 10.0)


def own(name: str = "Own", **properties: str) -> ChosenCallback:
    return ChosenCallback(f"own_quotas.{name}", properties)


async def tags_of_next(world: World, client_id: str = "app") -> tuple[str, float | None]:
    """Of which counter a request on a new connection is charged, and under which limit."""
    client = await world.connect()
    assert await client.ask(produce(client=client_id)) == produce_answer()
    memo = world.sink.rows[-1].memo
    client.writer.close()
    return memo.tags, memo.limit


# ------------------------------------------------------------------ another one takes over


async def test_open_connections_go_on_under_the_new_one(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1e9))
    clients = [await world.connect() for _ in range(20)]
    for client in clients:
        assert await client.ask(produce()) == produce_answer()
    before = {row.memo.tags for row in world.sink.rows}

    await world.gateway.quota_callback.change(own())

    for client in clients:
        assert await client.ask(produce()) == produce_answer()
    now = {(row.memo.tags, row.memo.limit) for row in world.sink.rows[20:]}
    assert before == {"client-id=,user=ANONYMOUS"}
    assert now == {("team=app", 1e9)}
    assert world.open_connections == 20
    # It was asked about the one client there is, before it took over.
    assert len(MADE[0].of("quota_metric_tags")) == 1


async def test_it_is_configured_told_and_asked_in_the_order_of_kip_257(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=5e8))
    cluster = ClusterView(topics={"t": TopicView("t", (1, 2))})
    world.gateway.quota_callback.tell_cluster(cluster)
    client = await world.connect()
    await client.ask(produce())

    await world.gateway.quota_callback.change(own(x="1"))

    (callback,) = MADE
    methods = [call[0] for call in callback.calls if call[0] != "quota_reset_required"]
    assert methods == [
        "configure",
        "update_quota",
        "update_cluster_metadata",
        "quota_metric_tags",
        "quota_limit",
    ]
    assert callback.of("configure") == [({"x": "1"},)]
    assert callback.of("update_quota") == [(P, QuotaEntity(user=DEFAULT), 5e8)]
    assert callback.of("update_cluster_metadata") == [(cluster,)]
    assert callback.of("quota_metric_tags") == [(P, "ANONYMOUS", "app")]
    assert callback.of("quota_limit") == [(P, {"team": "app"})]


async def test_the_old_one_is_closed_once_when_nobody_asks_it_any_more(worlds: Worlds) -> None:
    world = await worlds()
    in_force = world.gateway.quota_callback
    await in_force.change(own())
    (old,) = MADE
    old.waits.add("quota_metric_tags")
    client = await world.connect()
    client.send(produce())
    await until(lambda: old.of("quota_metric_tags"))

    await in_force.change(own())
    assert await client.frame() == produce_answer()  # the new one was asked

    assert old.of("close") == []
    old.gate.set()
    await until(lambda: old.of("close"))
    await in_force.change(ChosenCallback(GROUP, GROUP_OF_ALL))
    await until(lambda: MADE[1].of("close"))
    assert [len(each.of("close")) for each in MADE] == [1, 1]


async def test_the_one_in_force_is_closed_when_the_gateway_ends(worlds: Worlds) -> None:
    world = await worlds()
    await world.gateway.quota_callback.change(own())

    await world.stop()

    assert MADE[0].of("close") == [()]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (own("Nobody"), "client.quota.callback.class: own_quotas has no Nobody"),
        (ChosenCallback("no_such_module.X"), "no_such_module cannot be imported"),
        (own("Unconfigured"), "Unconfigured.configure raises LookupError: no directory of users"),
        (ChosenCallback(GROUP), r"client\.quota\.callback\.group\.\*: there is no group"),
    ],
)
async def test_one_that_cannot_be_had_leaves_the_old_one_in_force(
    worlds: Worlds, chosen: ChosenCallback, said: str
) -> None:
    world = await worlds()
    await world.gateway.quota_callback.change(own())

    with pytest.raises(UsageError, match=said):
        await world.gateway.quota_callback.change(chosen)

    assert await tags_of_next(world) == ("team=app", 1_000.0)
    assert MADE[0].of("close") == []


async def test_one_that_takes_too_long_to_be_made_is_left_and_closed_in_the_end(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_loading, "LOAD_S", 0.05)
    world = await worlds()
    monkeypatch.setattr("tests.unit.gateway.own_callback.time.sleep", lambda _: MADE[0].gate.wait(20))  # fmt: skip

    with pytest.raises(UsageError, match="has not been made and configured within 0\\.05 s"):
        await world.gateway.quota_callback.change(own("Slow"))

    await until(lambda: MADE)  # its thread may be that late
    MADE[0].gate.set()
    await until(lambda: MADE[0].of("close"))
    assert isinstance(world.gateway.quota_callback.callback, DefaultQuotaCallback)


async def test_quotas_that_change_while_it_is_made_are_told_it_too(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await worlds(table=quotas(PRODUCE=5e8))
    in_force = world.gateway.quota_callback
    prepared = await in_force.prepare(own(), world.engine.quotas)
    world.shared.replace_quotas(quotas(PRODUCE=7e8))

    in_force.put_in_force(prepared)

    assert world.engine.quotas == quotas(PRODUCE=7e8)
    await until(lambda: MADE[0].of("update_quota")[-1:] == [(P, QuotaEntity(user=DEFAULT), 7e8)])
    assert await tags_of_next(world) == ("team=app", 7e8)


async def test_back_to_kafkas_own_rules_with_the_quotas_of_now(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=5e8))
    in_force = world.gateway.quota_callback
    await in_force.change(own())
    world.shared.replace_quotas(quotas(PRODUCE=7e8))

    await in_force.change(ChosenCallback())
    await in_force.change(ChosenCallback())  # and it does not matter how often

    assert await tags_of_next(world) == ("client-id=,user=ANONYMOUS", 7e8)
    world.shared.replace_quotas(quotas(PRODUCE=8e8))
    assert await tags_of_next(world) == ("client-id=,user=ANONYMOUS", 8e8)


@pytest.mark.parametrize(
    "chosen", [own("Generous"), ChosenCallback(GROUP, GROUP_OF_ALL)], ids=["own", "kvotas"]
)
async def test_who_is_muted_goes_on_when_the_new_one_has_more_for_it(
    worlds: Worlds, chosen: ChosenCallback
) -> None:
    world = await worlds(table=quotas(PRODUCE=10))
    client = await world.connect()
    await client.ask(produce())
    client.send(produce())
    await until(lambda: any(reasons_of(driver) & Reason.MUTED for driver in world.drivers))

    await world.gateway.quota_callback.change(chosen)

    assert await asyncio.wait_for(client.frame(), 5) == produce_answer()


async def test_who_waits_in_line_goes_on_when_the_new_one_has_more_for_it(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=10))
    world.engine.replace_countings({}, {P: BucketSettings(burst_ms=1_000, debt_max_ms=1_000)})
    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        client.send(produce())
    await until(lambda: any(reasons_of(driver) & Reason.IN_LINE for driver in world.drivers))

    await world.gateway.quota_callback.change(ChosenCallback(GROUP, GROUP_OF_ALL))

    for client in clients:
        frame = await asyncio.wait_for(client.frame(), 5)
        assert len(frame) == len(produce_answer())


async def test_one_that_is_left_while_it_is_prepared_is_closed(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await worlds()
    in_force = world.gateway.quota_callback
    waits = asyncio.Event()

    async def for_ever(_host: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(in_force, "_cluster_for", for_ever)
    preparing = asyncio.create_task(in_force.change(own()))
    await waits.wait()

    preparing.cancel()

    await until(lambda: MADE[0].of("close"))
    assert isinstance(in_force.callback, DefaultQuotaCallback)


async def test_changes_take_turns_and_the_last_one_stays(worlds: Worlds) -> None:
    world = await worlds()
    in_force = world.gateway.quota_callback

    await asyncio.gather(
        *(in_force.change(own(number=str(number))) for number in range(5)),
        in_force.change(ChosenCallback(GROUP, GROUP_OF_ALL)),
    )

    assert await tags_of_next(world) == ("group=all", None)
    await until(lambda: all(each.of("close") for each in MADE))


# ------------------------------------------------------------------ whatever it does


async def until_known(world: World) -> None:
    """Whoever is asked about is answered."""
    await until(lambda: not world.engine.due_questions())


async def test_what_changes_by_other_means_is_in_force_soon(worlds: Worlds) -> None:
    callback = OwnCallback()
    world = await worlds(callback=callback)
    client = await world.connect()
    await client.ask(produce())
    callback.limit = 5e8
    callback.resets.add(P)

    await until(lambda: callback.of("quota_limit")[1:])
    await until_known(world)

    await client.ask(produce())
    assert [row.memo.limit for row in world.sink.rows] == [1_000.0, 5e8]


async def test_limits_that_differ_from_broker_to_broker_follow_the_cluster(worlds: Worlds) -> None:
    share = {
        "client.quota.callback.group.web.user.pattern": ".*",
        "client.quota.callback.group.web.topics": "orders",
    }
    world = await worlds(brokers=2)
    in_force = world.gateway.quota_callback
    in_force.tell_cluster(ClusterView(topics={"orders": TopicView("orders", (1, 1, 1, 2))}))
    await in_force.change(ChosenCallback("kvota.callbacks.PartitionShareQuotaCallback", share))
    world.shared.replace_quotas(quotas(QuotaEntity(user="group:web"), PRODUCE=4e8))
    clients = [await world.connect(node_id) for node_id in (1, 2)]
    for client in clients:
        await client.ask(produce())

    in_force.tell_cluster(ClusterView(topics={"orders": TopicView("orders", (1, 2, 2, 2))}))

    lanes = list(world.engine._counters.of_type(P))
    await until(lambda: {lane.node_id: lane.limit for lane in lanes} == {1: 1e8, 2: 3e8})
    for client in clients:
        await client.ask(produce())
    limits = [(row.memo.node_id, row.memo.limit) for row in world.sink.rows]
    assert limits == [(1, 3e8), (2, 1e8), (1, 1e8), (2, 3e8)]


NONSENSE = [float("nan"), -1.0, "8MB/s", True, 10**400]


@pytest.mark.parametrize("limit", NONSENSE, ids=["nan", "negative", "text", "bool", "huge"])
async def test_nonsense_leaves_the_last_good_answer_in_force(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, limit: object
) -> None:
    callback = OwnCallback(5e8)
    world = await worlds(callback=callback)
    client = await world.connect()
    await client.ask(produce())
    callback.acts["quota_limit"] = lambda: limit
    callback.resets.add(P)

    await until(lambda: world.gateway.quota_callback.fault_counts)
    await client.ask(produce())

    assert [row.memo.limit for row in world.sink.rows] == [5e8, 5e8]
    assert "failed in quota_limit: tests.unit.gateway.own_callback.OwnCallback.quota_limit answered" in caplog.text  # fmt: skip
    assert world.open_connections == 1


@pytest.mark.parametrize(
    "tags",
    ["user=alice", {"user": 5}, {7: "a"}, None.__class__, {"a": "\ud800"}, {"a": "x" * 20_000}],
    ids=["text", "number", "key", "class", "surrogate", "long"],
)
async def test_tags_that_are_none_let_the_client_count_by_kafkas_own_rules(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, tags: object
) -> None:
    callback = OwnCallback(5e8)
    callback.acts["quota_metric_tags"] = lambda: tags
    world = await worlds(callback=callback, table=quotas(PRODUCE=7e8))

    assert await tags_of_next(world) == ("client-id=,user=ANONYMOUS", 7e8)
    assert "failed in quota_metric_tags: " in caplog.text


async def test_one_that_fails_is_asked_again_and_counts_as_soon_as_it_answers(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvota.gateway.callback_retries._PAUSE_S", 0.05)
    callback = OwnCallback(5e8)
    callback.acts["quota_limit"] = fails
    world = await worlds(callback=callback, table=quotas(PRODUCE=7e8))
    client = await world.connect()
    await client.ask(produce())

    del callback.acts["quota_limit"]
    await until_known(world)

    await client.ask(produce())
    assert [row.memo.limit for row in world.sink.rows] == [7e8, 5e8]


async def test_who_counts_by_kafkas_own_rules_follows_their_quotas(worlds: Worlds) -> None:
    callback = OwnCallback()
    callback.acts["quota_limit"] = fails
    world = await worlds(callback=callback, table=quotas(PRODUCE=7e8))
    client = await world.connect()
    await client.ask(produce())

    world.shared.replace_quotas(quotas(PRODUCE=8e8))
    (lane,) = world.engine._counters.of_type(P)
    await until(lambda: lane.limit == 8e8)

    await client.ask(produce())
    assert [row.memo.limit for row in world.sink.rows] == [7e8, 8e8]


class Steady(OwnCallback):
    """Says 5e8 of everybody, whatever it is told of quotas: so no other limit is an answer of its own."""

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        super().quota_limit(quota_type, tags)
        return 5e8


@pytest.mark.parametrize("method", ["quota_metric_tags", "quota_limit", "update_quota", "quota_reset_required", "update_cluster_metadata"])  # fmt: skip
async def test_one_that_hangs_in_any_method_holds_up_nobody_who_is_known(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    callback = Steady()
    world = await worlds(callback=callback, table=quotas(PRODUCE=7e8))
    clients = [await world.connect() for _ in range(5)]
    for client in clients:
        await client.ask(produce())
    monkeypatch.setattr(caller, "ASK_MS_MAX", 200)  # from here on: all five are known
    callback.calls.clear()
    callback.waits.add(method)
    world.gateway.quota_callback.tell_cluster(ClusterView())
    world.shared.replace_quotas(quotas(PRODUCE=8e8))
    await until(lambda: callback.of(method))
    asks = count_asks(world, monkeypatch)

    for _ in range(2):  # until one that is told something has been waited for, and behind that
        for client in clients:
            assert await client.ask(produce()) == produce_answer()
        await asyncio.sleep(0.3)
    known = {(row.memo.tags, row.memo.limit) for row in world.sink.rows}
    asked_of_known = list(asks)
    new = await asyncio.wait_for(tags_of_next(world, "new-1"), 5)

    assert asked_of_known == []  # nobody waits for what is not asked
    assert known == {("team=app", 5e8)}
    assert len(asks) == 1
    by_kafkas_rules = ("client-id=,user=ANONYMOUS", 8e8)
    is_asked_in_vain = method in {"quota_metric_tags", "quota_limit"}
    assert new in ({by_kafkas_rules} if is_asked_in_vain else {by_kafkas_rules, ("team=new", 5e8)})
    callback.gate.set()


def count_asks(world: World, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list of what requests wait for from now on."""
    asks: list[object] = []
    in_force = world.gateway.quota_callback
    ask = in_force.ask

    def counted(question: Question) -> asyncio.Future[object]:
        asks.append(question)
        return ask(question)

    monkeypatch.setattr(in_force, "ask", counted)
    return asks


@pytest.mark.parametrize("method", ["quota_metric_tags", "quota_limit", "update_quota", "remove_quota", "quota_reset_required", "update_cluster_metadata", "close"])  # fmt: skip
async def test_one_that_raises_in_any_method_ends_no_connection(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    callback = OwnCallback(5e8)
    world = await worlds(callback=callback, table=quotas(PRODUCE=7e8))
    in_force = world.gateway.quota_callback
    clients = [await world.connect() for _ in range(5)]
    for client in clients:
        await client.ask(produce())
    callback.acts[method] = fails

    in_force.tell_cluster(ClusterView())
    world.shared.replace_quotas(quotas(PRODUCE=8e8))
    await until(lambda: callback.of("update_quota"))
    world.shared.replace_quotas(ConfiguredQuotas())
    callback.resets.add(P)
    for client in clients:
        assert await client.ask(produce()) == produce_answer()
    faults = in_force.fault_counts
    if method == "close":
        await in_force.change(ChosenCallback())
        await until(lambda: callback.of("close"))
    else:
        await until(lambda: in_force.fault_counts.get(method))
        faults = in_force.fault_counts

    for client in clients:
        assert await client.ask(produce()) == produce_answer()
    assert world.open_connections == 5
    await until(lambda: f"OwnCallback failed in {method} (" in caplog.text)
    assert caplog.text.count(f"OwnCallback failed in {method} (") == 1
    assert set(faults) <= {method}


Change = Callable[[World], Awaitable[None]]


async def test_a_callback_of_somebody_elses_is_never_called_on_the_event_loop(
    worlds: Worlds,
) -> None:
    class AtOnce(OwnCallback):
        answers_at_once = True  # nobody believes it

    callback = AtOnce(5e8)
    world = await worlds(callback=callback)
    await tags_of_next(world)
    world.shared.replace_quotas(quotas(PRODUCE=8e8))
    world.gateway.quota_callback.tell_cluster(ClusterView())
    await until(lambda: callback.of("update_cluster_metadata"))
    await until(lambda: callback.of("update_quota"))

    assert callback.threads == {"kvota-callback", "kvota-callback-told"}
