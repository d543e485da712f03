"""Reports on stderr what a command is doing while somebody waits."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A shorter wait needs no report.
_SILENT_S = 1.0
_TICK_S = 0.5


@contextmanager
def working(title: str, *, how_far: Callable[[], str] = str) -> Iterator[None]:
    """Report what is being done once it takes over a second; on a terminal also how far it is."""
    done = threading.Event()
    reporter = threading.Thread(target=_report, args=(title, how_far, done), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def _report(title: str, how_far: Callable[[], str], done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_SILENT_S):
        return
    if not sys.stderr.isatty():
        print(f"{title} ...", file=sys.stderr, flush=True)
        done.wait()
        print(f"{title}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        return
    while not done.wait(_TICK_S):
        line = f"{title} ... {time.monotonic() - began:.0f} s {how_far()}"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr, flush=True)
