"""The client's side of a connection: it makes the driver, and has the broker dialled when it must be."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import time_ns
from typing import cast

from kvota.gateway.behind_balancer import BehindBalancer
from kvota.gateway.certificate_in_force import CertificateInForce
from kvota.gateway.closing import leave_upstream
from kvota.gateway.connection_rates import ANY_NODE, ConnectionRates
from kvota.gateway.dialling import Dialler
from kvota.gateway.driver import Driver
from kvota.gateway.held_back import HeldBack
from kvota.gateway.listeners import Entrance
from kvota.gateway.means import Means
from kvota.gateway.places import Places
from kvota.gateway.receive_buffers import FILLED_BYTES
from kvota.gateway.request_time import took
from kvota.gateway.side import LONG_NS, TIMED_READ_BYTES, Side
from kvota.gateway.tls_clients import ClientTlsError, node_called, user_of, why_failed
from kvota.gateway.tls_transport import TlsTransport
from kvota.gateway.upstream_side import UpstreamSide
from kvota.model.address import Address
from kvota.model.client_quotas import CONNECTION_RATE_KEY
from kvota.model.errors import ProtocolError
from kvota.session.pausing import Reason
from kvota.session.topology import Advertised

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What a new client finds: a place, the way to the brokers, what drives its connection."""

    means: Means
    places: Places
    rates: ConnectionRates
    held_back: HeldBack
    dialler: Dialler
    tasks: asyncio.TaskGroup
    certificates: Sequence[CertificateInForce | None]


