"""Reports on stderr what a command is doing while somebody waits."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec

# A shorter wait needs no report.
_SILENT_S = 1.0
_TICK_S = 0.5
# Where nobody watches, a line in a log is enough so often.
_LINE_EVERY_S = 10.0

# Before so much is done nobody can say how long the rest takes.
_SHARE_MIN = 0.03


@dataclass(frozen=True, slots=True)
class HowFar:
    """How far some work is.

    Attributes:
        share: 0 to 1; None where nobody knows.
        text: the same in words.
    """

    share: float | None = None
    text: str = ""


def of_rows(share: float, rows_per_s: float) -> HowFar:
    """Return how far work is that goes through rows."""
    return HowFar(share, f"{share:.0%}, {rows_per_s:,.0f} rows/s")


@dataclass(slots=True)
class RowsDone:
    """Counts rows that are done.

    Attributes:
        total: so many there are.
        done: of these.
    """

    total: int = 0
    done: int = 0
    _began: float = field(default_factory=time.monotonic)

    def how_far(self) -> HowFar:
        """Return the share, rows per second and, through ``working``, the time left."""
        if not 0 < self.done <= self.total:
            return HowFar()
        return of_rows(self.done / self.total, self.done / (time.monotonic() - self._began))


@contextmanager
def working(title: str, *, how_far: Callable[[], HowFar] = HowFar) -> Iterator[None]:
    """Report what is being done once it takes over a second.

    On a terminal there is a bar with the time left; elsewhere a line at the beginning, one now and then, and
    one at the end.
    """
    done = threading.Event()
    report = _show if _can_draw() else _tell
    reporter = threading.Thread(target=report, args=(title, how_far, done), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def _can_draw() -> bool:
    """Tell whether a bar can be drawn: a gateway alone is installed without rich."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return is_terminal and find_spec("rich") is not None


def _tell(title: str, how_far: Callable[[], HowFar], done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_SILENT_S):
        return
    _line(f"{title} ...")
    while not done.wait(_LINE_EVERY_S):
        far = _far(how_far)
        parts = [far.text, _time_left(far, time.monotonic() - began)]
        _line(f"{title}: {', '.join(part for part in parts if part) or 'still at it'}")
    _line(f"{title}: {time.monotonic() - began:.1f} s")


def _far(how_far: Callable[[], HowFar]) -> HowFar:
    """Ask how far it is; what is asked may have ended meanwhile, as Spark has behind Ctrl-C."""
    try:
        return how_far()
    except Exception:  # noqa: BLE001  (whatever it is, the work itself says so)
        return HowFar()


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _time_left(far: HowFar, taken_s: float) -> str:
    if far.share is None or not _SHARE_MIN <= far.share < 1:
        return ""
    return f"{taken_s / far.share - taken_s:,.0f} s left"


def _show(title: str, how_far: Callable[[], HowFar], done: threading.Event) -> None:
    if done.wait(_SILENT_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    began = time.monotonic() - _SILENT_S
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(title, total=None, text="", left="")
        while not done.wait(_TICK_S):
            far = _far(how_far)
            left = _time_left(far, time.monotonic() - began)
            total = None if far.share is None else 1.0
            bars.update(bar, total=total, completed=far.share or 0.0, text=far.text, left=left)
