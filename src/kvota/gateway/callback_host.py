"""Keeps a quota callback apart from the traffic: whatever it does, nobody waits for it but its own threads."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from kvota.callbacks.loading import is_kvotas_own
from kvota.engine import Answer, Question, asks_by_broker
from kvota.gateway.callback_asking import CallbackAsking
from kvota.gateway.callback_faults import CallbackFaults, FaultCounts
from kvota.gateway.callback_telling import CLOSE_S, CallbackTelling
from kvota.model.cluster_view import ClusterView
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.errors import UnreachableError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

Reset = Callable[[Iterable[QuotaType]], None]


class CallbackHost:
    """One callback with its threads.

    kvota's own callbacks, which answer at once, are asked by the engine itself, and told of quotas there; only
    what can take long (the cluster's topics, ``close``) goes to a thread. All else of anybody else's does.

    Args:
        callback: configured, and told of its ``initial_quotas``.
        loop: of the gateway.
        counted: counts what goes wrong.

    Attributes:
        callback: the same.
        in_engine: what the engine gets: the callback itself, or what stands for it there.
        by_broker: whether its limits can differ from broker to broker.
        wants_cluster: whether it does anything with the cluster's topics and leaders.
        on_reset: called with the types whose tags or limits may be others now.
        on_told: called when a quota was told of; answers from before that are due to be asked again.
        on_answer: called with each answer, before who has asked gets it.
        closed: done once the callback's ``close`` has returned.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback,
        loop: asyncio.AbstractEventLoop,
        counted: FaultCounts,
    ) -> None:
        self.callback = callback
        self.by_broker = asks_by_broker(callback)
        told, nobody = (
            type(callback).update_cluster_metadata,
            ClientQuotaCallback.update_cluster_metadata,
        )
        self.wants_cluster = told is not nobody
        faults = CallbackFaults(callback, counted)
        self.on_reset: Reset = _ignore
        self.on_told: Callable[[], None] = _ignore
        self.on_answer: Callable[[Question, object], None] = _ignore
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._waiting: dict[Question, set[asyncio.Future[object]]] = {}
        self._asking = CallbackAsking(callback, loop, faults=faults, answered=self._answered)
        self.answers_at_once = callback.answers_at_once and is_kvotas_own(callback)
        self._telling = CallbackTelling(
            callback,
            loop,
            faults=faults,
            changed=self._reset,
            hold=self._asking.hold,
            release=self._asking.release,
            asks_for_resets=not self.answers_at_once,
        )
        self.in_engine: ClientQuotaCallback = callback
        if not self.answers_at_once:
            self.in_engine = _StandIn(callback.initial_quotas, self._tell)

    # ------------------------------------------------------------------ asking

    def ask(self, question: Question) -> asyncio.Future[object]:
        """The answer to come, or the exception that came instead, as a result; cancel it to leave.

        None: the callback has been closed, another one is in force.
        """
        future: asyncio.Future[object] = self._loop.create_future()
        waiting = self._waiting.get(question)
        if waiting is None:
            refused = self._asking.ask(question)
            if refused:
                future.set_result(UnreachableError(refused))
                return future
            waiting = self._waiting[question] = set()
        waiting.add(future)
        future.add_done_callback(waiting.discard)
        return future

    async def ask_all(
        self, questions: Iterable[Question], *, within_s: float
    ) -> Mapping[Question, Answer]:
        """Ask about all of these; returns what has been answered in time."""
        answers = {question: self.ask(question) for question in questions}
        if answers:
            await asyncio.wait(answers.values(), timeout=within_s)
        told = {}
        for question, future in answers.items():
            if future.done() and isinstance(answer := future.result(), Answer):
                told[question] = answer
            future.cancel()
        return told

    def ask_again(self, questions: Iterable[Question]) -> None:
        """Ask these when nobody waits for another; answers go to ``on_answer``."""
        self._asking.ask_again(questions)

    def _answered(self, question: Question, answer: object) -> None:
        self.on_answer(question, answer)
        for future in self._waiting.pop(question, ()):
            if not future.done():
                future.set_result(answer)

    # ------------------------------------------------------------------ telling

    def tell_cluster(self, cluster: ClusterView) -> None:
        """Tell of the cluster as it is now."""
        self._telling.tell_cluster(cluster)

    async def wait_told(self, at_most_s: float) -> None:
        """Wait until it has been told of everything, for so long at most."""
        told = asyncio.Event()
        self._telling.then(lambda: self._loop.call_soon_threadsafe(told.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), at_most_s)

    def look(self) -> None:
        """Due some times a second: see whether anything changed by other means, and who hangs; in ``close``, too."""
        self._telling.look()
        self._asking.look()

    def _tell(self, change: QuotaChange) -> None:
        self._telling.tell((change,))
        self.on_told()

    def _reset(self, quota_types: Iterable[QuotaType]) -> None:
        self.on_reset(quota_types)

    # ------------------------------------------------------------------ the end

    def leave(self) -> None:
        """Ask and tell nothing more; the callback goes on elsewhere."""
        self.on_reset = self.on_told = self.on_answer = _ignore
        self._asking.stop()
        self._telling.leave()

    def close(self) -> None:
        """Ask and tell nothing more, and close the callback once; whoever waits for an answer gets None."""
        self.on_reset = self.on_told = self.on_answer = _ignore
        self._asking.stop()
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in list(futures):
                if not future.done():
                    future.set_result(None)
        self._telling.end(partial(self._asking.wait_until_idle, CLOSE_S), self._has_closed)

    def _has_closed(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    async def wait_closed(self, at_most_s: float) -> bool:
        """Wait until the callback has been closed; false: it still hangs, and ends with the process."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.closed), at_most_s)
        return self.closed.done()


class _StandIn(ClientQuotaCallback):
    """What the engine has of a callback that it may not call."""

    def __init__(self, quotas: ConfiguredQuotas, told: Callable[[QuotaChange], None]) -> None:
        self.initial_quotas = quotas
        self._told = told

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        raise AssertionError((quota_type, user, client_id))  # it does not answer at once

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        raise AssertionError((quota_type, tags))

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        self._told(QuotaChange(entity, quota_type, limit))

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        self._told(QuotaChange(entity, quota_type, None))

    def quota_reset_required(self, quota_type: QuotaType) -> bool:  # noqa: ARG002
        return False  # the host asks, and says so


def _ignore(*_arguments: object) -> None:
    """Nobody wants to know."""
