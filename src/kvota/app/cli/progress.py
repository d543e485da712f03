"""What a command says on stderr while somebody waits."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Nobody needs to be told about a shorter wait.
_SILENT_S = 1.0
_TICK_S = 0.5


@contextmanager
def working(title: str, *, how_far: Callable[[], str] = str) -> Iterator[None]:
    """Say what is being done once it takes over a second; how far and how long, on a terminal."""
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(title, how_far, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(title: str, how_far: Callable[[], str], done: threading.Event) -> None:
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
