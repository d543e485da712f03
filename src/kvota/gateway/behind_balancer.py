"""What takes a new connection's bytes behind a balancer, until that has said where its client is."""

import asyncio
from collections.abc import Callable
from typing import cast

from kvota.gateway.journal import Journal
from kvota.gateway.little_reads import LittleReads
from kvota.gateway.own_addresses import plain_ip
from kvota.gateway.settings import ListenerSettings
from kvota.gateway.tls_transport import TlsTransport
from kvota.model.address import Address
from kvota.model.errors import ProtocolError
from kvota.wire.proxy_protocol import read_proxy_head


class BehindBalancer(asyncio.Protocol):
    """One connection; it is handed on with the first byte behind the balancer's head.

    Args:
        listener: by which it has come: whom it trusts.
        make: makes what takes the client's bytes, told where the client is; None: where the connection comes from.
        journal: says why one was refused.
        patience_s: so long the head may take.
    """

    __slots__ = (
        "_head",
        "_host",
        "_journal",
        "_listener",
        "_make",
        "_patience_s",
        "_timer",
        "_transport",
    )

    def __init__(
        self,
        listener: ListenerSettings,
        make: Callable[[Address | None], asyncio.Protocol | TlsTransport],
        journal: Journal,
        *,
        patience_s: float,
    ) -> None:
        self._listener, self._make, self._journal = listener, make, journal
        self._patience_s = patience_s
        self._head = b""
        self._host = ""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected; it has to be one who is trusted."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer is None:  # it has gone: so balancers look whether somebody listens
            self._transport.abort()
            return
        self._host = peer[0]
        if not self._is_trusted(self._host):
            self._refuse("it is none of those that may say whence clients come")
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(
            self._patience_s,
            self._refuse,
            f"no head of the PROXY protocol in {self._patience_s:g} s",
        )

    def data_received(self, data: bytes) -> None:
        """Some of the head, and perhaps more."""
        if self._transport.is_closing():
            return
        self._head += data
        try:
            head = read_proxy_head(self._head)
        except ProtocolError as error:
            self._refuse(str(error))
            return
        if head is None:
            return
        self._forget_timer()
        transport, rest = self._transport, self._head[head.size_bytes :]
        inner = self._make(head.client)
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if rest and not transport.is_closing() and _reads(transport.get_protocol(), inner):
            inner.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """A balancer that only looks whether somebody listens is no news."""
        self._forget_timer()

    def _is_trusted(self, host: str) -> bool:
        ip = plain_ip(host.partition("%")[0])
        return any(ip in network for network in self._listener.proxied_by)

    def _refuse(self, reason: str) -> None:
        self._forget_timer()
        self._journal.refused(self._host, f"{reason} ({self._listener.table}.proxy_protocol_from)")
        self._transport.abort()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reads(protocol: object, inner: object) -> bool:
    """True where what has come is for this one; it may have been refused, or be left unread for a while."""
    return protocol is inner or (isinstance(protocol, LittleReads) and protocol.side is inner)
