"""A page of somebody else must not read this port through a browser of ours (DNS rebinding).

Such a page calls us by a name of its own. So only names that are known are answered, and addresses, which no
page can make mean another machine.
"""

from collections.abc import Iterable
from ipaddress import ip_address

_ALWAYS = frozenset({"localhost"})


class HostCheck:
    """Tells by the Host header of a request whether it is meant for us.

    Args:
        names: host names that are ours, without ports.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = _ALWAYS | {name.lower().rstrip(".") for name in names}

    def is_ours(self, header: str | None) -> bool:
        """True for an address, ``localhost`` or one of the names, with or without a port."""
        name = host_of(header or "")
        return name is not None and (_is_address(name) or name.lower().rstrip(".") in self._names)


def host_of(header: str) -> str | None:
    """The host in a Host header; None: it is none.

    >>> host_of("kafka.example:9180"), host_of("[::1]:80"), host_of("a:b:c")
    ('kafka.example', '::1', None)
    """
    if header.startswith("["):
        name, bracket, port = header[1:].partition("]")
        port = port.removeprefix(":")
        return name if bracket and (not port or port.isdecimal()) else None
    name, _, port = header.partition(":")
    return name if name and (not port or port.isdecimal()) else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
