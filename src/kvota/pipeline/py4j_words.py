"""Leaves out what py4j tells Python's root logger where its JVM goes: a stack trace of its own."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def py4j_says_nothing() -> Iterator[None]:
    """Leave it out in this block; blocks may lie within each other."""

    def is_of_others(
        record: logging.LogRecord,
    ) -> bool:  # each block has its own, and removes that alone
        return not is_py4j(record.pathname)

    logging.root.addFilter(is_of_others)
    try:
        yield
    finally:
        logging.root.removeFilter(is_of_others)


def is_py4j(file: str) -> bool:
    """Return whether a source file is one of py4j's."""
    return "py4j" in Path(file).parts
