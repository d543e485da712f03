"""Names in tags: percent-encoded as Kafka's ``Sanitizer`` does."""

import re

_PLAIN = re.compile(r"[A-Za-z0-9._-]*")
_ENCODED = [chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def sanitise(name: str) -> str:
    """UTF-8, percent-encoded, keeping ``A-Z a-z 0-9 . - _``.

    >>> sanitise("team a*~é")
    'team%20a%2A%7E%C3%A9'
    """
    if _PLAIN.fullmatch(name):
        return name
    # Half a surrogate pair becomes "?", as in Java.
    return "".join([_ENCODED[byte] for byte in name.encode("utf-8", "replace")])


def tags_text(tags: tuple[str, str]) -> str:
    """Tags (sanitised user, raw client id) as events carry them: sorted, both always there.

    >>> tags_text(("alice", "my app"))
    'client-id=my%20app,user=alice'
    """
    user, client_id = tags
    return f"client-id={sanitise(client_id)},user={user}"
