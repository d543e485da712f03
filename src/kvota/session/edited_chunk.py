"""A received chunk in which requests were replaced: what goes up in its place."""


def joined(ahead: bytearray, data: bytes | bytearray, begin: int) -> bytearray | None:
    """What goes up for a chunk of which something was changed: ``ahead`` in place of ``data[:begin]``."""
    ahead += data[begin:]
    return ahead or None


def edited(
    ahead: bytearray | None, before: bytes | bytearray, instead: bytes | bytearray
) -> bytearray:
    """What goes up so far, when a request is replaced: what stood before it, and what it became."""
    ahead = ahead or bytearray()
    ahead += before
    ahead += instead
    return ahead
