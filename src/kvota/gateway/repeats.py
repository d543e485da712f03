"""Lines of the log that would come again and again: each is said once a minute, and repeats are counted."""

import logging
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

log = logging.getLogger(__name__)

SAID_AGAIN_S = 60.0
# Clients may have as many addresses and names as they like: what is beyond is only counted. One that changes its name
# each time must not fill the table for all others.
KEYS_MAX = 1_000
KEYS_OF_ONE_MAX = 20


@dataclass(slots=True)
class _Said:
    """Whose it is, how repeats will be said, when the first one was, and how many there have been since."""

    whose: str
    again: str
    level: int
    at_s: float
    more: int = 0


class Repeats:
    """The lines of one kind of the last minute, by what they are about.

    Args:
        kind: what they tell of, in the plural: ``refused logins``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._said: dict[Hashable, _Said] = {}
        self._of_one: Counter[str] = Counter()
        self._others = 0

    def say(
        self,
        line: str,
        *,
        about: Hashable,
        whose: str,
        again: str,
        now_s: float,
        level: int = logging.WARNING,
    ) -> None:
        """Log the line, or count it if one about the same was logged within the last minute.

        Args:
            line: what has happened.
            about: lines with the same one are repeats of each other.
            whose: the address that has caused it; of one so many different lines are said at most.
            again: said of repeats behind their number, e.g. ``more connections were refused``.
            now_s: on a monotonic clock.
            level: of the line and of what is said of its repeats.
        """
        said = self._said.get(about)
        if said is None and len(self._said) < KEYS_MAX and self._of_one[whose] < KEYS_OF_ONE_MAX:
            self._said[about] = _Said(whose, again, level, now_s)
            self._of_one[whose] += 1
            log.log(level, "%s", line)
            return
        if said is None:
            self._others += 1
        else:
            said.more += 1
        log.debug("%s", line)

    def sweep(self, now_s: float) -> None:
        """Say what has come on top of what was said a minute ago; due every other second."""
        for about, said in list(self._said.items()):
            if now_s - said.at_s < SAID_AGAIN_S:
                break  # they stand in the order in which they were said
            del self._said[about]
            self._of_one[said.whose] -= 1
            if not self._of_one[said.whose]:
                del self._of_one[said.whose]
            _say_more(said)
        self._say_others()

    def finish(self) -> None:
        """Say what has not been said yet: no further minute comes."""
        for said in self._said.values():
            _say_more(said)
        self._said.clear()
        self._of_one.clear()
        self._say_others()

    def _say_others(self) -> None:
        if self._others:
            log.warning("and %d other lines about %s within 2 s", self._others, self._kind)
            self._others = 0


def _say_more(said: _Said) -> None:
    if said.more:
        log.log(said.level, "%d %s", said.more, said.again)
