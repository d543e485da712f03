"""Many lines of a request log at once, by a kernel: which of them it could read, and what they say."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.kernels.request_lines import COLUMNS, REALS, read_lines
from kvota.pipeline.sources.request_line import Who, charges_time_only

# By API key.
_TIME_ONLY = np.array([charges_time_only(key) for key in range(128)])

# Of a second, as Kafka's own pattern writes it.
MILLISECOND_DIGITS = 3


@dataclass(frozen=True, slots=True)
class LineBegin:
    """How lines of one minute begin.

    Attributes:
        begin: up to the milliseconds.
        second_at: where in it the two digits of the second are.
        minute_us: Unix microseconds.
        behind: from behind the milliseconds to the JSON.
    """

    begin: bytes
    second_at: int
    minute_us: int
    behind: bytes


@dataclass(frozen=True, slots=True)
class QuickLines:
    """The lines of a block that a kernel could read.

    Attributes:
        places: of these lines among all of the block.
        numbers: a row of ``kernels.request_lines.COLUMNS`` for each.
        answered_ms: as ``Request`` has it.
        local_ms: how long a thread worked on it.
        whos: everybody who has ever sent some, to the same reader.
        codes: of each line, its place in ``whos``.
    """

    places: Array
    numbers: Array
    answered_ms: Array
    local_ms: Array
    whos: Sequence[Who]
    codes: Array

    def __getitem__(self, column: str) -> Array:
        """Return a column of the numbers."""
        found: Array = self.numbers[:, COLUMNS.index(column)]
        return found

    def up_to(self, place: int) -> "QuickLines":
        """Return those before a place of the block."""
        count = int(np.searchsorted(self.places, place))
        return QuickLines(
            self.places[:count],
            self.numbers[:count],
            self.answered_ms[:count],
            self.local_ms[:count],
            self.whos,
            self.codes[:count],
        )


class QuickReader:
    """Reads blocks of lines; remembers who has sent some."""

    def __init__(self) -> None:
        # Nobody can choose names whose hashes are the same.
        self._seed = np.uint64(secrets.randbits(64))
        self._codes: dict[int, int] = {}
        self._whos: list[Who] = []

    def read(self, text: bytes, starts: Array, ends: Array, begin: LineBegin) -> QuickLines:
        """Return what could be read of some lines of a block."""
        count = len(starts)
        numbers = np.empty((count, len(COLUMNS)), np.int64)
        reals = np.empty((count, len(REALS)), np.float64)
        hashes = np.empty(count, np.uint64)
        read_lines(
            np.frombuffer(text, np.uint8),
            starts,
            ends,
            np.frombuffer(begin.begin, np.uint8),
            begin.second_at,
            begin.minute_us,
            np.frombuffer(begin.behind, np.uint8),
            self._seed,
            _TIME_ONLY,
            numbers,
            reals,
            hashes,
        )
        places = np.flatnonzero(numbers[:, COLUMNS.index("known")])
        known = numbers[places]
        unique, firsts, codes = np.unique(hashes[places], return_index=True, return_inverse=True)
        found = np.array([self._codes.get(name, -1) for name in unique.tolist()], np.int64)
        for new in np.flatnonzero(found < 0).tolist():
            found[new] = self._codes[int(unique[new])] = len(self._whos)
            self._whos.append(_who(text, known[firsts[new]]))
        return QuickLines(
            places, known, reals[places, 0], reals[places, 1], self._whos, found[codes]
        )


def _who(text: bytes, row: Array) -> Who:
    fields = dict(zip(COLUMNS, row.tolist(), strict=True))
    user, client_id, connection = (
        text[fields[f"{part}_from"] : fields[f"{part}_to"]].decode("ascii")
        for part in ("user", "client", "connection")
    )
    return Who(fields["api_key"], fields["api_version"], user, client_id, connection)