class ClientSide(Side):
    """Hands what the client sends to the machine, and tells the driver how the client reads.

    Args:
        reception: the gateway's parts.
        entrance: by which port the client comes.
        client: where it is, where a balancer has told that.

    Attributes:
        driver: of this connection, once connected.
    """

    __slots__ = (
        "_before_dialled",
        "_certificate",
        "_client",
        "_dialling",
        "_entrance",
        "_machine",
        "_reception",
        "driver",
    )

    driver: Driver

    def __init__(
        self, reception: Reception, entrance: Entrance, client: Address | None = None
    ) -> None:
        super().__init__()
        self._client = client
        self._reception = reception
        self._entrance = entrance
        self._certificate = reception.certificates[entrance.number]
        self._before_dialled: list[bytes | bytearray] = []
        self._dialling: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; nothing is dialled before its first request has passed."""
        self.transport = cast("asyncio.Transport", transport)
        reception = self._reception
        destination = reception.dialler.destination(self._entrance.node_id)
        node_id = reception.dialler.node_of(destination.address)
        address_of = reception.means.shared.topology.told_by(self._told)
        self.driver = Driver(
            reception.means,
            self,
            destination,
            node_id=node_id,
            address_of=address_of,
            come_from=self._client,
        )
        self.driver.write_upstream = self._write_when_dialled
        self._machine = self.driver.machine
        if self._comes_too_fast(ANY_NODE if self._entrance.is_of_all_nodes else node_id):
            return
        refused = reception.places.take(self.driver, reception.means.journal)
        if refused:
            self.driver.close("", by="refused")
            reception.means.journal.refused(self.driver.host, refused)
            return
        self.transport.set_write_buffer_limits(high=reception.means.limits.write_buffer_bytes)
        reception.means.backlog.came(self)

    @property
    def _told(self) -> Advertised:
        return self._entrance.listener.advertised

    def _comes_too_fast(self, node_id: int) -> bool:
        """True where its address has begun more connections than it may, and that counts."""
        reception, host = self._reception, self.driver.host
        brokers = 1
        if node_id == ANY_NODE:
            brokers = reception.dialler.brokers_known or len(self._told.node_ids)
        throttle_ms = reception.rates.throttle_ms(host, node_id, time_ns() // 1_000_000, brokers)
        if not throttle_ms:
            return False
        is_enforced = reception.rates.settings.is_enforced
        limit = reception.rates.limit(host)
        reason = f"its address may begin {limit} connections a second ({CONNECTION_RATE_KEY})"
        reception.means.journal.refused(host, reason, is_only_said=not is_enforced)
        if is_enforced:
            reception.held_back.hold(self.driver, throttle_ms)
        return is_enforced

    def data_received(self, data: bytes) -> None:
        """The hot path, client to broker."""
        machine = self._machine
        began_ns = time_ns()
        try:
            out = machine.from_client(data, began_ns // 1000)
        except ProtocolError as error:
            self.driver.close_for(error)
            return
        if out:
            self.driver.write_upstream(out)
        if machine.commands or machine.pausing.reasons:
            self.driver.look()
        if len(data) > self.timed_bytes:
            self._took(data, began_ns)

    def _took(self, data: bytes, began_ns: int) -> None:
        """Where much has come at once and that took long, others come before more of it is read."""
        took_ns = took(self.driver, began_ns, data)
        if len(data) >= FILLED_BYTES and not self.driver.closing:
            self._reception.means.backlog.receive_buffers.filled(self)
        if len(data) <= TIMED_READ_BYTES or took_ns <= LONG_NS:
            return
        if not self._machine.pausing.reasons & Reason.STEP:
            self.driver.pause(Reason.STEP)
            go_on = partial(self.driver.resume, Reason.STEP)
            self._reception.means.turns.join(go_on, brings_s=took_ns / 1e9)

    def eof_received(self) -> bool:
        """The client will send no more; answers still due must reach it, where the transport lets them."""
        if isinstance(self.transport, TlsTransport) and self.transport.is_cut:
            log.debug(
                "connection %d from %s: its client has ended in the middle of a TLS record, of which nothing was taken",
                self.driver.number,
                self.driver.peer,
            )
        return self.driver.client_sends_no_more() and self.transport.can_write_eof()

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self.driver.client_full()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.driver.client_caught_up()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The client is gone (or was closed by us)."""
        self.forget_linger()
        self._reception.means.backlog.forget(self)
        self._before_dialled.clear()
        if self._dialling is not None:
            self._dialling.cancel()
        if not self.driver.closing:
            log.debug(
                "connection %d from %s: its client has closed it",
                self.driver.number,
                self.driver.peer,
            )
        try:
            self.driver.client_lost()
        except Exception:  # its place must not be lost with it
            log.exception("connection %d from %s", self.driver.number, self.driver.peer)
        self._reception.places.leave(self.driver)
        self._reception.held_back.leave(self.driver)

    # ------------------------------------------------------------------ TLS

    def secured(self, tls: TlsTransport) -> None:
        """The client and the gateway have agreed on how to encrypt: who it is, and for which node."""
        driver = self.driver
        if driver.closing:
            return
        try:
            user = user_of(tls, self._certificate)
            node_id = node_called(tls, self._entrance)
        except ClientTlsError as error:
            driver.close(str(error), by="tls")
            return
        if user is not None:
            self._machine.secured(user)
        dialler = self._reception.dialler
        if node_id is not None:
            driver.destination = dialler.destination(node_id)
            address = driver.destination.address
            self._machine.redialled(address, dialler.node_of(address))
        # Which one it is for is known only now. Who is held back has no place.
        if self._entrance.is_of_all_nodes and self._comes_too_fast(
            dialler.node_of(driver.destination.address)
        ):
            self._reception.places.leave(driver)

    def tls_failed(self, tls: TlsTransport, error: Exception) -> None:
        """They have not, or what has come since is damaged."""
        reason, level = why_failed(tls, error, self._entrance.listener)
        self.driver.close(reason, by="tls", level=level)

    # ------------------------------------------------------------------ the broker

    def _write_when_dialled(self, data: bytes | bytearray) -> None:
        self._before_dialled.append(data)
        reasons = self._machine.pausing.reasons
        if not reasons & Reason.DIALLING:
            self._machine.pausing.reasons = reasons | Reason.DIALLING
            self._dialling = self._reception.tasks.create_task(self._dial())

    async def _dial(self) -> None:
        driver = self.driver
        try:
            upstream = await self._connect()
        except Exception:  # the trouble of one connection must not become all others'
            log.exception("connection %d from %s", driver.number, driver.peer)
            upstream = None
        if upstream is None:
            driver.close("", by="unreachable")  # the log says why
            return
        if driver.closing:
            is_inside_frame = driver.machine.is_inside_frame
            leave_upstream(upstream, self._reception.means.loop, is_inside_frame=is_inside_frame)
            return
        driver.write_upstream = upstream.transport.write
        waiting, self._before_dialled = self._before_dialled, []
        for data in waiting:
            driver.write_upstream(data)
        self._dialling = None
        driver.dialled(upstream)

    async def _connect(self) -> UpstreamSide | None:
        driver, reception = self.driver, self._reception
        told = self._client or self.transport.get_extra_info("peername")
        called = self.transport.get_extra_info("sockname")
        reached = await reception.dialler.dial(
            driver.destination,
            lambda: UpstreamSide(driver, reception.means),
            reception.means.turns,
            None if told is None or called is None else (told[:2], called[:2]),
        )
        if reached is None:
            return None
        upstream, address = reached
        if address != driver.destination.address:
            driver.destination.address = address
            driver.machine.redialled(address, reception.dialler.node_of(address))
        return upstream


def protocol_for(
    reception: Reception, entrance: Entrance
) -> BehindBalancer | TlsTransport | ClientSide:
    """What takes a new connection's bytes: the client's side of it; before that TLS, and what a balancer says."""
    if not entrance.listener.proxied_by:
        return _protocol_of(reception, entrance, None)
    return BehindBalancer(
        entrance.listener,
        partial(_protocol_of, reception, entrance),
        reception.means.journal,
        patience_s=reception.means.limits.tls_handshake_ms / 1000,
    )


def _protocol_of(
    reception: Reception, entrance: Entrance, client: Address | None
) -> TlsTransport | ClientSide:
    side = ClientSide(reception, entrance, client)
    certificate = reception.certificates[entrance.number]
    if certificate is None:
        return side
    means = reception.means
    return TlsTransport(
        side,
        partial(certificate.context.wrap_bio, server_side=True),
        turns=means.turns,
        handshake_s=means.limits.tls_handshake_ms / 1000,
        protocol=side,
    )
