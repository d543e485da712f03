"""What one connection waits for from outside: a quota callback's answer, an errand, which broker was reached."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kvota.engine import Question
from kvota.gateway.means import Means
from kvota.session.outside import Errand


class Questions:
    """The open ones; each is answered once, or dropped with its connection."""

    __slots__ = ("_means", "_open")

    def __init__(self, means: Means) -> None:
        self._means = means
        self._open: set[asyncio.Future[Any]] = set()

    def ask(self, question: Question, answered: Callable[[object], None]) -> None:
        """Ask the callback; it may take a while."""
        self._wait_for(self._means.asking.ask(question), answered)

    def run(self, errand: Errand, told: Callable[[object], None]) -> None:
        """Run an errand; whatever goes wrong with it is a result, too."""
        self._wait_for(self._means.errands.run(errand), told)

    def find_node(self, address: tuple[str, int], located: Callable[[Any], None]) -> None:
        """Look up which broker has this address; ``located`` gets None where it is none's own."""
        finding: Coroutine[Any, Any, int | None] = self._means.brokers.node_at(*address)
        self._wait_for(self._means.loop.create_task(finding), located)

    def drop(self) -> None:
        """Nobody waits any more."""
        for question in self._open:
            question.cancel()

    def _wait_for(self, answer: asyncio.Future[Any], answered: Callable[[Any], None]) -> None:
        self._open.add(answer)
        answer.add_done_callback(partial(self._done, answered))

    def _done(self, answered: Callable[[Any], None], answer: asyncio.Future[Any]) -> None:
        self._open.discard(answer)
        if not answer.cancelled():
            answered(answer.result())
