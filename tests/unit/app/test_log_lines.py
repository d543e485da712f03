"""Lines of the log as JSON."""

import json
import logging
import sys

from kvota.app.log_lines import JsonLines


def record_of(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    raised = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("kvota.gateway", logging.WARNING, "f", 1, message, args, raised)
    record.created = 1_774_000_000.25
    return record


def test_a_line_is_one_object_with_its_time_in_utc() -> None:
    line = JsonLines().format(record_of('user "%s"\n is new', "\u00e9\u2028"))

    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-03-20T09:46:40.250Z",
        "level": "warning",
        "logger": "kvota.gateway",
        "message": 'user "\u00e9\u2028"\n is new',
    }


def test_an_error_has_its_traceback_in_the_same_line() -> None:
    try:
        sys.intern(1)  # type: ignore[arg-type]
    except TypeError as error:
        line = JsonLines().format(record_of("it failed", error=error))

    assert "\n" not in line
    assert json.loads(line)["exception"].splitlines()[-1].startswith("TypeError: ")
