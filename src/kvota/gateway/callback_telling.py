"""Tells a quota callback what changes, on one thread of its own, one call after the other."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import TypeVar

from kvota.gateway.callback_faults import CallbackFaults
from kvota.model.cluster_view import ClusterView
from kvota.model.configured_quotas import QuotaChange
from kvota.model.errors import CallbackError
from kvota.model.quota_callback import ClientQuotaCallback, tell
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

# So long questions wait for the callback to be told what was changed before them; then they are asked all the same.
_HELD_S = 0.25
HANGS_S = 1.0
# So long the end of a callback waits for questions that still run.
CLOSE_S = 5.0

_T = TypeVar("_T")
_Quota = tuple[QuotaType, QuotaEntity]

# KIP-257's types are asked whether they changed, and not the further one that is kvota's own.
ASKED_TYPES = (
    QuotaType.PRODUCE,
    QuotaType.FETCH,
    QuotaType.REQUEST,
    QuotaType.CONTROLLER_MUTATION,
)


class CallbackTelling:
    """What a callback is still to be told: each quota's last value, and the cluster as it is now.

    Args:
        callback: whom.
        loop: where ``changed`` is called.
        faults: takes what goes wrong.
        changed: called with the types whose tags or limits may be others now, and which nobody else knows of.
        hold: called when there is something to tell: no question is to be asked before that.
        release: called when all has been told.
        asks_for_resets: whether the callback is asked here if anything has changed by other means.
    """

    def __init__(  # noqa: PLR0913  (all by name, made in one place)
        self,
        callback: ClientQuotaCallback,
        loop: asyncio.AbstractEventLoop,
        *,
        faults: CallbackFaults,
        changed: Callable[[tuple[QuotaType, ...]], None],
        hold: Callable[[], None],
        release: Callable[[], None],
        asks_for_resets: bool,
    ) -> None:
        self._callback = callback
        self._loop = loop
        self._faults = faults
        self._changed = changed
        self._hold = hold
        self._release = release
        self._asks_for_resets = asks_for_resets
        self._lock = Condition()
        self._changes: dict[_Quota, QuotaChange] = {}
        self._cluster: ClusterView | None = None
        self._is_asked = False  # whether anything changed by other means
        self._thens: list[Callable[[], object]] = []
        self._end: Callable[[], None] | None = None
        self._since_s = 0.0  # when the running call began; 0: none runs
        self._round_since_s = 0.0
        self._method = ""
        self._is_said = False
        self._is_late = False  # questions go on although there is something left to tell
        self._thread: Thread | None = None

    # ------------------------------------------------------------------ on the loop

    def tell(self, changes: Iterable[QuotaChange]) -> None:
        """Tell of these quotas, in this order; of one that changes again before that only the last value."""
        with self._lock:
            for change in changes:
                quota = change.quota_type, change.entity
                self._changes.pop(quota, None)
                self._changes[quota] = change
            self._hold()
            self._wake()

    def tell_cluster(self, cluster: ClusterView) -> None:
        """Tell of the cluster as it is now."""
        with self._lock:
            self._cluster = cluster
            self._hold()
            self._wake()

    def then(self, call: Callable[[], object]) -> None:
        """Call this on the thread once all has been told."""
        with self._lock:
            self._thens.append(call)
            self._wake()

    def look(self) -> None:
        """Due some times a second: ask whether anything has changed by other means, and say who hangs.

        Questions do not wait for a callback that takes long to be told.
        """
        now_s = monotonic()
        hangs_s, method = 0.0, self._method
        with self._lock:
            if self._asks_for_resets and not self._is_asked:
                self._is_asked = True
                self._wake()
            if self._since_s and now_s - self._since_s >= HANGS_S and not self._is_said:
                self._is_said = True
                hangs_s, method = now_s - self._since_s, self._method
            if self._round_since_s and now_s - self._round_since_s >= _HELD_S and not self._is_late:
                self._is_late = True
                self._release()
        if hangs_s and self._thread is not None:
            self._faults.note_hang(self._thread, method, hangs_s)

    def end(self, before: Callable[[], object], ended: Callable[[], None]) -> None:
        """Close the callback when it has been told all, and ``before`` has returned on the thread."""

        def last() -> None:
            before()
            self._call("close", self._callback.close)
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(ended)

        with self._lock:
            if self._end is None:
                self._end = last
                self._wake()

    def leave(self) -> None:
        """Tell nothing more, and do not close the callback: it goes on elsewhere."""
        with self._lock:
            if self._end is None and self._thread is not None:
                self._end = _nothing
                self._lock.notify()

    # ------------------------------------------------------------------ on the thread

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="kvota-callback-told", daemon=True)
            self._thread.start()
        self._lock.notify()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._round_since_s = 0.0
                self._lock.wait_for(self._is_due)
                changes, self._changes = self._changes, {}
                cluster, self._cluster = self._cluster, None
                thens, self._thens = self._thens, []
                end, self._is_asked = self._end, False
                self._round_since_s = monotonic()
            changed = self._round(changes.values(), cluster)
            with self._lock:
                is_over = not (self._changes or self._cluster)
                if is_over:
                    self._release()
                    if self._is_late:
                        # What was asked meanwhile is old.
                        self._is_late, changed = False, tuple(QuotaType)
            with suppress(RuntimeError):  # the loop has closed
                if changed:
                    self._loop.call_soon_threadsafe(self._changed, changed)
                for then in thens:
                    then()
            if is_over and end is not None:
                end()
                return

    def _is_due(self) -> bool:
        return bool(self._changes or self._cluster or self._is_asked or self._thens or self._end)

    def _round(
        self, changes: Iterable[QuotaChange], cluster: ClusterView | None
    ) -> tuple[QuotaType, ...]:
        """Tell all this; returns the types whose tags or limits may be others now by other means."""
        for change in changes:
            method = "remove_quota" if change.limit is None else "update_quota"
            self._call(method, lambda change=change: tell(self._callback, change))  # type: ignore[misc]
        changed: dict[QuotaType, None] = {}
        if cluster is not None and self._is_so("update_cluster_metadata", cluster):
            changed |= dict.fromkeys(QuotaType)
        if self._asks_for_resets:
            for quota_type in ASKED_TYPES:
                if self._is_so("quota_reset_required", quota_type):
                    changed[quota_type] = None
        return tuple(changed)

    def _is_so(self, method: str, argument: object) -> bool:
        """Call a method whose answer is yes or no; an error is a no."""

        def ask() -> bool:
            answer = getattr(self._callback, method)(argument)
            if not isinstance(answer, bool):
                raise CallbackError(self._callback, method, answer, "True or False")
            return answer

        return self._call(method, ask) is True

    def _call(self, method: str, call: Callable[[], _T]) -> _T | None:
        """What a method of the callback answers; None, and a fault, where it raises."""
        with self._lock:
            self._method, self._since_s, self._is_said = method, monotonic(), False
        try:
            return call()
        except BaseException as error:  # noqa: BLE001  (whatever it raises, sys.exit() too, is its own affair)
            self._faults.note(error, method)
        finally:
            with self._lock:
                self._since_s = 0.0
        return None


def _nothing() -> None:
    """It is not closed."""
