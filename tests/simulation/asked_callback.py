"""A quota callback that has to be asked, and how it behaves: late, too late, or with an error."""

from collections.abc import Callable
from random import Random
from typing import ClassVar

from tests.simulation.timeline import Timeline

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Question
from kvota.model.quota_callback import ClientQuotaCallback

# A second is what the session waits for.
_DELAYS_US = (0, 300, 30_000, 900_000, 1_600_000)
SLOWEST_MS = max(_DELAYS_US) // 1_000
_FAILS_RATIO = 0.1


class AskedCallback(DefaultQuotaCallback):
    """Kafka's own rules, on a thread of their own."""

    answers_at_once: ClassVar[bool] = False


class Asking:
    """Answers questions after a while, and says what was so when they were asked, or when answered."""

    def __init__(self, callback: ClientQuotaCallback, timeline: Timeline, rng: Random) -> None:
        self.callback = callback
        self._timeline = timeline
        self._rng = rng
        self.on_answer: Callable[[], None] = lambda: None

    def ask(self, question: Question, take: Callable[[object], None]) -> None:
        def answered(answer: object) -> None:
            take(answer)
            self.on_answer()

        delay_us = self._rng.choice(_DELAYS_US)
        if self._rng.random() < _FAILS_RATIO:
            self._timeline.after_us(delay_us, lambda: answered(RuntimeError("it has no answer")))
        elif self._rng.random() < 0.5:
            answer = question.ask(self.callback)
            self._timeline.after_us(delay_us, lambda: answered(answer))
        else:
            self._timeline.after_us(delay_us, lambda: answered(question.ask(self.callback)))
