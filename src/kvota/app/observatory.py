"""What HTTP shows of a running gateway: it asks the gateway's loop and the thread that sums decisions up."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

import numpy as np

from kvota.app.limit_sources import LimitSources
from kvota.app.shadow_watch import ShadowWatch
from kvota.callbacks import DefaultQuotaCallback, StaticQuotaCallback
from kvota.gateway.gateway import Gateway
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.families import Observed, are_there
from kvota.metrics.glance import GatewayGlance
from kvota.metrics.process_facts import process_facts
from kvota.metrics.tally import Tally, TallySnapshot
from kvota.metrics.volume_families import VolumeFacts, facts_of
from kvota.model.quota_type import QuotaType
from kvota.record.record_limits import RecordStatus
from kvota.record.recorder import Recorder
from kvota.record.row_counter import CountingSink
from kvota.session.explaining import QuotaExplanation, explain
from kvota.session.id_explanation import IdExplanation, explain_ids
from kvota.web.server import HttpServer
from kvota.web.source import Health, Json
from kvota.web.views import (
    explanation_view,
    id_explanation_view,
    producer_ids_view,
    tenants_view,
)

T = TypeVar("T")

# Looked up once: it is read from a file.
_VERSION = version("kvota")

# Both threads answer within some ms; a loop that has not for so long is stuck.
_ANSWER_S = 5.0
_STUCK_S = 10.0
# A counter that is gone and idle is shown no more; one that comes and goes in a crowd is.
_GONE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Observatory:
    """Implements ``web.source.Source``.

    Attributes:
        gateway: that runs.
        tally: its decisions.
        shadow: what quotas would do that are not in force.
        sink: where they go.
        sources: where limits come from.
        http: the port that all this is shown at.
        name: of the gateway.
        started_s: when it began to run, Unix time.
    """

    gateway: Gateway
    tally: Tally
    shadow: ShadowWatch
    sink: Recorder | CountingSink
    sources: LimitSources
    http: HttpServer
    name: str
    started_s: float

    async def observed(self) -> Observed:
        """All that metrics show, of now."""
        now_ms = _now_ms()
        tally = await self._counted(lambda: self.tally.snapshot(now_ms))
        glance = await self._glance(tally.keys, uses=False)
        self._forget_gone(tally, glance)
        recorder = self.sink if isinstance(self.sink, Recorder) else None
        return Observed(
            tally=tally,
            glance=glance,
            record=None if recorder is None else recorder.status(),
            uncounted=self.sink.rows_refused,
            process=process_facts(self.started_s),
            http_requests=dict(self.http.pages.requests),
            http_closed=dict(self.http.doorkeeper.closed),
            version=_VERSION,
            volumes=await self._on_loop(self._volumes),
            static_limits=self._static_limits(),
        )

    def _volumes(self) -> VolumeFacts | None:
        throttle = self.gateway.volume_throttle
        return None if throttle is None else facts_of(throttle, self.name)

    def _static_limits(self) -> Mapping[QuotaType, float] | None:
        callback = self.gateway.quota_callback.callback
        return callback.limits if isinstance(callback, StaticQuotaCallback) else None

    def _forget_gone(self, tally: TallySnapshot, glance: GatewayGlance) -> None:
        """Series go with their counters; where no quota of the type exists there is none to go with."""
        callback = self.gateway.shared.engine.callback
        is_gone = ~are_there(glance) & (glance.at_ms - tally.last_ms > _GONE_MS)
        gone = [
            key
            for key in (tally.keys[index] for index in np.flatnonzero(is_gone).tolist())
            if key not in glance.put_away and callback.enabled(key.quota_type)
        ]
        if gone:
            self.sink.counter.when_counted(lambda: self.tally.cells.forget(gone))

    async def tenants(self, at_most: int) -> Json:
        """The counters of tenants, worst first."""
        now_ms = _now_ms()
        busiest, known = await self._counted(
            lambda: (self.tally.busiest(at_most, now_ms), self.tally.count)
        )
        glance = await self._glance([busy.key for busy in busiest], uses=True)
        return {
            "gateway": self.name,
            "at_ms": glance.at_ms,
            "connections": glance.connections,
            "enforced": sorted(glance.enforced),
            "counters": known,
            "tenants": tenants_view(busiest, glance, self.sources.of_counter),
            "producer_ids": producer_ids_view(glance.producer_ids),
        }

    async def shadowed(self, at_most: int) -> Json:
        """What the quotas would do that are in shadow mode beside those in force."""
        found = await self._counted(lambda: self.shadow.view(at_most))
        return {"gateway": self.name, "at_ms": _now_ms(), **found}

    async def explained(self, user: str, client_id: str) -> Json:
        """Why a client is treated as it is."""
        shared = self.gateway.shared

        def look() -> tuple[tuple[QuotaExplanation, ...], IdExplanation]:
            now_ms, settings = _now_ms(), shared.settings
            return (
                explain(shared.engine, settings, user, client_id, now_ms),
                explain_ids(
                    shared.producer_ids,
                    user,
                    now_ms,
                    enforced=QuotaType.PRODUCER_ID in settings.enforced,
                ),
            )

        explained, of_ids = await self._on_loop(look)
        glance = await self._glance([], uses=True)
        callback = self.gateway.quota_callback.callback
        is_default = isinstance(callback, DefaultQuotaCallback)
        return {
            "gateway": self.name,
            "at_ms": glance.at_ms,
            "user": user,
            "client_id": client_id,
            "callback": "" if is_default else type(callback).__name__,
            "quotas": explanation_view(explained, glance.uses, self.sources, glance.at_ms),
            "producer_ids": id_explanation_view(of_ids, user, self.sources, glance.at_ms),
        }

    async def health(self) -> Health:
        """Whether the gateway runs, and can be sent clients."""
        if not self.gateway.is_listening:
            return Health(is_live=True, reasons=("it does not listen yet",))
        if time.monotonic() - self.gateway.counts.ticked_s > _STUCK_S:
            return Health(is_live=False)
        try:
            glance = await self._glance([], uses=False)
        except TimeoutError:
            return Health(is_live=False)
        reasons = ["it drains"] if glance.is_draining else []
        if not glance.reaches_brokers:
            reasons.append(f"no broker can be reached: {', '.join(glance.unreachable)}")
        notes = [f"{address} cannot be reached" for address in glance.unreachable]
        if isinstance(self.sink, Recorder):
            notes += _record_notes(self.sink.status())
        return Health(is_live=True, reasons=tuple(reasons), notes=tuple(notes))

    # ------------------------------------------------------------------ asking others

    async def _counted(self, call: Callable[[], T]) -> T:
        """Have this done by the thread that sums decisions up, when it has summed up all there are."""
        return await _answer(call, self.sink.counter.when_counted)

    async def _on_loop(self, call: Callable[[], T]) -> T:
        """Have this done on the gateway's loop."""
        return await _answer(call, self.gateway.call_soon)

    async def _glance(
        self, keys: tuple[CounterKey, ...] | list[CounterKey], *, uses: bool
    ) -> GatewayGlance:
        with _that_may_have_ended():
            future = self.gateway.glance(keys, uses=uses)
        return await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_S)


@contextmanager
def _that_may_have_ended() -> Iterator[None]:
    """A loop that is closed answers nobody any more, as one that is stuck."""
    try:
        yield
    except RuntimeError as error:
        msg = "the gateway has ended"
        raise TimeoutError(msg) from error


async def _answer(call: Callable[[], T], ask: Callable[[Callable[[], None]], None]) -> T:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def answer() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001  (whoever asked is told)
            future.set_exception(error)

    with _that_may_have_ended():
        ask(answer)
    return await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _record_notes(status: RecordStatus) -> list[str]:
    notes = []
    if not status.recording:
        notes.append(f"decisions are not recorded: {status.last_error}")
    elif status.topic is not None and not status.topic.is_up:
        notes.append(f"decisions do not reach their topic: {status.topic.last_error}")
    return notes
