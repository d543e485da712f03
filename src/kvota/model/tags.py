"""What clients that share a counter have in common: a mapping of any keys, and its text.

The order of the keys has no meaning. The values are plain; only the text is encoded.
"""

import re
from collections.abc import Mapping

Tags = Mapping[str, str]

# The keys of Kafka's own quotas; an unused one is an empty text.
USER_TAG = "user"
CLIENT_ID_TAG = "client-id"
# Of a counter that no factor is laid over; Strimzi's key, whose value is "true".
EXCLUDED_TAG = "excluded-principal-quota-key"

_PLAIN = re.compile(r"[A-Za-z0-9._-]*")
_ENCODED = [chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def sanitise(name: str) -> str:
    """The name percent-encoded as Kafka's ``Sanitizer`` does: UTF-8, ``A-Z a-z 0-9 . - _`` are kept.

    >>> sanitise("team a*~é")
    'team%20a%2A%7E%C3%A9'
    """
    if _PLAIN.fullmatch(name):
        return name
    # Half a surrogate pair becomes "?", as in Java.
    return "".join([_ENCODED[byte] for byte in name.encode("utf-8", "replace")])


def tags_text(tags: Tags) -> str:
    """The tags as records carry them: ``key=value`` sorted by key, each encoded, joined by commas.

    Different tags of Unicode text never have the same text.

    >>> tags_text({"user": "alice", "client-id": "my app"})
    'client-id=my%20app,user=alice'
    """
    return ",".join([f"{sanitise(key)}={sanitise(tags[key])}" for key in sorted(tags)])


def tag_value(text: str, key: str) -> str | None:
    """The plain value of one of the tags in a record's text; None where they have no such key.

    A value that nobody can have encoded is none, either.

    >>> tag_value("client-id=my%20app,user=alice", "client-id")
    'my app'
    """
    begin = f"{key if key in {USER_TAG, CLIENT_ID_TAG} else sanitise(key)}="
    start = 0 if text.startswith(begin) else text.find(f",{begin}") + 1
    if start == 0 and not text.startswith(begin):
        return None
    end = text.find(",", start)
    value = text[start + len(begin) : end if end >= 0 else len(text)]
    return value if "%" not in value else _plain_text(value)


def _plain_text(encoded: str) -> str | None:
    first, *parts = encoded.split("%")
    try:
        octets = [bytes.fromhex(part[:2]) + part[2:].encode() for part in parts]
    except ValueError:
        return None
    return (first.encode() + b"".join(octets)).decode("utf-8", "replace")
