"""A run is one start of a gateway; a file of a record says in its footer which runs it holds rows of."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TypeVar

_Value = TypeVar("_Value", str, int)

# The key of the footer's metadata.
RUNS_KEY = "runs"

# A run counts as complete if it begins with this seq or a lower one. seq counts from 0, and one lost
# row would hardly change anything.
_FIRST_SEQ_MAX = 1


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """What is there of one run of a gateway; seq has no gaps in a run."""

    gateway: str
    run_id: str
    first_seq: int
    last_seq: int
    rows: int
    first_us: int
    last_us: int

    @property
    def is_complete(self) -> bool:
        """Return whether its first rows are there."""
        return self.first_seq <= _FIRST_SEQ_MAX

    @property
    def missing(self) -> int:
        """Return how many rows were lost in between; negative: some are there twice."""
        return self.last_seq - self.first_seq + 1 - self.rows

    def joined(self, other: "Run") -> "Run":
        """Return what is there of a run in two places."""
        return Run(
            self.gateway,
            self.run_id,
            min(self.first_seq, other.first_seq),
            max(self.last_seq, other.last_seq),
            self.rows + other.rows,
            min(self.first_us, other.first_us),
            max(self.last_us, other.last_us),
        )


def joined_runs(parts: Iterable[Run]) -> tuple[Run, ...]:
    """Return one ``Run`` per gateway and run_id, in their order."""
    runs: dict[tuple[str, str], Run] = {}
    for part in parts:
        key = (part.gateway, part.run_id)
        runs[key] = runs[key].joined(part) if key in runs else part
    return tuple(runs[key] for key in sorted(runs))


def runs_at_once(runs: Iterable[Run]) -> dict[str, int]:
    """Return by gateway how many runs there were at once, at most: a gateway that starts anew has ended before."""
    turns: dict[str, list[tuple[int, int]]] = {}
    for run in runs:
        turns.setdefault(run.gateway, []).extend([(run.first_us, 1), (run.last_us, -1)])
    return {
        # Who ends in the moment in which another begins is not there with it.
        name: max(accumulate(change for _, change in sorted(of_name)), default=0)
        for name, of_name in sorted(turns.items())
    }


def runs_text(runs: Iterable[Run]) -> str:
    """Write runs for a footer: JSON, an object per run with the fields of ``Run``."""
    return json.dumps([asdict(run) for run in runs])


def parsed_runs(text: bytes, *, rows: int) -> tuple[Run, ...] | None:
    """Read the runs that a footer names; None where it cannot be so.

    Args:
        text: as ``runs_text`` writes it; from a file, so anything.
        rows: of the file; the runs have to have as many together.
    """
    try:
        found = json.loads(text)
        runs = tuple(_run(fields) for fields in found)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return runs if sum(run.rows for run in runs) == rows else None


def _run(fields: dict[str, object]) -> Run:
    texts = [fields[name] for name in ("gateway", "run_id")]
    numbers = [fields[name] for name in ("first_seq", "last_seq", "rows", "first_us", "last_us")]
    gateway, run_id = (_checked(text, str) for text in texts)
    first_seq, last_seq, rows, first_us, last_us = (_checked(number, int) for number in numbers)
    if rows < 1 or first_us > last_us:
        raise ValueError(rows)
    return Run(gateway, run_id, first_seq, last_seq, rows, first_us, last_us)


def _checked(value: object, wanted: type[_Value]) -> _Value:
    if type(value) is not wanted or (type(value) is int and not -(2**63) <= value < 2**63):
        raise TypeError(value)
    if type(value) is str:
        value.encode()  # half of a character, which JSON may have, is no text
    return value
