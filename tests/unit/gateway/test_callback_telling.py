"""What a quota callback is told, on one thread: in order, once, whatever it does."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.gateway.own_callback import OwnCallback, fails
from tests.unit.gateway.world import until

from kvota.callbacks import ClusterView, QuotaEntity, QuotaType
from kvota.gateway import callback_telling as module
from kvota.gateway.callback_faults import CallbackFaults, FaultCounts
from kvota.gateway.callback_telling import CallbackTelling
from kvota.model.configured_quotas import QuotaChange

P, F = QuotaType.PRODUCE, QuotaType.FETCH
ALICE, BOB = QuotaEntity(user="alice"), QuotaEntity(user="bob")


class Telling:
    """A callback that is told, and what it has brought about."""

    def __init__(self, *, asks_for_resets: bool = True) -> None:
        self.callback = OwnCallback()
        self.counted = FaultCounts()
        self.faults = CallbackFaults(self.callback, self.counted)
        self.changed: list[tuple[QuotaType, ...]] = []
        self.held = 0
        self.ended = asyncio.Event()
        self.telling = CallbackTelling(
            self.callback,
            asyncio.get_running_loop(),
            faults=self.faults,
            changed=self.changed.append,
            hold=lambda: self._hold(1),
            release=lambda: self._hold(0),
            asks_for_resets=asks_for_resets,
        )

    def _hold(self, held: int) -> None:
        self.held = held

    def end(self) -> None:
        self.telling.end(lambda: None, self.ended.set)


@pytest.fixture
async def told() -> AsyncIterator[Telling]:
    told = Telling()
    yield told
    told.callback.gate.set()
    told.callback.acts.clear()
    told.end()
    await asyncio.wait_for(told.ended.wait(), 10)


async def test_quotas_are_told_in_their_order_on_a_thread_of_its_own(told: Telling) -> None:
    told.telling.tell([QuotaChange(ALICE, P, 5.0), QuotaChange(BOB, F, 7.0)])
    told.telling.tell([QuotaChange(ALICE, P, None)])

    await until(lambda: told.callback.of("remove_quota"))
    assert told.callback.of("update_quota")[-1] == (F, BOB, 7.0)
    assert told.callback.of("remove_quota") == [(P, ALICE)]
    assert told.callback.threads == {"kvota-callback-told"}


async def test_of_a_quota_that_changes_while_it_hangs_only_the_last_value_is_told(
    told: Telling,
) -> None:
    told.callback.waits.add("update_quota")
    told.telling.tell([QuotaChange(BOB, P, 1.0)])
    await until(lambda: told.callback.calls)

    for limit in range(2, 1_000):
        told.telling.tell([QuotaChange(ALICE, P, float(limit))])
    told.callback.gate.set()

    await until(lambda: len(told.callback.of("update_quota")) == 2)
    assert told.callback.of("update_quota") == [(P, BOB, 1.0), (P, ALICE, 999.0)]


async def test_questions_are_held_until_it_has_been_told(told: Telling) -> None:
    told.callback.waits.add("update_quota")

    told.telling.tell([QuotaChange(ALICE, P, 5.0)])

    assert told.held
    await until(lambda: told.callback.calls)
    assert told.held
    told.callback.gate.set()
    await until(lambda: not told.held)


async def test_questions_do_not_wait_for_one_that_takes_long_and_are_asked_again_after_it(
    told: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HELD_S", 0.0)
    told.callback.waits.add("update_quota")
    told.telling.tell([QuotaChange(ALICE, P, 5.0)])
    await until(lambda: told.callback.calls)

    told.telling.look()

    assert not told.held
    told.callback.gate.set()
    await until(lambda: told.changed)
    assert told.changed[0] == tuple(QuotaType)


async def test_it_is_asked_for_resets_type_by_type(told: Telling) -> None:
    told.callback.resets |= {P, QuotaType.REQUEST}

    told.telling.look()

    await until(lambda: told.changed)
    assert told.changed == [(P, QuotaType.REQUEST)]
    assert [types for (types,) in told.callback.of("quota_reset_required")] == [
        QuotaType.PRODUCE,
        QuotaType.FETCH,
        QuotaType.REQUEST,
        QuotaType.CONTROLLER_MUTATION,
    ]


async def test_a_cluster_that_changes_limits_resets_all_types(told: Telling) -> None:
    cluster = ClusterView(cluster_id="c")
    told.telling.tell_cluster(cluster)
    await until(lambda: told.callback.of("update_cluster_metadata") == [(cluster,)])
    told.callback.acts["update_cluster_metadata"] = lambda: True

    told.telling.tell_cluster(cluster)

    await until(lambda: told.changed)
    assert told.changed == [tuple(QuotaType)]


@pytest.mark.parametrize("method", ["update_quota", "remove_quota", "quota_reset_required", "update_cluster_metadata"])  # fmt: skip
async def test_an_error_is_counted_logged_once_and_the_rest_is_told(
    told: Telling, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    told.callback.acts[method] = fails

    for limit in (5.0, 6.0):
        told.telling.tell([QuotaChange(ALICE, P, limit), QuotaChange(BOB, P, None)])
        told.telling.tell_cluster(ClusterView())
        told.telling.look()
        await until(lambda limit=limit: (P, ALICE, limit) in told.callback.of("update_quota"))
        await until(lambda: not told.held)

    await until(lambda: told.counted.by_method().get(method, 0) >= 2)
    assert list(told.counted.by_method()) == [method]
    messages = [m for m in caplog.messages if "kvota" in m or "quota callback" in m]
    assert len(messages) == 1
    assert f"the quota callback OwnCallback failed in {method} (" in messages[0]
    assert "no directory of users" in messages[0]
    assert len(told.callback.of("remove_quota")) == 2


@pytest.mark.parametrize("answer", ["no", float("nan"), 0, 1])
@pytest.mark.parametrize("method", ["quota_reset_required", "update_cluster_metadata"])
async def test_what_is_neither_yes_nor_no_is_an_error_and_a_no(
    told: Telling, caplog: pytest.LogCaptureFixture, method: str, answer: object
) -> None:
    told.callback.acts[method] = lambda: answer

    told.telling.tell_cluster(ClusterView())

    await until(lambda: told.counted.by_method().get(method))
    await until(lambda: not told.held)
    assert told.changed == []
    assert f"OwnCallback.{method} answered {answer!r}, not True or False" in caplog.messages[0]


async def test_who_hangs_is_said_once(
    told: Telling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANGS_S", 0.0)
    told.callback.waits.add("update_quota")
    told.telling.tell([QuotaChange(ALICE, P, 5.0)])
    await until(lambda: told.callback.calls)

    told.telling.look()
    told.telling.look()

    (message,) = caplog.messages
    assert "OwnCallback has not come back from update_quota" in message
    assert told.counted.by_method() == {"update_quota": 1}


async def test_it_is_closed_once_after_everything_else() -> None:
    told = Telling()
    before: list[str] = []
    told.telling.tell([QuotaChange(ALICE, P, 5.0)])

    told.telling.end(lambda: before.append("waited"), told.ended.set)
    told.telling.end(lambda: before.append("again"), told.ended.set)

    await asyncio.wait_for(told.ended.wait(), 10)
    assert [call[0] for call in told.callback.calls][-1] == "close"
    assert told.callback.of("close") == [()]
    assert before == ["waited"]


async def test_an_error_in_close_is_said(caplog: pytest.LogCaptureFixture) -> None:
    told = Telling()
    told.callback.acts["close"] = fails

    told.end()

    await asyncio.wait_for(told.ended.wait(), 10)
    assert "OwnCallback failed in close" in caplog.messages[0]


async def test_one_that_leaves_the_process_leaves_nothing(told: Telling) -> None:
    def leaves() -> None:
        raise SystemExit(3)

    told.callback.acts["update_quota"] = leaves

    told.telling.tell([QuotaChange(ALICE, P, 5.0)])
    told.telling.tell([QuotaChange(BOB, P, None)])

    await until(lambda: told.callback.of("remove_quota"))
    assert told.counted.by_method() == {"update_quota": 1}
