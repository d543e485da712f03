"""What is kept of usage: which files hold, how far each gateway is, and by that which minutes are closed. Pure.

A gateway writes what it decides for all brokers into the same files, in the order of seq: so how far a gateway is says
how far each of its brokers is, those with little traffic among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

_SECOND_US = 1_000_000
MINUTE_S = 60

# Rows come late, as a gateway writes them every few seconds, and files are copied.
LATE_US = 30 * _SECOND_US
# Of which nothing comes, and who is so far behind the others, is not waited for: it may have ended.
SILENT_US = 600 * _SECOND_US

# So many rows of open minutes are kept, or a batch's where it has more: about 80 bytes each in memory while they are summed up.
OPEN_ROWS_MAX = 4_000_000

# Of tables of minutes: 30 days.
AGE_MAX_US = 30 * 86_400 * _SECOND_US


@dataclass(frozen=True, slots=True)
class UsageFile:
    """A file of seconds or minutes.

    Attributes:
        name: in the folder of usage.
        first_s: the first second in it, or the first minute's.
        last_s: the last one.
        rows: in it.
    """

    name: str
    first_s: int
    last_s: int
    rows: int

    @classmethod
    def parsed(cls, document: Any) -> Self:
        """Read ``listed``."""
        name, first_s, last_s, rows = document
        return cls(str(name), int(first_s), int(last_s), int(rows))

    def listed(self) -> list[object]:
        """As JSON has it."""
        return [self.name, self.first_s, self.last_s, self.rows]


@dataclass(frozen=True, slots=True)
class Summed:
    """What the rows of one file of events come to.

    Attributes:
        file: their seconds.
        newest_us: the newest row of each gateway.
    """

    file: UsageFile
    newest_us: Mapping[str, int]

    @classmethod
    def parsed(cls, document: Any) -> Self:
        """Read ``listed``."""
        file, newest = document
        return cls(UsageFile.parsed(file), _times(newest))

    def listed(self) -> list[object]:
        """As JSON has it."""
        return [self.file.listed(), dict(self.newest_us)]


@dataclass(frozen=True, slots=True)
class Usage:
    """What holds.

    Attributes:
        seconds: files with minutes that are open.
        minutes: files with those that are closed.
        newest_us: the newest decision of each gateway that is waited for.
        number: how many files have been made of others; none gets a name twice.
        uncounted: so many decisions had been in the record before usage was kept, or were too old when they came.
    """

    seconds: tuple[UsageFile, ...] = ()
    minutes: tuple[UsageFile, ...] = ()
    newest_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    number: int = 0
    uncounted: int = 0

    @property
    def files(self) -> tuple[UsageFile, ...]:
        """All of them."""
        return self.seconds + self.minutes

    @property
    def latest_us(self) -> int | None:
        """The newest decision of all; None: there was none."""
        return max(self.newest_us.values(), default=None)

    @classmethod
    def parsed(cls, document: Any) -> Self:
        """Read ``document``.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(
            seconds=tuple(UsageFile.parsed(file) for file in document["seconds"]),
            minutes=tuple(UsageFile.parsed(file) for file in document["minutes"]),
            newest_us=_times(document["newest_us"]),
            number=int(document["number"]),
            uncounted=int(document["uncounted"]),
        )

    def document(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "seconds": [file.listed() for file in self.seconds],
            "minutes": [file.listed() for file in self.minutes],
            "newest_us": dict(self.newest_us),
            "number": self.number,
            "uncounted": self.uncounted,
        }


def moved_on(
    before: Mapping[str, int], came: Mapping[str, int], *, now_us: int | None
) -> dict[str, int]:
    """Return how far each gateway is that is waited for: those of which something has come, and those not far behind.

    Args:
        before: how far each was.
        came: the newest decision of each that has come.
        now_us: a decision of later than that does not count as newer: a clock that is ahead closes nobody's minutes.
            None: any decision counts.
    """
    reached = dict(before)
    for gateway, newest_us in came.items():
        seen_us = newest_us if now_us is None else min(newest_us, now_us)
        reached[gateway] = max(reached.get(gateway, seen_us), seen_us)
    least_us = max(reached.values(), default=0) - SILENT_US
    return {
        gateway: newest_us
        for gateway, newest_us in reached.items()
        if newest_us >= least_us or gateway in came
    }


def open_from_s(newest_us: Mapping[str, int]) -> int | None:
    """Return the first minute that is open, as the second with which it begins; None: all are.

    A minute is closed when the newest decision of every gateway that is waited for is 30 s past its end.
    """
    if not newest_us:
        return None
    all_are_past_s = (min(newest_us.values()) - LATE_US) // _SECOND_US
    return all_are_past_s // MINUTE_S * MINUTE_S


def _times(document: Any) -> dict[str, int]:
    return {str(gateway): int(newest_us) for gateway, newest_us in document.items()}
