"""Leaves out what py4j tells Python's loggers where its JVM goes: a stack trace of its own."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The part of py4j that JVMs call.
_SERVER = "py4j.clientserver"


@contextmanager
def py4j_says_nothing() -> Iterator[None]:
    """Leave it out in this block; blocks may lie within each other."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return not is_py4j(record.pathname)  # each block has its own, and removes that alone

    logging.root.addFilter(is_of_others)
    try:
        yield
    finally:
        logging.root.removeFilter(is_of_others)


def py4j_threads_say_nothing() -> None:
    """Leave out from now on what is told in other threads than the main one.

    In these the JVM calls Python. Where Ctrl-C ends the JVM they tell it behind the end of whatever block, and what has failed
    is raised in the main thread, too.
    """
    for name in (None, _SERVER):  # None is the root
        logging.getLogger(name).addFilter(_is_of_others_or_main)


def _is_of_others_or_main(record: logging.LogRecord) -> bool:
    return record.thread == threading.main_thread().ident or not is_py4j(record.pathname)


def is_py4j(file: str) -> bool:
    """Return whether a source file is one of py4j's."""
    return "py4j" in Path(file).parts
