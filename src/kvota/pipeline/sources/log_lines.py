"""Reads the lines of one range of a log, whatever lengths they have: memory stays bounded."""

import gzip
import io
import zlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

# A Fetch of 10,000 partitions has a line of 2 MB.
LINE_BYTES_MAX = 16 << 20

_READ_BYTES = 1 << 20
# What is kept of a line that is too long.
_KEPT_BYTES = 1024

# What a damaged .gz raises.
GZ_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


class Ending(Enum):
    """How a line ends."""

    WHOLE = "whole"
    OPEN = "open"  # with the file, without an end of line
    TOO_LONG = "too long"  # only its first bytes are there


class Line(NamedTuple):
    """One line, without its end.

    Attributes:
        offset: of its first byte in the (unpacked) file.
        text: its bytes.
        ending: how it ends.
    """

    offset: int
    text: bytes
    ending: Ending


def open_log(path: Path) -> IO[bytes]:
    """Open a log; a packed one is unpacked as it is read.

    Raises:
        OSError: it cannot be opened.
    """
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path))
    return path.open("rb")


class Block(NamedTuple):
    """Some whole lines, each with its end.

    Attributes:
        offset: of the first byte in the (unpacked) file.
        text: of all of them.
    """

    offset: int
    text: bytes


def lines_of(
    stream: IO[bytes], start: int = 0, end: int | None = None, *, longest: int = LINE_BYTES_MAX
) -> Iterator[Line]:
    """Yield the lines that begin in a range of a file, as ``blocks_of`` one by one."""
    for part in blocks_of(stream, start, end, longest=longest):
        if isinstance(part, Line):
            yield part
            continue
        offset = part.offset
        for text in part.text[:-1].split(b"\n"):
            yield _line(offset, text, Ending.WHOLE, longest)
            offset += len(text) + 1


def blocks_of(
    stream: IO[bytes], start: int = 0, end: int | None = None, *, longest: int = LINE_BYTES_MAX
) -> Iterator[Block | Line]:
    """Yield the lines that begin in a range of a file, many at once; those that have no end or are too long alone.

    Args:
        stream: of the whole file; for a ``start`` above 0 it can seek.
        start: of the range; a line that began before it is not of this range.
        end: of the range, None: of the file.
        longest: longer ones are not kept, in bytes.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read to its end.
    """
    begin = max(0, start - 1)
    if begin:
        stream.seek(begin)
    parts = _every_block(stream, begin, longest)
    if start:
        parts = _behind_first_line(parts)  # what its last byte is of, or ends
    for part in parts:
        if end is not None and part.offset >= end:
            return
        if end is None or isinstance(part, Line) or part.offset + len(part.text) <= end:
            yield part
        else:
            cut = part.text.index(b"\n", end - 1 - part.offset) + 1
            yield Block(part.offset, part.text[:cut])
            return


def _behind_first_line(parts: Iterator[Block | Line]) -> Iterator[Block | Line]:
    first = next(parts, None)
    if isinstance(first, Block):
        cut = first.text.index(b"\n") + 1
        if cut < len(first.text):
            yield Block(first.offset + cut, first.text[cut:])
    yield from parts


def _every_block(stream: IO[bytes], offset: int, longest: int) -> Iterator[Block | Line]:
    rest = b""
    while chunk := stream.read(_READ_BYTES):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield Block(offset, rest[:cut])
            offset += cut
            rest = rest[cut:]
        if len(rest) > longest:
            yield _line(offset, rest, Ending.OPEN, longest)
            length, behind = _skip_line(stream)
            offset += len(rest) + length
            rest = behind
    cut = rest.rfind(b"\n") + 1
    if cut:
        yield Block(offset, rest[:cut])
    if cut < len(rest):
        yield _line(offset + cut, rest[cut:], Ending.OPEN, longest)


def _line(offset: int, text: bytes, ending: Ending, longest: int) -> Line:
    if len(text) > longest:
        return Line(offset, text[:_KEPT_BYTES], Ending.TOO_LONG)
    return Line(offset, text, ending)


def _skip_line(stream: IO[bytes]) -> tuple[int, bytes]:
    """Read to the end of a line; return how many bytes that took, and what was read of the next ones."""
    skipped = 0
    while chunk := stream.read(_READ_BYTES):
        text, newline, behind = chunk.partition(b"\n")
        skipped += len(text) + len(newline)
        if newline:
            return skipped, behind
    return skipped, b""
