"""Another quota callback takes over while connections go on, and answers that are old are asked for again."""

from collections.abc import Callable
from math import inf
from random import Random
from typing import ClassVar

from tests.simulation.asked_callback import SLOWEST_MS, AskedCallback, Asking
from tests.simulation.timeline import Timeline

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags
from kvota.testing.stage import Cluster

_SWAPS_RATIO = 0.2
_LATEST_MS = (300, 4_000, 60_000)
# After a change, until the callback has been asked again about those who are known.
_AGAIN_US = (0, 2_000, 400_000)
# So often a gateway looks whose answers are old.
_LOOK_US = 250_000
_LOOKS_RATIO = 0.7
# What is altered counts within a second, with a callback that answers.
EFFECT_MS = 1_000
_PREFIX = "x-"
# Of these a request may have gone up long before it is charged.
_CHARGED_LATE = frozenset({QuotaType.PRODUCE, QuotaType.FETCH})


class Renamed(DefaultQuotaCallback):
    """Kafka's own limits, on counters of its own."""

    answers_at_once: ClassVar[bool] = True

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        tags = super().quota_metric_tags(quota_type, user, client_id)
        return {_PREFIX + key: value for key, value in tags.items()}

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        plain = {key.removeprefix(_PREFIX): value for key, value in tags.items()}
        return super().quota_limit(quota_type, plain)


class RenamedAsked(Renamed):
    """The same, on a thread of its own."""

    answers_at_once: ClassVar[bool] = False


class Swaps:
    """Draws whether and when another callback takes over; by draws of its own, so that other draws stay."""

    def __init__(
        self,
        seed: int,
        cluster: Cluster,
        timeline: Timeline,
        asking: Asking,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._rng = rng = Random(f"swaps {seed}")
        self._cluster = cluster
        self._timeline = timeline
        self._asking = asking
        self._changed = changed
        # In the other worlds an answer that did not come, or an old one, stays until the next change.
        self.looks = rng.random() < _LOOKS_RATIO
        self._is_due = False
        asking.on_answer = self._look
        self.count = rng.choice((1, 2, 4)) if rng.random() < _SWAPS_RATIO else 0
        for _ in range(self.count):
            at_ms = rng.randrange(rng.choice(_LATEST_MS))
            timeline.after_us(at_ms * 1000, self._swap)

    def effect_ms(self, quota_type: QuotaType, *, is_asked: bool) -> float:
        """So long behind a change another limit may count at most: no time where the callback need not be asked.

        An old answer of one that is slow is as old as that. A Produce that comes slowly may end, and a broker may answer
        a Fetch that waited for records, when nobody knows an answer of the callback that has taken over since: the
        request has gone up, and counts where it was led to, on a counter of the callback before.
        """
        if not is_asked:
            return 0.0
        may_end_late = quota_type in _CHARGED_LATE and self.count
        return EFFECT_MS + SLOWEST_MS if self.looks and not may_end_late else inf

    def _swap(self) -> None:
        of_class = self._rng.choice((DefaultQuotaCallback, AskedCallback, Renamed, RenamedAsked))
        shared = self._cluster.shared
        quotas = shared.engine.quotas
        callback: ClientQuotaCallback = of_class(quotas)
        if of_class is DefaultQuotaCallback:
            callback = shared.default_callback
            callback.initial_quotas = quotas
        known = shared.engine.questions_about_known(by_broker=False)
        answered = [question for question in known if self._rng.random() < 0.7]
        answers = {question: question.ask(callback) for question in answered}
        shared.replace_callback(
            callback, by_broker=False, answers={} if callback.answers_at_once else answers
        )
        self._asking.callback = callback
        self._changed()

    def ask_again(self) -> None:
        """Something has changed: those who are known are asked about again, a little later."""
        self._timeline.after_us(self._rng.choice(_AGAIN_US), self._ask_due)

    def _ask_due(self) -> None:
        engine = self._cluster.engine
        due = engine.due_questions()
        for question in due:
            if self._rng.random() < 0.8:
                engine.learn(question, question.ask(engine.callback))
            else:  # it fails
                engine.learn_default(question, self._cluster.shared.default_callback)
        if due:
            self._changed()
        self._look()

    def _look(self) -> None:
        """Where answers are old still, they are asked for again, and come."""
        if self.looks and not self._is_due and self._cluster.engine.due_questions():
            self._is_due = True
            self._timeline.after_us(_LOOK_US, self._ask_left)

    def _ask_left(self) -> None:
        self._is_due = False
        engine = self._cluster.engine
        for question in engine.due_questions():
            engine.learn(question, question.ask(engine.callback))
        self._changed()
