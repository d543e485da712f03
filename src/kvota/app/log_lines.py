"""How lines of the log are written: for people, or one JSON object each for what collects them."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """``log.format``."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One object a line, in ASCII: ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``, and ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def begin_log(level: str) -> None:
    """Log to stderr from now on, for people."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )


def write_as(log_format: LogFormat) -> None:
    """Write further lines so; begin_log comes before."""
    if log_format is LogFormat.JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())
