"""Looks at a gateway for those who watch it, on its event loop, a little at a time: nothing is moved."""

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import nan

from kvota.engine import Lane
from kvota.engine.reading import PEEKED, Reading, peek_lane, read_lane
from kvota.gateway.callback_in_force import CallbackInForce
from kvota.gateway.dialling import Dialler
from kvota.gateway.driver import Driver
from kvota.gateway.places import Places
from kvota.gateway.producer_id_glancing import glance_at_producer_ids, peek_producer_ids
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.metrics.glance import Budget, GatewayGlance, ProducerIdGlance, Use
from kvota.model.address import address_text
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.session.shared import Shared
from kvota.wire.apis import name_of

# Some 50 to 100 µs each: what arrives meanwhile waits no longer.
_COUNTERS_PER_STEP = 20
_CONNECTIONS_PER_STEP = 40
_NOT_THERE = (nan,) * len(PEEKED)
_REASONS = tuple((int(reason), (reason.name or "").lower()) for reason in Reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is looked at.

    Attributes:
        shared: engine, budgets, counts.
        places: the connections.
        counts: since the gateway began to run.
        connections_max: how many there may be.
        dialler: knows which brokers could not be reached last.
        quota_callback: knows what went wrong in it.
    """

    shared: Shared
    places: Places
    counts: GatewayCounts
    connections_max: int
    dialler: Dialler
    quota_callback: CallbackInForce


class Glancing:
    """Takes glances; any thread may ask for one.

    Args:
        watched: the gateway's parts.
        loop: of the gateway.
    """

    def __init__(self, watched: Watched, loop: asyncio.AbstractEventLoop) -> None:
        self._watched = watched
        self._loop = loop

    def glance(self, keys: Sequence[CounterKey], *, uses: bool) -> "Future[GatewayGlance]":
        """Look at these counters, and at all connections; ``uses``: at all of each counter, and at who uses which.

        Raises:
            RuntimeError: the gateway has ended.
        """
        future: Future[GatewayGlance] = Future()
        future.set_running_or_notify_cancel()  # whoever waits no longer is told all the same
        steps = self._steps(keys, future, with_uses=uses)
        self._loop.call_soon_threadsafe(self._step, steps, future)
        return future

    def _step(self, steps: Iterator[None], future: "Future[GatewayGlance]") -> None:
        try:
            next(steps)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001  (traffic goes on; whoever asked is told)
            future.set_exception(error)
            return
        self._loop.call_soon(self._step, steps, future)

    def _steps(
        self, keys: Sequence[CounterKey], future: "Future[GatewayGlance]", *, with_uses: bool
    ) -> Iterator[None]:
        now_ms = time.time_ns() // 1_000_000
        peeks = array("d")
        readings: dict[CounterKey, Reading] = {}
        put_away: set[CounterKey] = set()
        shared = self._watched.shared
        counters = shared.engine.counters
        for number, key in enumerate(keys):
            if number % _COUNTERS_PER_STEP == _COUNTERS_PER_STEP - 1:
                yield
            lane = counters.find(*key)
            if not with_uses:
                peeks.extend(_peeked(shared, key, lane, now_ms))
            elif lane is not None:
                readings[key] = read_lane(lane, now_ms)
            if lane is None and counters.is_put_away(*key):
                put_away.add(key)
        crowd = _Crowd(self._loop, with_uses=with_uses)
        for number, driver in enumerate(self._watched.places):
            if number % _CONNECTIONS_PER_STEP == _CONNECTIONS_PER_STEP - 1:
                yield
            if not driver.closing:
                crowd.add(driver)
        ids = yield from glance_at_producer_ids(shared, keys, now_ms, of_all=with_uses)
        future.set_result(self._made(now_ms, peeks, readings, frozenset(put_away), crowd, ids))

    def _made(
        self,
        now_ms: int,
        peeks: "array[float]",
        readings: dict[CounterKey, Reading],
        put_away: frozenset[CounterKey],
        crowd: "_Crowd",
        producer_ids: ProducerIdGlance,
    ) -> GatewayGlance:
        watched, shared = self._watched, self._watched.shared
        apis = shared.api_counts.all()
        return GatewayGlance(
            at_ms=now_ms,
            peeks=peeks,
            readings=readings,
            put_away=put_away,
            uses=crowd.uses,
            connections=len(watched.places),
            connections_max=watched.connections_max,
            paused={name: crowd.paused[bit] for bit, name in _REASONS},
            muted=dict(crowd.muted),
            counts=watched.counts.copy(),
            requests={name_of(key): count.requests for key, count in apis.items()},
            request_bytes={name_of(key): count.size_bytes for key, count in apis.items()},
            budgets=_budgets(shared),
            counters=len(shared.engine.counters),
            counters_lost=shared.engine.counters_lost,
            exempt_ns=shared.exempt_ns,
            exempt_percent=shared.exempt_share.peek_rate(now_ms),
            quotas_version=shared.engine.quotas_version,
            entities=len(shared.client_quotas.quotas),
            enforced=shared.settings.enforced,
            cluster_is_old=shared.facts.cluster_is_old,
            callback_faults=watched.quota_callback.fault_counts,
            producer_ids=producer_ids,
            is_draining=watched.places.closed,
            unreachable=tuple(address_text(*one) for one in watched.dialler.unreachable),
            reaches_brokers=watched.dialler.reaches_brokers,
        )


def _peeked(shared: Shared, key: CounterKey, lane: Lane | None, now_ms: int) -> tuple[float, ...]:
    if lane is not None:
        return peek_lane(lane, now_ms)
    if key.quota_type is QuotaType.PRODUCER_ID:  # no counter of the engine's
        return peek_producer_ids(shared, key, now_ms) or _NOT_THERE
    return _NOT_THERE


class _Crowd:
    """What the connections have in common."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, with_uses: bool) -> None:
        self._with_uses = with_uses
        self._loop = loop
        self.paused: Counter[int] = Counter()
        self.muted: Counter[QuotaType] = Counter()
        self.uses: dict[CounterKey, Use] = {}

    def add(self, driver: Driver) -> None:
        machine = driver.machine
        reasons = machine.pausing.reasons
        if reasons:
            for bit, _ in _REASONS:
                if reasons & bit:
                    self.paused[bit] += 1
        muted_by = machine.caller.muted_by
        if machine.caller.is_muted_for_retry:
            self.muted[QuotaType.PRODUCER_ID] += 1
        for lane in muted_by:
            self.muted[lane.quota_type] += 1
        if not self._with_uses:
            return
        keys = {
            CounterKey(lane.quota_type, lane.tags, lane.node_id)
            for lane in (*machine.lanes(), *muted_by)
        }
        for key in keys:
            use = self.uses.setdefault(key, Use())
            use.connections += 1
        if muted_by:
            left_ms = machine.pausing.mute_left_ms(
                int(self._loop.time() * 1000), time.time_ns() // 1000
            )
            for lane in muted_by:
                use = self.uses[CounterKey(lane.quota_type, lane.tags, lane.node_id)]
                use.muted += 1
                use.mute_left_ms = max(use.mute_left_ms, left_ms)


def _budgets(shared: Shared) -> dict[str, Budget]:
    whole, answers, fetches = shared.whole_requests, shared.whole_answers, shared.waiting_fetches
    return {
        "announced": Budget(
            used_bytes=shared.budgets.used_bytes, limit_bytes=shared.budgets.limit_bytes
        ),
        "mutations": Budget(
            used_bytes=whole.small.used_bytes + whole.large.used_bytes,
            limit_bytes=whole.small.limit_bytes + whole.large.limit_bytes,
        ),
        "answers": Budget(used_bytes=answers.used_bytes, limit_bytes=answers.limit_bytes),
        "fetches": Budget(used_bytes=fetches.used_bytes, limit_bytes=fetches.limit_bytes),
    }
