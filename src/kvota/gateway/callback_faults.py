"""What goes wrong in a quota callback: counted, and each cause logged once."""

import logging
import sys
from collections import Counter
from collections.abc import Mapping
from threading import Lock, Thread

from kvota.callbacks.faults import call_in, call_of, text_of
from kvota.model.errors import CallbackError

log = logging.getLogger(__name__)

# Code that is made as it runs has lines and types without end.
CAUSES_MAX = 100


class FaultCounts:
    """How many faults there were, by method; of one callback after the other. Any thread may add one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, method: str) -> None:
        """One more."""
        with self._lock:
            self._counts[method] += 1

    def by_method(self) -> Mapping[str, int]:
        """Those so far."""
        with self._lock:
            return dict(self._counts)


class CallbackFaults:
    """The faults of one callback; any thread may note one.

    A cause is a method, the type of the error and the line of the callback: a text may name a client, and so
    differ each time.

    Args:
        callback: whose they are.
        counted: counts them; others' are counted there, too.
    """

    def __init__(self, callback: object, counted: FaultCounts) -> None:
        self._callback = callback
        self._name = type(callback).__name__
        self._counted = counted
        self._lock = Lock()
        self._causes: set[tuple[str, str, str]] = set()

    def note(self, error: BaseException, method: str | None = None) -> None:
        """A method has raised, or answered nonsense (a ``CallbackError`` of that method)."""
        place = ""
        if isinstance(error, CallbackError):
            method, text, kind, at = error.method, str(error), "", error.cause
        else:
            found = call_of(self._callback, error.__traceback__)
            method = method or (found[0] if found else "ask")
            at = found[1] if found else ""
            place = f" ({at})" if found else ""
            text, kind = text_of(error), f"{type(error).__module__}.{type(error).__qualname__}"
        # Its frames would keep alive whatever the callback had in hand.
        error.__traceback__ = None
        cause = method, kind, at
        self._say(cause, "the quota callback %s failed in %s%s: %s", place, text)

    def note_hang(self, thread: Thread, method: str, seconds: float) -> None:
        """A method that this thread is running has not come back for so long."""
        frames = sys._current_frames()  # noqa: SLF001  (made to find out where threads hang)
        found = call_in(self._callback, frames.get(thread.ident or 0))
        method, place = (found[0], f" ({found[1]})") if found else (method, "")
        meaning = (
            "another one is in force, and it is left to itself"
            if method == "close"
            else "what was in force stays, and who is new counts by Kafka's own rules"
        )
        self._say(
            (method, "hangs", ""),
            "the quota callback %s has not come back from %s for %.1f s%s: %s",
            seconds,
            place,
            meaning,
        )

    def _say(self, cause: tuple[str, str, str], text: str, *more: object) -> None:
        """Count it; log each cause once."""
        method = cause[0]
        self._counted.add(method)
        with self._lock:
            if cause in self._causes or len(self._causes) >= CAUSES_MAX:
                return
            self._causes.add(cause)
            is_last = len(self._causes) == CAUSES_MAX
        log.error(text, self._name, method, *more)
        if is_last:
            log.error("it has failed in %d ways; further ones are not logged", CAUSES_MAX)
