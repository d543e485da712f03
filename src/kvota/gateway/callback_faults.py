"""What goes wrong in a quota callback: counted, and each cause logged once."""

import logging
import sys
from collections import Counter
from collections.abc import Mapping
from threading import Lock, Thread

from kvota.callbacks.faults import call_in, call_of, text_of
from kvota.model.errors import CallbackError

log = logging.getLogger(__name__)

# A text may name the client, and so differ each time.
CAUSES_MAX = 100


class CallbackFaults:
    """The faults of one callback; any thread may note one.

    Args:
        callback: whose they are.
    """

    def __init__(self, callback: object) -> None:
        self._callback = callback
        self._name = type(callback).__name__
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._causes: set[tuple[str, str]] = set()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there were, by method."""
        with self._lock:
            return dict(self._counts)

    def note(self, error: BaseException, method: str | None = None) -> None:
        """A method has raised, or answered nonsense (a ``CallbackError`` of that method)."""
        place = ""
        if isinstance(error, CallbackError):
            method, text = error.method, str(error)
        else:
            found = call_of(self._callback, error.__traceback__)
            method = method or (found[0] if found else "ask")
            place = f" ({found[1]})" if found else ""
            text = text_of(error)
        # Its frames would keep alive whatever the callback had in hand.
        error.__traceback__ = None
        self._say(method, text, "the quota callback %s failed in %s%s: %s", place, text)

    def note_hang(self, thread: Thread, method: str, seconds: float) -> None:
        """A method that this thread is running has not come back for so long."""
        frames = sys._current_frames()  # noqa: SLF001  (made to find out where threads hang)
        found = call_in(self._callback, frames.get(thread.ident or 0))
        method, place = (found[0], f" ({found[1]})") if found else (method, "")
        self._say(
            method,
            "hangs",
            "the quota callback %s has not come back from %s for %.1f s%s: what was in force stays, and who is "
            "new counts by Kafka's own rules",
            seconds,
            place,
        )

    def _say(self, method: str, cause: str, text: str, *more: object) -> None:
        """Count it; log each cause of a method once."""
        with self._lock:
            self._counts[method] += 1
            key = (method, cause)
            if key in self._causes or len(self._causes) >= CAUSES_MAX:
                return
            self._causes.add(key)
            is_last = len(self._causes) == CAUSES_MAX
        log.error(text, self._name, method, *more)
        if is_last:
            log.error("it has failed in %d ways; further ones are not logged", CAUSES_MAX)
