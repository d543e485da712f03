"""Looks at the cluster again and again, for the quota callback and for what topics cost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from kvota.gateway.callback_in_force import CallbackInForce
from kvota.model.clock import Clock
from kvota.model.cluster_view import ClusterView
from kvota.model.errors import KvotaError
from kvota.session.facts import ClusterFacts

log = logging.getLogger(__name__)

# From the end of one look to the next: so long at least, and as long as the broker needs for what it says, at so
# many bytes a second; up to the last. A cluster of 200,000 partitions says 8 MB.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 30.0
_BYTES_PER_S = 2**20
# Where nobody answers: from the first to the last, twice as long each time.
_RETRY_S, _RETRY_S_MAX = 0.5, 2.0
# What has not been seen for so long, or for three looks, is marked as old.
_STALE_S = 5.0
# num.partitions is asked for so often: it only changes with a broker's restart.
_DEFAULT_PARTITIONS_S = ClusterFacts.FRESH_MS / 2000


class Looks(Protocol):
    """Where the cluster is looked at; ``client.ClusterLooks`` is such."""

    size_bytes: int

    async def look(self) -> ClusterView:
        """The cluster as it is now."""
        ...

    async def default_partitions(self, view: ClusterView) -> int | None:
        """How many partitions a topic gets that is created with -1; None: nobody tells."""
        ...


class ClusterWatch:
    """One task that looks while anybody wants to know; what was known last stays while nobody answers.

    Args:
        looks: where; made when it is first needed.
        callback: is told of each cluster that is another one; says whether it wants to know.
        facts: what the cluster has is told it, for the cost of topics.
        clock: tells the time.
        always: look even where no callback wants to know: whoever has given the gateway a login of its own
            wants it to be used for what callers may not ask.

    Attributes:
        view: what is known; None: nothing yet.
    """

    def __init__(
        self,
        looks: Callable[[], Awaitable[Looks]],
        callback: CallbackInForce,
        facts: ClusterFacts,
        *,
        clock: Clock,
        always: bool,
    ) -> None:
        self._make_looks = looks
        self._callback = callback
        self._facts = facts
        self._clock = clock
        self._always = always
        self._has_failed = False
        self.view: ClusterView | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        if not self._always:
            await self._callback.wants_cluster.wait()
        try:
            looks = await self._make_looks()
        except KvotaError as error:
            log.error("cluster: topics and leaders are not looked at: %s", error)  # noqa: TRY400  (its text says all)
            return
        pause_s, retry_s, seen_s, asked_s = _PAUSE_S, _RETRY_S, loop.time(), 0.0
        while True:
            if not self._always and not self._callback.wants_cluster.is_set():
                self._forget()
                await self._callback.wants_cluster.wait()
                seen_s = loop.time()
            began_s = loop.time()
            try:
                view = await looks.look()
                self._take(view)
                if began_s >= asked_s:
                    await self._ask_default_partitions(looks, view)
                    asked_s = began_s + _DEFAULT_PARTITIONS_S
            except KvotaError as error:
                self._say_failed(error)
                if loop.time() - seen_s > max(_STALE_S, 3 * pause_s):
                    self._mark_stale()
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_S_MAX)
                continue
            self._say_recovered()
            seen_s, retry_s = loop.time(), _RETRY_S
            pause_s = min(max(_PAUSE_S, looks.size_bytes / _BYTES_PER_S), _PAUSE_S_MAX)
            await asyncio.sleep(pause_s)

    def _take(self, view: ClusterView) -> None:
        self._facts.cluster_is_old = view.is_stale
        if view is not self.view:
            self.view = view
            self._facts.cluster = view
            self._callback.tell_cluster(view)

    def _forget(self) -> None:
        """Nobody wants to know, so nobody looks: it will be another one when somebody does."""
        self.view = None
        self._facts.cluster, self._facts.cluster_is_old = ClusterView(), False
        self._callback.forget_cluster()

    def _mark_stale(self) -> None:
        """What is known is old now, and is said to be."""
        self._facts.cluster_is_old = True
        if self.view is not None and not self.view.is_stale:
            self._take(replace(self.view, is_stale=True))
            log.warning(
                "cluster: what is known of topics and leaders is old by now, and stays in force"
            )

    async def _ask_default_partitions(self, looks: Looks, view: ClusterView) -> None:
        try:
            partitions = await looks.default_partitions(view)
        except KvotaError as error:  # a user that sees topics need not be allowed to see settings
            log.info("cluster: num.partitions is not known: %s", error)
        else:
            self._facts.learn_default_partitions(partitions, self._clock.now_us() // 1000)

    def _say_failed(self, error: KvotaError) -> None:
        if not self._has_failed:
            self._has_failed = True
            stays = "; what was known last stays in force" if self.view is not None else ""
            log.warning("cluster: topics and leaders cannot be looked at: %s%s", error, stays)

    def _say_recovered(self) -> None:
        if self._has_failed:
            self._has_failed = False
            log.info("cluster: topics and leaders can be looked at again")
