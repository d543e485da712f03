"""The nodes of a cluster get ports: chosen ones, or some on which nobody listens."""

import contextlib
import errno
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvota.localkafka.cluster.listeners import PLAINTEXT, SASL
from kvota.model.errors import UsageError

# They are below the range from which Linux takes ports for outgoing connections (32768 and up), so that a
# node that was killed finds its port free when it comes back.
PORT_MIN, PORT_MAX = 20_000, 32_000

_ATTEMPTS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """One node listens on these ports: those for clients by the listeners' names."""

    node_id: int
    controller: int
    listeners: Mapping[str, int]

    @property
    def plain(self) -> int:
        """Port of the PLAINTEXT listener."""
        return self.listeners[PLAINTEXT]

    @property
    def sasl(self) -> int:
        """Port of the SASL_PLAINTEXT listener, 0 where there are no users."""
        return self.listeners.get(SASL, 0)


def choose_ports(
    host: str, node_count: int, *, listeners: Sequence[str], first: int | None
) -> list[NodePorts]:
    """Choose the ports of all nodes, whose ids count from 1.

    With ``first``, the first listeners of all nodes are there and after it, then come the second ones; the
    controllers, which no client sees, always have free ones.

    Raises:
        UsageError: a port after ``first`` is taken, or the host is no address of this machine.
    """
    visible = node_count * len(listeners)
    try:
        if first is None:
            ports = free_ports(host, visible + node_count)
        else:
            ports = [*_exactly(host, first, visible), *free_ports(host, node_count)]
    except OSError as error:
        msg = f"{host}: no server can listen there ({error.strerror or error}). Take 127.0.0.1 and ports over 1023."
        raise UsageError(msg) from error
    return [
        NodePorts(
            node_id=i + 1,
            controller=ports[visible + i],
            listeners={name: ports[n * node_count + i] for n, name in enumerate(listeners)},
        )
        for i in range(node_count)
    ]


def _exactly(host: str, first: int, count: int) -> list[int]:
    if not 1 <= first <= 65_535 - count:
        msg = f"{first} is not a first port. Take one from 1 to {65_535 - count}."
        raise UsageError(msg)
    ports = list(range(first, first + count))
    for port in ports:
        if not is_free(host, port):
            msg = f"{host}:{port} is taken by another program. Name another first port."
            raise UsageError(msg)
    return ports


def free_ports(host: str, count: int) -> list[int]:
    """Return different ports that are free on this host now; another process may still take one.

    Raises:
        OSError: the host is not an address of this machine, or no port is free.
    """
    draw = random.SystemRandom()
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(_ATTEMPTS_MAX):
            if len(ports) == count:
                return ports
            port = draw.randrange(PORT_MIN, PORT_MAX)
            with contextlib.suppress(_Taken):
                held.enter_context(_bound(host, port))
                ports.append(port)
    msg = f"{count} free ports on {host} between {PORT_MIN} and {PORT_MAX} were not to be found"
    raise OSError(msg)


def is_free(host: str, port: int) -> bool:
    """Tell whether a server could listen there now."""
    try:
        _bound(host, port).close()
    except _Taken:
        return False
    return True


class _Taken(Exception):  # noqa: N818 - a finding, not an error
    """Somebody listens there."""


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As Java does: a port whose connections are only closing counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise _Taken from error
        raise
    return listener
