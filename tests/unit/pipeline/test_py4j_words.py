"""What py4j tells Python's root logger is left out, and nobody else's words."""

import logging

import pytest

from kvota.pipeline.py4j_words import py4j_says_nothing


def said_by(file: str) -> None:
    logging.root.handle(logging.LogRecord("root", logging.ERROR, file, 1, file, None, None))


def test_it_is_left_out_until_the_outermost_block_ends(caplog: pytest.LogCaptureFixture) -> None:
    with py4j_says_nothing():
        with py4j_says_nothing():
            said_by("/lib/py4j/within.py")
        said_by("/lib/py4j/between.py")
        said_by("/home/app.py")
    said_by("/lib/py4j/behind.py")

    assert [record.getMessage() for record in caplog.records] == [
        "/home/app.py",
        "/lib/py4j/behind.py",
    ]
