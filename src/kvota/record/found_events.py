"""Finds the files of a record, and which of them hold: a compacted file holds in place of its sources.

No reader sees a state in between. A compacted file gets its name in one step; from then on the files named
in its footer do not count any more, whether they are still there or not. A folder that is listed while it
changes may show neither, so it is listed until nothing changes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, TypeVar

from kvota.files.threads import in_threads
from kvota.model.errors import UnreachableError, UsageError
from kvota.record.event_file import BadInput, EventFile, look_at
from kvota.record.period import Period
from kvota.record.places import is_beside_events, local_path
from kvota.record.runs import Run, joined_runs

_Place = TypeVar("_Place", Path, str)

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
    def good(self) -> tuple[Path | str, ...]:
        """Return the files to read; a text is the URI of one that is not on this machine."""
        return tuple(file.uri or file.path for file in self.files)

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

    def removed_in(self, later: "FoundEvents") -> int:
        """Return how many of the files a later look has neither found nor seen merged into others."""
        there = {file.place for file in later.files}
        merged = frozenset[str]().union(*(file.sources for file in later.files))
        return sum(file.place not in there and file.path.name not in merged for file in self.files)

    def without_oldest(self, count: int) -> "FoundEvents":
        """Return the same without so many of the oldest files; the newest one stays."""
        in_order = sorted(self.files, key=lambda file: (file.first_us, file.place))
        oldest = {file.place for file in in_order[: min(count, len(in_order) - 1)]}
        return replace(self, files=tuple(file for file in self.files if file.place not in oldest))


def find_events(paths: Iterable[Path | str]) -> FoundEvents:
    """Look at the footer of every Parquet file in these folders (or at these files) of this machine.

    Files still being written (``*.tmp``) are passed over silently.

    Args:
        paths: or URIs of ``file:``.

    Raises:
        UsageError: a path does not exist, nothing that can be read lies there, or two files hold the
            same rows.
        UnreachableError: a folder changes all the time.
    """
    places = [_on_this_machine(path) for path in paths]
    found = look_into(places)
    if not found.files:
        raise UsageError(nothing_found(places, found.bad))
    return found


def _on_this_machine(place: Path | str) -> Path:
    path = local_path(place)
    if path is None:
        msg = f'"{place}" is not on this machine; this works on a folder of this machine only'
        raise UsageError(msg)
    return path


def look_into(places: Sequence[Path]) -> FoundEvents:
    """Do the same, and return nothing where nothing lies there."""
    return find_all(lambda: _files(places), lambda paths: in_threads(_look_at, paths, _THREADS))


def find_all(
    listed: Callable[[], list[_Place]],
    look_at_all: Callable[[Sequence[_Place]], Iterable[EventFile | BadInput | None]],
) -> FoundEvents:
    """List files and look at them until nothing changes; return those that hold.

    Args:
        listed: returns all files that are there, each once.
        look_at_all: looks at some of them; None for one that is gone.

    Raises:
        UsageError: two files hold the same rows.
        UnreachableError: something changes all the time.
    """
    looked_at: dict[_Place, EventFile | BadInput] = {}
    before: list[_Place] | None = None
    for _ in range(_LISTINGS_MAX):
        places = listed()
        if places == before and all(place in looked_at for place in places):
            break
        new = [place for place in places if place not in looked_at]
        seen = zip(new, look_at_all(new), strict=True)
        looked_at |= {place: found for place, found in seen if found is not None}
        before = places
    else:
        msg = f"the record changed at each of {_LISTINGS_MAX} looks; is something else at work in its folder?"
        raise UnreachableError(msg)
    seen_now = [looked_at[place] for place in before or ()]
    return in_force(seen_now)


def in_force(looked_at: Iterable[EventFile | BadInput]) -> FoundEvents:
    """Return the files that hold; those that were merged into another one do not.

    Raises:
        UsageError: two files hold the same rows.
    """
    every = list(looked_at)
    bad = tuple(item for item in every if isinstance(item, BadInput))
    good = [item for item in every if isinstance(item, EventFile)]
    superseded = _superseded(good)
    merged = {file.place for file in superseded}
    holding = tuple(file for file in good if file.place not in merged)
    _refuse_same_rows(holding)
    return FoundEvents(holding, bad, tuple(superseded))


def _look_at(path: Path) -> EventFile | BadInput | None:
    seen = look_at(path)
    return BadInput(path, "a link to nothing") if seen is None and path.is_symlink() else seen


def _files(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(_parquet_files(place.resolve()))
        elif place.exists():
            found.append(place.resolve())
        else:
            msg = (
                f'"{place}" does not exist. Name the folder the gateway records into '
                "(record.folder in gateway.toml)."
            )
            raise UsageError(msg)
    # The same file named twice would count every decision twice.
    return list(dict.fromkeys(found))


def _parquet_files(folder: Path) -> Iterator[Path]:
    """Yield the files (or what is called like one) in a folder and those below, and links to folders, which nobody follows.

    Links to files are followed, but those to nothing.

    Raises:
        UnreachableError: one of the folders cannot be read.
    """
    for root, below, names in os.walk(folder, onerror=_refuse_folder):
        links = {name for name in below if Path(root, name).is_symlink()}
        yield from (Path(root, name) for name in sorted(links) if not is_beside_events(name))
        for name in (*below, *names):
            if name.endswith(".parquet") and name not in links and not is_beside_events(name):
                file = Path(root, name)
                # Only these: nothing else is left to resolve below a folder that is.
                yield file.resolve() if file.is_symlink() and file.exists() else file


def _refuse_folder(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):  # it has gone meanwhile
        return
    msg = (
        f"{error.filename}: {error.strerror}. Its files are a part of the record: have it readable for who "
        "runs this, or name the folders beside it"
    )
    raise UnreachableError(msg) from error


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
    # Rows are told by where their run begins in a file, and by the names of the files that were merged.
    first_with: dict[tuple[str, str, int], EventFile] = {}
    merged_into: dict[str, EventFile] = {}
    for file in files:
        for run in file.runs:
            before = first_with.setdefault((run.gateway, run.run_id, run.first_seq), file)
            if before is not file:
                _refuse(file, before, run)
        for name in file.sources:
            _refuse_shared_run(file, merged_into.setdefault(name, file))
    for file in files:
        _refuse_shared_run(file, merged_into.get(file.path.name, file))


def _refuse_shared_run(file: EventFile, other: EventFile) -> None:
    """Refuse a file with a run of another one, where both have rows of the same source."""
    if other is not file:
        others = {(run.gateway, run.run_id) for run in other.runs}
        for run in file.runs:
            if (run.gateway, run.run_id) in others:
                _refuse(file, other, run)


def _refuse(file: EventFile, before: EventFile, run: Run) -> NoReturn:
    msg = (
        f'"{file.place}" holds rows that "{before.place}" holds, too (gateway {run.gateway}, '
        f"run {run.run_id}, from seq {run.first_seq} on): every decision would count twice. "
        "Name each folder once, and no copy of it"
    )
    raise UsageError(msg)


def nothing_found(places: Sequence[Path | str], bad: Sequence[BadInput]) -> str:
    """Return what to say where no file can be read."""
    where = ", ".join(f'"{place}"' for place in places)
    if bad:
        return f"no events file in {where} can be read:\n" + "\n".join(f"  {item}" for item in bad)
    return (
        f"no events in {where} (no *.parquet file). The gateway writes a file every few seconds "
        "once traffic flows; look at record.folder in gateway.toml."
    )
