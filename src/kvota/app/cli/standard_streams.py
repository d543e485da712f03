"""Standard streams that fail, or are closed, change nothing of what a command does, and its exit code says the right thing."""

import io
import os
import sys
from typing import TextIO, cast

ANSWER = "<stdout>"  # the name of the file in errors about what is printed


class _Answer(io.FileIO):
    """Errors name the file, so that nobody takes them for those of another one."""

    def write(self, data: "bytes | bytearray | memoryview") -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            error.filename = ANSWER
            raise


class _Notes(io.FileIO):
    """What cannot be said is left out: the answer and the exit code are worth more."""

    def write(self, data: "bytes | bytearray | memoryview") -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            return len(data)


def prepare() -> None:
    """Make stdout and stderr as they are needed; a closed one, and a closed stdin, leads to nowhere.

    Otherwise the next file that is opened would become it, and have in it what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _stream(_Answer(1, "w", closefd=False), sys.stdout)
    sys.stderr = _stream(_Notes(2, "w", closefd=False), sys.stderr)


def _stream(raw: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    """As Python has made the stream, but over ``raw``."""
    was = before if isinstance(before, io.TextIOWrapper) else None
    unbuffered = was is not None and was.write_through
    return io.TextIOWrapper(
        cast("io.BufferedWriter", raw) if unbuffered else io.BufferedWriter(raw),
        encoding=was.encoding if was is not None else "utf-8",
        errors=was.errors if was is not None else "backslashreplace",
        line_buffering=was is not None and was.line_buffering,
        write_through=unbuffered,
    )
