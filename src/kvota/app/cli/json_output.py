"""What commands print for programs (``--output json``); the keys stand in docs/record.md."""

import json
import math
from collections.abc import Mapping


def print_json(content: Mapping[str, object], *, schema: int = 1) -> None:
    """Print an object; what is no number (NaN, an infinity) is null.

    Args:
        content: of the object.
        schema: grows where a key of the command goes or comes to mean something else; new keys may come without that.
    """
    plain = {key: _plain(value) for key, value in content.items()}
    print(json.dumps({"schema": schema} | plain, indent=2))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
