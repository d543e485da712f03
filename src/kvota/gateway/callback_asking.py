"""Asks a quota callback on threads of its own: it may look things up, wait, fail or hang."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Condition, Thread, current_thread
from time import monotonic

from kvota.engine import Question
from kvota.gateway.callback_faults import CallbackFaults
from kvota.model.quota_callback import ClientQuotaCallback

# Callbacks wait for others and hardly compute: so many threads ask one, and more where these are all busy with
# questions that take long. One that hangs takes these and no more.
THREADS_AT_ONCE = 4
THREADS_MAX = 32
# As many as there are connections, five times over; each is some hundred bytes.
QUESTIONS_MAX = 10_000
# A question that takes longer than this is slow: others are not to wait for it. And so long a hang is said.
_SLOW_S, HANGS_S = 0.2, 1.0
_IDLE_S = 10.0
# So many answers are handed on in one step of the loop, some 10 µs each.
_ANSWERS_PER_STEP = 100

# An answer, or the exception that came instead.
Answered = Callable[[Question, object], None]


class CallbackAsking:
    """The questions that are being asked, those who wait first.

    Args:
        callback: of whom.
        loop: where the answers are wanted.
        faults: takes what goes wrong.
        answered: takes each answer, on the loop.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback,
        loop: asyncio.AbstractEventLoop,
        *,
        faults: CallbackFaults,
        answered: Answered,
    ) -> None:
        self._callback = callback
        self._loop = loop
        self._faults = faults
        self._take = answered
        self._lock = Condition()
        # First those whose clients wait for them, then those that are asked again.
        self._first: deque[Question] = deque()
        self._again: deque[Question] = deque()
        self._asked: set[Question] = set()  # all that wait or run
        self._running: dict[Thread, tuple[float, Question]] = {}
        self._threads: set[Thread] = set()
        self._hanging: set[Thread] = set()
        self._held = False
        self._stopped = False
        self._done: deque[tuple[Question, object]] = deque()
        self._is_delivering = False

    # ------------------------------------------------------------------ on the loop

    def ask(self, question: Question) -> str:
        """Ask; what is being asked already is not asked once more. Returns why not, empty: it is."""
        with self._lock:
            if question in self._asked:
                self._hurry(question)
                return ""
            if len(self._asked) >= QUESTIONS_MAX:
                return f"{QUESTIONS_MAX} questions wait for the quota callback"
            if len(self._hanging) >= THREADS_MAX:
                return f"the quota callback hangs in {THREADS_MAX} threads"
            self._asked.add(question)
            self._first.append(question)
            self._start_thread(THREADS_AT_ONCE)
            self._lock.notify()
            return ""

    def ask_again(self, questions: Iterable[Question]) -> None:
        """Ask these behind those for whom somebody waits; as many as there is room for."""
        with self._lock:
            for question in questions:
                if len(self._asked) >= QUESTIONS_MAX:
                    return
                if question not in self._asked:
                    self._asked.add(question)
                    self._again.append(question)
                    self._start_thread(THREADS_AT_ONCE)
                    self._lock.notify()

    def hold(self) -> None:
        """Begin no question: the callback is being told something first."""
        with self._lock:
            self._held = True

    def look(self) -> None:
        """Due some times a second: see that nobody waits for a thread that is slow, and say who hangs."""
        now_s = monotonic()
        hangs = []
        with self._lock:
            if self._stopped:
                return  # another one is in force: nobody waits for this one's threads
            slow = sum(now_s - since_s >= _SLOW_S for since_s, _ in self._running.values())
            for _ in range(min(slow, len(self._first) + len(self._again))):
                self._start_thread(THREADS_MAX)
            for thread, (since_s, _) in self._running.items():
                if now_s - since_s >= HANGS_S and thread not in self._hanging:
                    self._hanging.add(thread)
                    hangs.append((thread, now_s - since_s))
        for thread, seconds in hangs:
            self._faults.note_hang(thread, "quota_metric_tags", seconds)

    def stop(self) -> None:
        """Ask nothing more; a thread that hangs is left to itself and ends with the process."""
        with self._lock:
            self._stopped = True
            self._first.clear()
            self._again.clear()
            self._asked.clear()
            self._lock.notify_all()

    # ------------------------------------------------------------------ on any thread

    def release(self) -> None:
        """The callback has been told: questions go on."""
        with self._lock:
            self._held = False
            self._lock.notify_all()

    def wait_until_idle(self, at_most_s: float) -> bool:
        """After ``stop``: wait until no question runs any more; false: one still does."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._running, at_most_s)

    # ------------------------------------------------------------------ inside

    def _hurry(self, question: Question) -> None:
        """Somebody waits now for what was only to be asked again."""
        with suppress(ValueError):
            self._again.remove(question)
            self._first.append(question)

    def _start_thread(self, at_most: int) -> None:
        idle = len(self._threads) - len(self._running)
        if len(self._threads) < at_most and idle < len(self._first) + len(self._again):
            # A pool of concurrent.futures would wait for its threads at the end of the process.
            thread = Thread(target=self._work, name="kvota-callback", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        thread = current_thread()
        while (question := self._next(thread)) is not None:
            answer = self._answer(question)
            with self._lock:
                del self._running[thread]
                self._hanging.discard(thread)
                self._asked.discard(question)
                self._done.append((question, answer))
                deliver, self._is_delivering = not self._is_delivering, True
                self._lock.notify_all()
            if deliver:
                with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                    self._loop.call_soon_threadsafe(self._deliver)

    def _next(self, thread: Thread) -> Question | None:
        """The next question; None: the thread is not needed any more."""
        with self._lock:
            while not self._stopped and (self._held or not (self._first or self._again)):
                if not self._lock.wait(_IDLE_S) and len(self._threads) > THREADS_AT_ONCE:
                    break
            if self._stopped or self._held or not (self._first or self._again):
                self._threads.discard(thread)
                return None
            question = (self._first or self._again).popleft()
            self._running[thread] = monotonic(), question
            return question

    def _answer(self, question: Question) -> object:
        try:
            return question.ask(self._callback)
        except BaseException as error:  # noqa: BLE001  (whatever the callback raises, sys.exit() too, is its answer)
            self._faults.note(error)
            return error

    def _deliver(self) -> None:
        """Hand answers on, some at a time."""
        for _ in range(_ANSWERS_PER_STEP):
            with self._lock:
                if not self._done:
                    self._is_delivering = False
                    return
                question, answer = self._done.popleft()
                is_wanted = not self._stopped
            if is_wanted:
                self._take(question, answer)
        self._loop.call_soon(self._deliver)
