"""Asks the quota callback on threads of its own: it may look things up, wait, fail or hang."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import TracebackType

from kvota.engine import Question
from kvota.model.errors import UnreachableError
from kvota.model.quota_callback import ClientQuotaCallback

log = logging.getLogger(__name__)

# Callbacks wait for others and hardly compute; one that hangs takes these threads and no more.
THREADS_MAX = 4
# As many as there are connections, five times over; each is some hundred bytes.
QUESTIONS_MAX = 10_000
# A text may name the client, and so differ each time.
CAUSES_MAX = 100


class Asking:
    """The questions that are being asked, and who waits for each.

    Args:
        callback: of whom they are asked.
        loop: where the answers are wanted.
    """

    def __init__(self, callback: ClientQuotaCallback, loop: asyncio.AbstractEventLoop) -> None:
        self._callback = callback
        self._loop = loop
        self._waiting: dict[Question, set[asyncio.Future[object]]] = {}
        self._queue: SimpleQueue[Question | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._causes: set[tuple[str, str, str]] = set()

    def ask(self, question: Question) -> asyncio.Future[object]:
        """The answer to come, or the exception that came instead, as a result; cancel it to leave.

        A question that is being asked already is not asked once more.
        """
        future = self._loop.create_future()
        waiting = self._waiting.get(question)
        if waiting is None:
            if len(self._waiting) >= QUESTIONS_MAX:
                msg = f"{QUESTIONS_MAX} questions wait for the quota callback"
                future.set_result(UnreachableError(msg))
                return future
            waiting = self._waiting[question] = set()
            self._queue.put(question)
            self._start_thread()
        waiting.add(future)
        future.add_done_callback(waiting.discard)
        return future

    def stop(self) -> None:
        """Ask nothing more; a thread that hangs is left to itself and ends with the process."""
        for _ in self._threads:
            self._queue.put(None)
        self._waiting.clear()

    def _start_thread(self) -> None:
        if len(self._threads) < min(THREADS_MAX, len(self._waiting)):
            # A pool of concurrent.futures would wait for its threads at the end of the process.
            thread = Thread(target=self._work, name="kvota-callback", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (question := self._queue.get()) is not None:
            answer = self._answer(question)
            with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._answered, question, answer)

    def _answer(self, question: Question) -> object:
        try:
            return question.ask(self._callback)
        except Exception as error:  # noqa: BLE001  (whatever the callback raises is its answer)
            return error
        except BaseException as error:  # noqa: BLE001  (sys.exit() in a callback ends no thread of ours)
            return RuntimeError(f"{type(error).__name__}: {error}").with_traceback(
                error.__traceback__
            )

    def _answered(self, question: Question, answer: object) -> None:
        if isinstance(answer, Exception):
            self._say_failed(answer)
        waiting: Iterable[asyncio.Future[object]] = self._waiting.pop(question, ())
        for future in waiting:
            if not future.done():
                future.set_result(answer)

    def _say_failed(self, error: Exception) -> None:
        """Log each cause once."""
        name = type(self._callback).__name__
        method = _method_of(self._callback, error.__traceback__)
        # Its frames would keep alive whatever the callback had in hand.
        error.__traceback__ = None
        cause = (name, method, str(error))
        if cause in self._causes or len(self._causes) >= CAUSES_MAX:
            return
        self._causes.add(cause)
        log.error("the quota callback %s failed in %s: %r", name, method, error)
        if len(self._causes) == CAUSES_MAX:
            log.error("it has failed in %d ways; further ones are not logged", CAUSES_MAX)


def _method_of(callback: object, trace: TracebackType | None) -> str:
    """The callback's method that was called when it failed; "ask" when none was running."""
    while trace is not None:
        if trace.tb_frame.f_locals.get("self") is callback:
            return trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return "ask"
