"""Which addresses are the gateway's own: whoever connects to one of them comes out at the gateway again."""

import socket
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from kvota.model.address import is_wildcard

IP = IPv4Address | IPv6Address


class OwnAddresses:
    """Compares addresses with those that the gateway listens at, and with what it tells its clients.

    Args:
        host: where it listens; ``0.0.0.0`` and ``::`` are all addresses of this machine.
        advertised_host: what clients are told.
        ports: all its ports.
        further: both hosts of each further listener.
    """

    def __init__(
        self,
        *,
        host: str,
        advertised_host: str,
        ports: Collection[int],
        further: Iterable[tuple[str, str]] = (),
    ) -> None:
        pairs = [(host, advertised_host), *further]
        self._hosts = [here for here, _ in pairs]
        self._names = {name.lower() for pair in pairs for name in pair}
        self._ports = frozenset(ports)
        self._is_everywhere = any(map(is_wildcard, self._hosts))
        self._ips = {plain_ip(here) for here in self._hosts if _is_ip(here)}

    def listens_at(self, ips: Iterable[str]) -> None:
        """These addresses are listened at: what the host's name means."""
        self._ips |= {plain_ip(ip) for ip in ips}

    def is_named(self, host: str, port: int) -> bool:
        """Returns whether these words are the gateway's own address, nothing looked up."""
        if port not in self._ports:
            return False
        if host.lower() in self._names:
            return True
        ips = ("127.0.0.1", "::1") if host.lower() == "localhost" else (host,)
        return any(_is_ip(ip) and self.is_reached_at(ip, port) for ip in ips)

    def is_reached_at(self, ip: str, port: int) -> bool:
        """Returns whether the gateway itself listens at this address of a socket."""
        if port not in self._ports:
            return False
        return _is_local(ip) if self._is_everywhere else plain_ip(ip) in self._ips

    def is_looked_up(self, host: str, port: int) -> bool:
        """Returns the same for a name, which is looked up: it may take seconds."""
        if port not in self._ports:
            return False
        if not self._is_everywhere and not self._ips:
            self.listens_at(ip for host in self._hosts for ip in ips_of(host))
        return self.is_named(host, port) or any(self.is_reached_at(ip, port) for ip in ips_of(host))


def plain_ip(ip: str) -> IP:
    """Returns an address as others compare it: IPv4 inside IPv6 is IPv4.

    Raises:
        ValueError: it is none.
    """
    address = ip_address(ip)
    return getattr(address, "ipv4_mapped", None) or address


def literal_ip(name: str) -> IP | None:
    """Returns the address that a name is, as Java reads it; None: it has to be looked up.

    An IPv6 address may stand in brackets, as in a URL; zones (``%eth0``) are a host's own affair, and no address.
    """
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if "%" in name or (bare != name and ":" not in bare):
        return None
    try:
        return plain_ip(bare)
    except ValueError:
        return None


def network_of(host: str) -> str:
    """Returns what one client has of addresses, as a text: of IPv6 a /64; what is no address is itself.

    >>> (
    ...     network_of("::ffff:192.0.2.1"),
    ...     network_of("2001:db8::1:2:3:4"),
    ...     network_of("gateway.example"),
    ... )
    ('192.0.2.1', '2001:db8::/64', 'gateway.example')
    """
    ip = literal_ip(host.partition("%")[0])
    if ip is None:
        return host
    return str(ip_network((ip, 64), strict=False)) if isinstance(ip, IPv6Address) else str(ip)


def ips_of(host: str) -> set[str]:
    """Returns what a name means, nothing where it means nothing; blocks while it is looked up."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_local(ip: str) -> bool:
    """Returns whether this machine has the address: then it is also where a packet to it comes from."""
    address = plain_ip(ip)
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((str(address), 9))  # sends nothing
        except OSError:
            return False
        return plain_ip(str(asked.getsockname()[0])) == address
