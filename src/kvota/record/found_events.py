"""Finds the files of a record, and which of them hold: a compacted file holds in place of its sources.

No reader sees a state in between. A compacted file gets its name in one step; from then on the files named
in its footer do not count any more, whether they are still there or not. A folder that is listed while it
changes may show neither, so it is listed until nothing changes.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from kvota.model.errors import UnreachableError, UsageError
from kvota.record.event_file import BadInput, EventFile, look_at
from kvota.record.period import Period
from kvota.record.runs import Run, joined_runs

# Footers are looked at by so many threads: mostly they wait for the disk.
_THREADS = 8

# A folder that changes so often while it is listed is no record.
_LISTINGS_MAX = 100


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """The files in the folders of a record.

    Attributes:
        files: those to read.
        bad: those to report.
        superseded: those whose rows are in a compacted file, too; they wait to be removed.
    """

    files: tuple[EventFile, ...]
    bad: tuple[BadInput, ...] = field(default=())
    superseded: tuple[EventFile, ...] = field(default=())

    @property
    def good(self) -> tuple[Path, ...]:
        """Return the files to read."""
        return tuple(file.path for file in self.files)

    @property
    def rows(self) -> int:
        """Return how many rows are in them."""
        return sum(file.rows for file in self.files)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs in them."""
        return joined_runs(run for file in self.files for run in file.runs)

    def within(self, period: Period) -> "FoundEvents":
        """Return the files that may have decisions of a period."""
        return replace(self, files=tuple(file for file in self.files if file.is_within(period)))


def find_events(paths: Iterable[Path | str]) -> FoundEvents:
    """Look at the footer of every Parquet file in these folders (or at these files).

    Files still being written (``*.tmp``) are passed over silently.

    Raises:
        UsageError: a path does not exist, nothing that can be read lies there, or two files hold the
            same rows.
        UnreachableError: a folder changes all the time.
    """
    places = [Path(path) for path in paths]
    found = look_into(places)
    if not found.files:
        raise UsageError(_nothing_found(places, found.bad))
    return found


def look_into(places: Sequence[Path]) -> FoundEvents:
    """Do the same, and return nothing where nothing lies there."""
    looked_at: dict[Path, EventFile | BadInput] = {}
    before: list[Path] | None = None
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in range(_LISTINGS_MAX):
            paths = _files(places)
            if paths == before and all(path in looked_at for path in paths):
                break
            new = [path for path in paths if path not in looked_at]
            for path, seen in zip(new, pool.map(look_at, new), strict=True):
                if seen is not None:
                    looked_at[path] = seen
                elif path.is_symlink():
                    looked_at[path] = BadInput(path, "a link to nothing")
            before = paths
        else:
            where = ", ".join(f'"{place}"' for place in places)
            msg = f"{where} changed at each of {_LISTINGS_MAX} looks; is something else at work there?"
            raise UnreachableError(msg)
    seen_now = [looked_at[path] for path in before or ()]
    bad = tuple(item for item in seen_now if isinstance(item, BadInput))
    good = [item for item in seen_now if isinstance(item, EventFile)]
    superseded = _superseded(good)
    holding = tuple(file for file in good if file not in superseded)
    _refuse_same_rows(holding)
    return FoundEvents(holding, bad, tuple(superseded))


def _files(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(place.rglob("*.parquet"))
        elif place.exists():
            found.append(place)
        else:
            msg = (
                f'"{place}" does not exist. Name the folder the gateway records into '
                "(record.folder in gateway.toml)."
            )
            raise UsageError(msg)
    # The same file named twice would count every decision twice.
    resolved = (
        file if file.is_symlink() and not file.exists() else file.resolve() for file in found
    )
    return list(dict.fromkeys(resolved))


def _superseded(files: Sequence[EventFile]) -> list[EventFile]:
    """Return the files whose rows are in a compacted file of the same folder, too."""
    merged: dict[Path, list[EventFile]] = {}
    for file in files:
        if file.is_compacted:
            merged.setdefault(file.path.parent, []).append(file)
    sources = {
        folder: frozenset[str]().union(*(file.sources for file in of_folder))
        for folder, of_folder in merged.items()
    }
    return [
        file
        for file in files
        if file.path.name in sources.get(file.path.parent, ())
        # Two at work at once, where there are no locks, may merge the same files and some more.
        or any(
            file.is_compacted and file.sources < m.sources for m in merged.get(file.path.parent, ())
        )
    ]


def _refuse_same_rows(files: Sequence[EventFile]) -> None:
    """Refuse a second file with the rows of a first one: every decision would count twice."""
    first_with: dict[tuple[str, str, int | str], EventFile] = {}
    # Rows are told by where their run begins in a file, and by the names of the files that were merged.
    for file in files:
        marks: list[int | str] = [*file.sources]
        for run in file.runs:
            for mark in (run.first_seq, *marks):
                before = first_with.setdefault((run.gateway, run.run_id, mark), file)
                if before is not file:
                    _refuse(file, before, run)
    for file in files:
        for run in file.runs:
            merged_into = first_with.get((run.gateway, run.run_id, file.path.name), file)
            if merged_into is not file:
                _refuse(file, merged_into, run)


def _refuse(file: EventFile, before: EventFile, run: Run) -> NoReturn:
    msg = (
        f'"{file.path}" holds rows that "{before.path}" holds, too (gateway {run.gateway}, '
        f"run {run.run_id}, from seq {run.first_seq} on): every decision would count twice. "
        "Name each folder once, and no copy of it"
    )
    raise UsageError(msg)


def _nothing_found(places: Sequence[Path], bad: Sequence[BadInput]) -> str:
    where = ", ".join(f'"{place}"' for place in places)
    if bad:
        return f"no events file in {where} can be read:\n" + "\n".join(f"  {item}" for item in bad)
    return (
        f"no events in {where} (no *.parquet file). The gateway writes a file every few seconds "
        "once traffic flows; look at record.folder in gateway.toml."
    )
