"""Ctrl-C while Spark works: its JVM ends at once, and what fails for that reason is no error.

An exception raised in the midst of py4j would leave its connections, and what they say about that on the
screen. So the JVM is ended instead, which makes a call of py4j that waits for it fail.
"""

import contextlib
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator
from types import FrameType

from pyspark import SparkContext

from kvota.pipeline.py4j_words import is_py4j, py4j_says_nothing


@contextlib.contextmanager
def interruptible(jvm: "subprocess.Popen[bytes]") -> Iterator[None]:
    """In this block Ctrl-C ends the JVM; the block ends with KeyboardInterrupt.

    In threads other than the main one, which no signal reaches, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_interrupted = False
    quiet = contextlib.ExitStack()

    def stop(_number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        quiet.enter_context(py4j_says_nothing())
        quiet.enter_context(warnings.catch_warnings())
        # A session that was just starting tries to stop the JVM.
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        _say_nothing_of_lost_updates()
        jvm.kill()
        if not _is_within_py4j(frame):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except Exception:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        if is_interrupted:
            quiet.close()
            jvm.wait()
    if is_interrupted:
        raise KeyboardInterrupt


def _say_nothing_of_lost_updates() -> None:
    """The JVM may be in the midst of telling accumulators: Spark's server of them prints that as an error of its own."""
    context = SparkContext._active_spark_context  # noqa: SLF001
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Answer Ctrl-C at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            raise KeyboardInterrupt


def _is_within_py4j(frame: FrameType | None) -> bool:
    while frame is not None:
        if is_py4j(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
