"""``host:port`` as people write it; an IPv6 address stands in brackets."""

Address = tuple[str, int]

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared, not bound)


def parse_address(text: str) -> Address:
    """Return host and port; the host is not looked at.

    Raises:
        ValueError: there is no port, or one that cannot be.

    >>> parse_address("kafka-1:9092"), parse_address("[::1]:9092")
    (('kafka-1', 9092), ('::1', 9092))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        msg = f'"{text}" is not host:port'
        raise ValueError(msg)
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_text(host: str, port: int) -> str:
    """Return what ``parse_address`` reads as these.

    >>> address_text("kafka-1", 9092), address_text("::1", 9092)
    ('kafka-1:9092', '[::1]:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def from_here(host: str) -> str:
    """Return where to connect to what listens at this host, on the same machine.

    >>> from_here("0.0.0.0"), from_here("kafka-1")
    ('127.0.0.1', 'kafka-1')
    """
    return _WILDCARDS.get(host, host)


def is_wildcard(host: str) -> bool:
    """True for all addresses of a machine.

    >>> is_wildcard("::"), is_wildcard("127.0.0.1")
    (True, False)
    """
    return host in _WILDCARDS
