"""Shows one line per step on stderr while the demo works; results go to stdout."""

import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# Nothing that the demo says is wider, but for paths of the user's own.
WIDTH = 100

_SPINNER_S = 0.5
_INDENT = " " * 6
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=([kKMGT]?B|ms|s|/s)\b|/s)")
_TIED = "\N{NO-BREAK SPACE}"
_GREEN, _RED, _BOLD, _PLAIN = "\033[32m", "\033[31m", "\033[1m", "\033[0m"


class Screen:
    """Shows numbered steps with their time; a terminal's line of the running step is updated."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._number = 0
        self._terminal = sys.stderr.isatty()
        self._started = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Show a step while it runs; what is appended to the list is said below it when it is done."""
        self._number += 1
        label = f"[{self._number}/{self._steps}] {title}"
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(label, done), daemon=True)
        said: list[str] = []
        began = time.monotonic()
        if self._terminal:
            ticker.start()
        else:
            _note(f"{label} ...")
        try:
            yield said
        except BaseException:
            done.set()
            if self._terminal:
                ticker.join()
            _note(f"{label}: failed")
            raise
        done.set()
        if self._terminal:
            ticker.join()
        _note(f"{label} ({time.monotonic() - began:.1f} s)")
        for line in said:
            self.note(line, indent=_INDENT)

    def _tick(self, label: str, done: threading.Event) -> None:
        began = time.monotonic()
        while not done.wait(_SPINNER_S):
            print(
                f"\r{label} ... {time.monotonic() - began:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    def note(self, text: str, *, indent: str = "") -> None:
        """Say something beside the results, in lines that fit."""
        _note(wrapped(text, indent=indent))

    def heading(self, text: str) -> None:
        """Print a line that stands out on stdout."""
        print(f"{_BOLD}{text}{_PLAIN}" if shows_colour(sys.stdout) else text, flush=True)

    def show(self, text: str) -> None:
        """Print a result; its marks are coloured where that can be seen."""
        print(coloured(text) if shows_colour(sys.stdout) else text, flush=True)

    @property
    def elapsed_s(self) -> float:
        """Return the time since the demo began."""
        return time.monotonic() - self._started


def shows_colour(stream: TextIO) -> bool:
    """True on a terminal, unless ``NO_COLOR`` is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def coloured(text: str) -> str:
    r"""Colour the marks, which say the same without it.

    >>> coloured("held: ✓ yes")
    'held: \x1b[32m✓ yes\x1b[0m'
    """
    text = re.sub("✓( yes)?", lambda found: f"{_GREEN}{found[0]}{_PLAIN}", text)
    return re.sub("✗( NO)?", lambda found: f"{_RED}{found[0]}{_PLAIN}", text)


def wrapped(text: str, *, indent: str = "", hanging: str | None = None) -> str:
    """Break a text into lines that fit; ``hanging`` begins all but the first.

    No amount is parted from its unit.
    """
    filled = textwrap.fill(
        _BEFORE_UNIT.sub(_TIED, text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_TIED, " ")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
