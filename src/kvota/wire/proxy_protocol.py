"""The head that a balancer, or the gateway, sends before a client's bytes: the PROXY protocol, version 2.

Source: "The PROXY protocol, versions 1 & 2" (HAProxy), section 2.2. Of what may follow the addresses (TLVs) nothing is read.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import NamedTuple

from kvota.model.address import Address
from kvota.model.errors import ProtocolError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# Balancers send some hundred bytes; 65,535 could be announced.
ADDRESSES_BYTES_MAX = 4_096
# signature, version and command, family and transport, length of what follows
_HEAD = Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNKNOWN, _TCP_4, _TCP_6 = 0x00, 0x11, 0x21
_OF_4, _OF_6 = Struct(">4s4sHH"), Struct(">16s16sHH")
# Of a connection that is nobody's but its sender's own.
OWN_HEAD = _HEAD.pack(SIGNATURE, _LOCAL, _UNKNOWN, 0)


class ProxyHead(NamedTuple):
    """What a balancer says.

    Attributes:
        size_bytes: of the head; the client's bytes follow.
        client: whence the client has come; None: it is the balancer's own connection, or not known.
    """

    size_bytes: int
    client: Address | None


def read_proxy_head(data: bytes) -> ProxyHead | None:
    """Read the head that ``data`` begins with; None: more bytes are needed.

    Raises:
        ProtocolError: it is none, or not of a TCP connection; what came is not repeated.
    """
    if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
        kind = "version 1 of it" if data.startswith(b"PROXY ") else "something else"
        msg = f"no head of the PROXY protocol, version 2, comes first, but {kind}"
        raise ProtocolError(msg)
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command not in {_LOCAL, _PROXY}:
        msg = f"PROXY protocol: version and command 0x{command:02x}; 0x20 and 0x21 are known"
        raise ProtocolError(msg)
    if length > ADDRESSES_BYTES_MAX:
        msg = f"PROXY protocol: a head of {length} bytes is announced; at most {ADDRESSES_BYTES_MAX} are taken"
        raise ProtocolError(msg)
    size_bytes = _HEAD.size + length
    if len(data) < size_bytes:
        return None
    client = None if command == _LOCAL else _client(data, family, length)
    return ProxyHead(size_bytes, client)


def proxy_head(client: Address, called: Address) -> bytes:
    """Return the head that says where a client is, and which address it has called; both are literal.

    >>> proxy_head(("192.0.2.7", 51_000), ("10.0.0.1", 9192)).hex()
    '0d0a0d0a000d0a515549540a2111000cc00002070a000001c73823e8'
    """
    ips = [ip_address(host.partition("%")[0]) for host, _ in (client, called)]
    if all(ip.version == 4 for ip in ips):
        family, addresses = _TCP_4, [ip.packed for ip in ips]
    else:
        family, addresses = _TCP_6, [_as_6(ip).packed for ip in ips]
    layout = _OF_4 if family == _TCP_4 else _OF_6
    head = _HEAD.pack(SIGNATURE, _PROXY, family, layout.size)
    return head + layout.pack(*addresses, client[1], called[1])


def _as_6(ip: IPv4Address | IPv6Address) -> IPv6Address:
    return ip if isinstance(ip, IPv6Address) else IPv6Address(f"::ffff:{ip}")


def _client(data: bytes, family: int, length: int) -> Address | None:
    if family == _UNKNOWN:
        return None
    if family == _TCP_4 and length >= _OF_4.size:
        source, _, port, _ = _OF_4.unpack_from(data, _HEAD.size)
        return str(IPv4Address(source)), port
    if family == _TCP_6 and length >= _OF_6.size:
        source, _, port, _ = _OF_6.unpack_from(data, _HEAD.size)
        address = IPv6Address(source)
        return str(address.ipv4_mapped or address), port
    msg = f"PROXY protocol: {length} bytes of a connection of kind 0x{family:02x}; TCP's are 0x11 and 0x21"
    raise ProtocolError(msg)
