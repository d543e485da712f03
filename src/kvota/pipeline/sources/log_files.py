"""Finds the files of a request log, puts those of each broker in order, and says what is in them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import orjson

from kvota.model.errors import UnreachableError, UsageError
from kvota.model.plain_text import shortened
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_layout import Layout
from kvota.pipeline.sources.log_lines import GZ_ERRORS, open_log
from kvota.pipeline.sources.request_line import MARK, OLD_MARK, request_of

# So much of a file's begin and end is looked at.
_LOOKED_AT_BYTES = 256 << 10
# A packed log unpacks to about so many times its bytes.
_UNPACKED = 12
# What is named of users and of files.
_SHOWN_CHARS = 120

_NUMBER_AT_END = re.compile(r"(\d+)$")
_UNKNOWN_NODE = -2


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a broker's request log.

    Attributes:
        path: of the file.
        size_bytes: as it lies there.
        first_us: when its first line was written, Unix microseconds; an hour that is there twice counts as the first.
        last_us: and its last one; None: nobody has unpacked it yet.
        lines: about so many.
        users: that its begin names.
        second_from: lines from this offset on are of the second of two hours of the same name; None: none is.
    """

    path: Path
    size_bytes: int
    first_us: int
    last_us: int | None
    lines: int
    users: frozenset[str] = frozenset()
    second_from: int | None = None

    @property
    def is_packed(self) -> bool:
        """Return whether it is compressed."""
        return self.path.suffix == ".gz"


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """The files of one broker's request log, oldest first.

    Attributes:
        name: of the place, without what rolling adds.
        node_id: of the broker, as the place has it; below -1: it is not known.
        files: at least one.
    """

    name: str
    node_id: int
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class FoundLog:
    """What was found.

    Attributes:
        brokers: at least one.
        others: files that are no request log, and why.
    """

    brokers: tuple[BrokerLog, ...]
    others: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Return the files of all brokers."""
        return tuple(file for broker in self.brokers for file in broker.files)

    @property
    def size_bytes(self) -> int:
        """Return their size as they lie there."""
        return sum(file.size_bytes for file in self.files)

    @property
    def lines(self) -> int:
        """Return about how many lines they have."""
        return sum(file.lines for file in self.files)

    @property
    def users(self) -> frozenset[str]:
        """Return the users that the begins of the files name."""
        return frozenset[str]().union(*(file.users for file in self.files))

    @property
    def first_us(self) -> int:
        """Return when the first line was written."""
        return min(file.first_us for file in self.files)

    @property
    def last_us(self) -> int:
        """Return when the last line was written, as far as nothing has to be unpacked for it."""
        return max(file.last_us or file.first_us for file in self.files)


def find_request_log(places: Sequence[Path], layout: Layout, clock: LogClock) -> FoundLog:
    """Look at the begin and the end of every file that these places have.

    Args:
        places: files, or folders of files with ``.log`` in their names.
        layout: of their lines.
        clock: reads their times.

    Raises:
        UsageError: a place does not exist or has no request log, or the log is of Kafka 2.7 or earlier.
        UnreachableError: a file cannot be read.
    """
    found: dict[tuple[Path, str], list[LogFile]] = {}
    others: list[str] = []
    for path, is_named in _listed(places):
        try:
            seen = _look_at(path, layout, clock)
        except (OSError, *GZ_ERRORS) as error:
            msg = f"{path} cannot be read: {error}. Leave it out, or copy it again"
            raise UnreachableError(msg) from error
        if isinstance(seen, str):
            if is_named:
                msg = f"{path}: {seen}"
                raise UsageError(msg)
            others.append(f"{path}: {seen}")
        else:
            found.setdefault((path.parent, path.name.partition(".log")[0]), []).append(seen)
    if not found:
        where = ", ".join(f'"{place}"' for place in places)
        told = "".join(f"\n  {text}" for text in others[:10])
        msg = (
            f"there is no request log in {where} (*.log*): a broker writes one while its logger "
            f"kafka.request.logger is at DEBUG{told}"
        )
        raise UsageError(msg)
    nodes = _node_ids(list(found))
    brokers = [
        BrokerLog(_name(folder, stem, list(found)), node_id, tuple(_in_order(files)))
        for ((folder, stem), files), node_id in zip(found.items(), nodes, strict=True)
    ]
    return FoundLog(tuple(brokers), tuple(others))


def _listed(places: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Return all files, each once, and whether somebody has named it."""
    files: dict[Path, bool] = {}
    for place in places:
        if place.is_dir():
            for path in sorted(place.rglob("*.log*")):
                if path.is_file():
                    files.setdefault(path.resolve(), False)
        elif place.exists():
            files[place.resolve()] = True
        else:
            msg = f'"{place}" does not exist. Name the folder that the broker logs into, or files of it'
            raise UsageError(msg)
    return list(files.items())


