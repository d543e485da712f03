"""Leaves out what py4j tells Python's loggers where its JVM goes: a stack trace of its own."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The part of py4j that JVMs call.
_SERVER = "py4j.clientserver"


@contextmanager
def py4j_says_nothing() -> Iterator[None]:
    """Leave it out in this block; blocks may lie within each other."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return _is_of_others(record)  # each block has its own, and removes that alone

    logging.root.addFilter(is_of_others)
    try:
        yield
    finally:
        logging.root.removeFilter(is_of_others)


def py4j_server_says_nothing() -> None:
    """Leave out from now on what is told where a call from the JVM fails, as it does when Ctrl-C ends that.

    It is told in a thread of py4j's own, behind the end of whatever block. What fails is raised by Spark's query, too.
    """
    logging.getLogger(_SERVER).addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return not is_py4j(record.pathname)


def is_py4j(file: str) -> bool:
    """Return whether a source file is one of py4j's."""
    return "py4j" in Path(file).parts
