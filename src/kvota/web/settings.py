"""Where HTTP is served, and for whom."""

from dataclasses import dataclass

DEFAULT_PORT = 9180


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What ``[http]`` of gateway.toml says.

    Attributes:
        is_enabled: false: no port is opened.
        host: listens here.
        port: 0: any that is free; the log says which.
        is_port_stated: false: it is the default, and where it is taken the gateway runs without HTTP.
        names: host names by which it may be called, beside addresses, ``localhost`` and ``host``.
    """

    is_enabled: bool = True
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    is_port_stated: bool = False
    names: tuple[str, ...] = ()