def _in_order(files: Iterable[LogFile]) -> list[LogFile]:
    """Return a broker's files, oldest first; one that nobody has unpacked ends where the next begins."""
    ordered = sorted(files, key=lambda file: (file.first_us, file.path.name))
    nexts = [*ordered[1:], None]
    return [
        replace(file, last_us=behind.first_us)
        if file.last_us is None and behind is not None
        else file
        for file, behind in zip(ordered, nexts, strict=True)
    ]


def _node_ids(keys: Sequence[tuple[Path, str]]) -> list[int]:
    """Return the brokers' numbers, where names of folders or files end with one; else -2, -3 and so on."""
    for names in ([folder.name for folder, _ in keys], [stem for _, stem in keys]):
        numbers = [int(match[1]) for name in names if (match := _NUMBER_AT_END.search(name))]
        if len(set(numbers)) == len(keys) and max(numbers) < 2**31:
            return numbers
    return [_UNKNOWN_NODE - place for place in range(len(keys))]


def _name(folder: Path, stem: str, every: Sequence[tuple[Path, str]]) -> str:
    """Return the shortest name that no other broker's log has."""
    for names in (
        [other.name or name for other, name in every],
        [f"{other.name}/{name}" for other, name in every],
    ):
        if len(set(names)) == len(every):
            return names[every.index((folder, stem))]
    return f"{folder}/{stem}"


def _look_at(path: Path, layout: Layout, clock: LogClock) -> LogFile | str:
    """Return what a file has, or why it is no request log."""
    size_bytes = path.stat().st_size
    with open_log(path) as stream:
        begin = stream.read(_LOOKED_AT_BYTES)
        last_us = None if path.suffix == ".gz" else _last_us(stream, size_bytes, layout, clock)
    if OLD_MARK in begin:
        msg = (
            f"{path} is a request log of Kafka 2.7 or earlier, which has no sizes of requests; "
            "brokers write them since Kafka 2.8"
        )
        raise UsageError(msg)
    if MARK not in begin:
        return "no line of a completed request; is kafka.request.logger at DEBUG, and is this its file?"
    lines = begin.split(b"\n")
    if len(begin) == _LOOKED_AT_BYTES and len(lines) > 1:
        del lines[-1]
    times = [time for line in lines if (time := _time_us(line, layout, clock)) is not None]
    if not times:
        shown = shortened(lines[0].decode(errors="replace"), _SHOWN_CHARS)
        msg = (
            f'{path}: no line begins as the log4j pattern says. Its first line: "{shown}". '
            "Name the appender's pattern with --log-pattern"
        )
        raise UsageError(msg)
    mean_bytes = sum(map(len, lines)) / len(lines) + 1
    unpacked = size_bytes * (_UNPACKED if path.suffix == ".gz" else 1)
    about = len(times) if len(begin) < _LOOKED_AT_BYTES else round(unpacked / mean_bytes)
    return LogFile(path, size_bytes, times[0], last_us, about, _users(lines))


def _last_us(stream: IO[bytes], size_bytes: int, layout: Layout, clock: LogClock) -> int | None:
    stream.seek(max(0, size_bytes - _LOOKED_AT_BYTES))
    for line in reversed(stream.read(_LOOKED_AT_BYTES).split(b"\n")):
        found = _time_us(line, layout, clock)
        if found is not None:
            return found
    return None


def _time_us(line: bytes, layout: Layout, clock: LogClock) -> int | None:
    head = layout.head.match(line)
    try:
        return None if head is None else clock.time_us(head)
    except ValueError:
        return None


def _users(lines: Iterable[bytes]) -> frozenset[str]:
    users: set[str] = set()
    for line in lines:
        place = line.find(MARK)
        try:
            json = orjson.loads(line[place + len(MARK) : line.rfind(b"}") + 1])
            who = request_of(json).who
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # it is told of when it is converted
        if who is not None:
            users.add(who.user)
    return frozenset(users)
