"""What commands print for programs (``--output json``); the keys stand in docs/record.md."""

import json
import math
from collections.abc import Mapping

# It grows where a key goes or comes to mean something else; new keys may come without that.
SCHEMA = 1


def print_json(content: Mapping[str, object]) -> None:
    """Print an object with the number of its schema; what is no number (NaN, an infinity) is null."""
    print(
        json.dumps(
            {"schema": SCHEMA} | {key: _plain(value) for key, value in content.items()}, indent=2
        )
    )


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
