"""Shows one line per step on stderr while the demo works; results go to stdout."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SPINNER_S = 0.5


class Screen:
    """Shows numbered steps with their time; a terminal's line of the running step is updated."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._number = 0
        self._terminal = sys.stderr.isatty()
        self._bold = self._terminal and not os.environ.get("NO_COLOR")
        self._started = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Show a step while it runs; what is appended to the list is said when it is done."""
        self._number += 1
        label = f"[{self._number}/{self._steps}] {title}"
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(label, done), daemon=True)
        said: list[str] = []
        began = time.monotonic()
        if self._terminal:
            ticker.start()
        else:
            print(f"{label} ...", file=sys.stderr, flush=True)
        try:
            yield said
        except BaseException:
            done.set()
            if self._terminal:
                ticker.join()
            print(f"{label}: failed", file=sys.stderr, flush=True)
            raise
        done.set()
        if self._terminal:
            ticker.join()
        note = f": {'; '.join(said)}" if said else ""
        print(f"{label}{note} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)

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

    def heading(self, text: str) -> None:
        """Print a line that stands out on stdout."""
        print(f"\033[1m{text}\033[0m" if self._bold and sys.stdout.isatty() else text)

    @property
    def elapsed_s(self) -> float:
        """Return the time since the demo began."""
        return time.monotonic() - self._started
