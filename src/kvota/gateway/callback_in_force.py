"""The quota callback of a running gateway, and how another one takes its place while clients go on."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kvota.callbacks import DefaultQuotaCallback
from kvota.callbacks.loading import ChosenCallback
from kvota.engine import Answer, Question
from kvota.gateway.callback_faults import FaultCounts
from kvota.gateway.callback_host import CallbackHost
from kvota.gateway.callback_loading import CallbackLoading
from kvota.gateway.callback_retries import CallbackRetries
from kvota.model.cluster_view import ClusterView
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import QuotaType
from kvota.session.shared import Shared

log = logging.getLogger(__name__)

# How often it is looked whether anything has changed by other means, and who hangs.
LOOK_S = 0.25
# So long a new one is asked about the clients there are before it takes over; and so long the first look at the
# cluster is waited for.
_WARM_S = 0.4
_LOOK_S = 0.5
# So many clients are looked at in one step of the loop, some 10 µs each.
_CLIENTS_PER_STEP = 200
# So long the end of the gateway waits for the callback's.
_END_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCallback:
    """A callback that only has to be put in force: loaded, told of everything, asked about who is there.

    Attributes:
        chosen: by which class and properties.
        host: with its threads.
        answers: what it has answered already.
        unanswered: of whom it was asked in vain.
        cluster: what it was told of the cluster.
    """

    chosen: ChosenCallback
    host: CallbackHost
    answers: Mapping[Question, Answer] = field(default_factory=dict)
    unanswered: tuple[Question, ...] = ()
    cluster: ClusterView | None = None


class CallbackInForce:
    """Asks and tells the callback in force, and puts another one in its place.

    Args:
        shared: whose engine goes by it; its callback is the first.
        look_again: lets connections know that counters have changed.

    Attributes:
        changing: held while a callback is prepared and put in force, so that the last one asked for stays.
        wants_cluster: set while a callback wants to know the cluster's topics and leaders.
        on_change: called with each callback that has been put in force.
    """

    def __init__(self, shared: Shared, *, look_again: Callable[[], None]) -> None:
        self._shared = shared
        self._look_again = look_again
        self._retries = CallbackRetries()
        self._faults = FaultCounts()
        self._is_due_soon = False
        self._cluster: ClusterView | None = None
        self.changing = asyncio.Lock()
        self.wants_cluster = asyncio.Event()
        self._knows_cluster = asyncio.Event()
        self.on_change: Callable[[ClientQuotaCallback], None] = lambda _: None
        self._closing: set[CallbackHost] = set()
        self._loading: CallbackLoading | None = None
        self._loop: asyncio.AbstractEventLoop
        self._host: CallbackHost

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to host the callback that the engine was made with."""
        self._loop = loop
        engine = self._shared.engine
        self._host = CallbackHost(engine.callback, loop, self._faults)
        engine.callback = self._host.in_engine
        self._say_what_it_wants(self._host)
        self._listen_to(self._host)

    @property
    def callback(self) -> ClientQuotaCallback:
        """The one in force."""
        return self._host.callback

    @property
    def is_loading(self) -> bool:
        """Whether the one that was prepared last is still being made: maybe it hangs."""
        return self._loading is not None and self._loading.is_running

    @property
    def fault_counts(self) -> Mapping[str, int]:
        """How often one has raised, answered nonsense or hung, by method; those that are no more in force count, too."""
        return self._faults.by_method()

    # ------------------------------------------------------------------ asking and telling

    def ask(self, question: Question) -> asyncio.Future[object]:
        """What it says of a client, or why it says nothing; None: another one is in force now."""
        return self._host.ask(question)

    def tell_cluster(self, cluster: ClusterView) -> None:
        """Tell it, and whoever comes after it, of the cluster as it is now."""
        self._cluster = cluster
        self._knows_cluster.set()
        if self._host.wants_cluster:
            self._host.tell_cluster(cluster)

    def forget_cluster(self) -> None:
        """Nobody looks at it any more: whoever comes waits for what it is then."""
        self._cluster = None
        self._knows_cluster.clear()

    async def run(self) -> None:
        """Look after it until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for host in (self._host, *self._closing):
                host.look()
            if self._host.answers_at_once and self._shared.engine.refresh():
                self._look_again()
            self._ask_failed()

    # ------------------------------------------------------------------ another one

    async def prepare(self, chosen: ChosenCallback, quotas: ConfiguredQuotas) -> PreparedCallback:
        """Load a callback and tell it everything, while the one in force goes on.

        Raises:
            UsageError: it cannot be had; names the property.
        """
        if chosen.is_default:
            host = CallbackHost(self._default(), self._loop, self._faults)
            return PreparedCallback(chosen=chosen, host=host)
        self._loading = CallbackLoading(chosen, quotas, self._faults)
        host = CallbackHost(await self._loading.wait(), self._loop, self._faults)
        try:
            return await self._prepared(chosen, host)
        except BaseException:  # the gateway ends, say: nobody else knows of it yet
            self._close(host)
            raise

    async def _prepared(self, chosen: ChosenCallback, host: CallbackHost) -> PreparedCallback:
        cluster = await self._cluster_for(host)
        if cluster is not None:
            host.tell_cluster(cluster)
        if host.answers_at_once:
            await host.wait_told(_WARM_S)
            return PreparedCallback(chosen=chosen, host=host, cluster=cluster)
        questions = self._shared.engine.questions_about_known(by_broker=host.by_broker)
        answers = await host.ask_all(questions, within_s=_WARM_S)
        return PreparedCallback(
            chosen=chosen,
            host=host,
            answers=answers,
            unanswered=tuple(question for question in questions if question not in answers),
            cluster=cluster,
        )

    def put_in_force(self, prepared: PreparedCallback) -> None:
        """Go by this callback from now on, in one step; the one before is closed."""
        old, self._host = self._host, prepared.host
        shared, host = self._shared, prepared.host
        self._retries.clear()
        self._listen_to(host)
        shared.replace_callback(host.in_engine, by_broker=host.by_broker, answers=prepared.answers)
        cluster = self._cluster
        if host.wants_cluster and cluster is not None and cluster is not prepared.cluster:
            host.tell_cluster(cluster)
        self._say_what_it_wants(host)
        for question in prepared.unanswered[:_CLIENTS_PER_STEP]:
            shared.engine.learn_default(question, shared.default_callback)
        log.info(
            "the quota callback is %s now, it was %s",
            _name(host.callback),
            _name(old.callback),
        )
        self.on_change(host.callback)
        self._close(old)
        self._look_again()

    def discard(self, prepared: PreparedCallback) -> None:
        """Close a callback that is not wanted after all; the one in force goes on."""
        self._close(prepared.host)
        self._say_what_it_wants(self._host)

    async def change(self, chosen: ChosenCallback) -> None:
        """Load a callback and put it in force; where that fails the one in force stays.

        Changes take their turn: the last one asked for is the one that stays.

        Raises:
            UsageError: it cannot be had; names the property.
        """
        async with self.changing:
            self.put_in_force(await self.prepare(chosen, self._shared.engine.quotas))

    async def _cluster_for(self, host: CallbackHost) -> ClusterView | None:
        """What a new callback is told of the cluster first; where nobody has looked yet, that is waited for."""
        if not host.wants_cluster:
            return None
        self.wants_cluster.set()
        if self._cluster is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._knows_cluster.wait(), _LOOK_S)
        return self._cluster

    def _say_what_it_wants(self, host: CallbackHost) -> None:
        if host.wants_cluster:
            self.wants_cluster.set()
        else:
            self.wants_cluster.clear()

    def _default(self) -> DefaultQuotaCallback:
        """Kafka's own rules, which know the quotas already: they decide where a callback does not."""
        default = self._shared.default_callback
        assert isinstance(default, DefaultQuotaCallback)
        default.initial_quotas = self._shared.engine.quotas
        return default

    # ------------------------------------------------------------------ what comes from it

    def _listen_to(self, host: CallbackHost) -> None:
        host.on_answer, host.on_reset, host.on_told = self._learn, self._reset, self._due_soon

    def _learn(self, question: Question, answer: object) -> None:
        if not isinstance(answer, Answer):
            self._retries.failed(question.key, self._loop.time())
            return
        self._retries.succeeded(question.key)
        if self._shared.engine.learn(question, answer):
            self._look_again()

    def _reset(self, quota_types: Iterable[QuotaType]) -> None:
        self._shared.engine.reset(quota_types)
        self._look_again()
        self._due_soon()

    def _due_soon(self) -> None:
        """Something has changed: all whose answers are old are asked about again, in a step of its own."""
        if not self._is_due_soon:
            self._is_due_soon = True
            self._loop.call_soon(self._ask_changed)

    def _ask_changed(self) -> None:
        self._is_due_soon = False
        self._retries.clear()
        self._ask_some(self._shared.engine.due_questions(), self._host)

    def _ask_some(self, questions: list[Question], host: CallbackHost) -> None:
        """Some at a time; unless another callback has come meanwhile."""
        if host is not self._host or host.answers_at_once:
            return
        now, later = questions[:_CLIENTS_PER_STEP], questions[_CLIENTS_PER_STEP:]
        for question in now:
            # Where Kafka's own rules have answered in its place, these may say something else now.
            self._shared.engine.learn_default(question, self._shared.default_callback)
        host.ask_again(now)
        if later:
            self._loop.call_soon(self._ask_some, later, host)

    def _ask_failed(self) -> None:
        """Ask again about those of whom nothing is known, or nothing new, when their pause is over."""
        due = self._retries.due(self._shared.engine.due_questions(), self._loop.time())
        if not self._host.answers_at_once:
            self._host.ask_again(due)

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        """Close the callback, as the last thing."""
        self._close(self._host)
        closing = list(self._closing)  # all at once: who hangs shall not have the others wait
        in_time = await asyncio.gather(*(host.wait_closed(_END_S) for host in closing))
        for host, has_closed in zip(closing, in_time, strict=True):
            if not has_closed:
                log.warning("the quota callback %s has not closed in time", _name(host.callback))

    def _close(self, host: CallbackHost) -> None:
        if host.callback is self._shared.default_callback and host is not self._host:
            host.leave()  # it goes on to decide where another one does not
            return
        self._closing.add(host)
        host.closed.add_done_callback(lambda _: self._closing.discard(host))
        host.close()


def _name(callback: ClientQuotaCallback) -> str:
    of_class = type(callback)
    return f"{of_class.__module__}.{of_class.__qualname__}"
