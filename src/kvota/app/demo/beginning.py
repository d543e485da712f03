"""How a demo begins: in a folder of its own, and stopped as a whole by any signal."""

import logging
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kvota.model.errors import UsageError

_MARKER = ".kvota-demo"


def prepare(folder: Path) -> None:
    """Make an empty folder of our own; somebody else's is left alone."""
    if folder.exists() and not folder.is_dir():
        msg = f'"{folder}" is a file. Name a folder: --folder DIR'
        raise UsageError(msg)
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARKER).exists():
            msg = (
                f'"{folder}" is not empty and not from an earlier demo. Name another: --folder DIR'
            )
            raise UsageError(msg)
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARKER).write_text("made by kvota's demo; removed by the next one\n")
    except OSError as error:
        msg = f'"{folder}" cannot be written ({error.strerror}). Name another: --folder DIR'
        raise UsageError(msg) from error


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and the terminal's end stop all that was started, as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    logging.getLogger("kafka").setLevel(logging.ERROR)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
