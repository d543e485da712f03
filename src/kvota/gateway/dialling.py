"""Which broker a connection is for, and the way to it."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kvota.gateway.broker_addresses import BrokerAddresses
from kvota.gateway.error_words import words_of
from kvota.gateway.knocking import knock
from kvota.gateway.own_addresses import OwnAddresses
from kvota.gateway.settings import GatewaySettings
from kvota.gateway.side import BrokerSide
from kvota.gateway.tls_transport import Handshake, TlsTransport
from kvota.gateway.turns import Turns
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.model.address import Address
from kvota.model.errors import UsageError
from kvota.session.topology import UNKNOWN_NODE, Topology
from kvota.tls.client_tls import Tls
from kvota.tls.tls_error import why_no_tls
from kvota.wire.proxy_protocol import OWN_HEAD, proxy_head

log = logging.getLogger(__name__)

End = TypeVar("End", bound=BrokerSide)


@dataclass(slots=True, kw_only=True)
class Destination:
    """The broker that a connection is for; another than planned may be reached.

    ``listener_node_id``: whose port the client has come to, None for the bootstrap port.
    """

    listener_node_id: int | None
    address: Address


class Dialler:
    """Connects to brokers; says once that one cannot be reached, and once that it can again.

    Args:
        settings: the bootstrap servers, and how long connecting may take.
        topology: the nodes' addresses, as far as answers have told them.
        brokers: which of them can be reached.
        own: the gateway's own addresses, where nobody is to be dialled.
        counts: of what goes wrong.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        topology: Topology,
        brokers: BrokerAddresses,
        own: OwnAddresses,
        counts: GatewayCounts,
    ) -> None:
        self._servers = settings.upstream
        self._tls = settings.upstream_tls
        self._tells_clients = settings.tells_clients
        self._connect_s = settings.limits.connect_ms / 1000
        self._topology = topology
        self._brokers = brokers
        self._own = own
        self._counts = counts
        self._last_server = 0
        self._unreachable: set[Address] = set()
        self._refused: set[Address] = set()

    def destination(self, listener_node_id: int | None) -> Destination:
        """The broker that a connection to this listener is for.

        Where it is no node's, the known brokers take turns. While none is known (the gateway has just
        started), or can be reached, any bootstrap server does: what it answers teaches the addresses.
        """
        address = self._address_of(listener_node_id)
        if address is None:
            in_turn = self._brokers.in_turn()
            if in_turn:
                address = in_turn[0]
            else:
                self._last_server = (self._last_server + 1) % len(self._servers)
                address = self._servers[self._last_server]
        return Destination(listener_node_id=listener_node_id, address=address)

    def node_of(self, address: Address) -> int:
        """The node id for counters of a connection to this address, as far as its words tell."""
        known = self._topology.node_at(*address)
        return UNKNOWN_NODE if known is None else known

    @property
    def brokers_known(self) -> int:
        """How many there are, as far as answers have told."""
        return len(self._topology.brokers)

    @property
    def unreachable(self) -> list[Address]:
        """Those that could not be reached when they were last tried."""
        return sorted(self._unreachable)

    @property
    def reaches_brokers(self) -> bool:
        """False when neither a known broker nor a bootstrap server could be reached."""
        return bool(self._brokers.reachable) or not self._unreachable.issuperset(self._servers)

    def is_elsewhere(self, destination: Destination) -> bool:
        """True when the listener's node is known to be at another address than was dialled."""
        address = self._address_of(destination.listener_node_id)
        return address is not None and address != destination.address

    async def dial(
        self,
        destination: Destination,
        make_end: Callable[[], End],
        turns: Turns,
        between: tuple[Address, Address] | None,
    ) -> tuple[End, Address] | None:
        """Connect, with TLS where brokers want it.

        Args:
            destination: which broker.
            make_end: makes the protocol.
            turns: for the handshake.
            between: where the client is, and which address it has called: what is upstream may want to be told.
                None: it has gone.

        Returns:
            The protocol and where it is; None when nobody can be reached (it is logged).
        """
        head = proxy_head(*between) if self._tells_clients and between is not None else b""
        candidates = [destination.address]
        is_any = self._address_of(destination.listener_node_id) is None
        if is_any:
            candidates += [*self._brokers.reachable, *self._servers]
        for address in dict.fromkeys(candidates):
            end = await self._connect(address, make_end, turns, head)
            if end is not None:
                if is_any:
                    self._brokers.look()  # whom the next ones may be for
                return end, address
        return None

    async def _connect(
        self, address: Address, make_end: Callable[[], End], turns: Turns, head: bytes
    ) -> End | None:
        if self._own.is_named(*address):
            self._refuse(address, address)
            return None
        try:
            async with asyncio.timeout(self._connect_s):
                transport, end = await self._connected(address, make_end, turns, head)
        # A TimeoutError is an OSError; a name that cannot be encoded is a ValueError.
        except (OSError, ValueError, UsageError) as error:
            self._brokers.reached(address, is_so=False)
            self._say_unreachable(address, error)
            return None
        peer = transport.get_extra_info("peername")
        if peer is not None and self._own.is_reached_at(*peer[:2]):
            transport.set_protocol(asyncio.Protocol())  # its end is nobody's affair
            transport.abort()
            self._refuse(address, peer[:2])
            return None
        self._brokers.reached(address, is_so=True)
        if address in self._unreachable:
            self._unreachable.discard(address)
            log.info("broker %s:%d can be reached again", *address)
        return end

    async def _connected(
        self, address: Address, make_end: Callable[[], End], turns: Turns, head: bytes
    ) -> tuple[asyncio.Transport, End]:
        loop = asyncio.get_running_loop()
        if self._tls is None:
            transport, end = await loop.create_connection(make_end, *address)
            if head:
                transport.write(head)  # nobody has written yet
            return transport, end
        context = self._tls.context_in_force()
        wrap = partial(context.wrap_bio, server_hostname=address[0])
        shaking = Handshake(loop.create_future())
        _, tls = await loop.create_connection(
            lambda: TlsTransport(
                shaking, wrap, turns=turns, handshake_s=self._connect_s, head=head
            ),
            *address,
        )
        try:
            await shaking.is_over
        except BaseException:
            tls.abort()
            raise
        end = make_end()
        tls.upper = end
        tls.set_protocol(end)
        end.connection_made(tls)
        return tls, end

    async def look_upstream(self) -> None:
        """Connect to each bootstrap server once, and say which cannot be reached."""
        head = OWN_HEAD if self._tells_clients else b""
        for address in self._servers:
            try:
                await knock(address, timeout_s=self._connect_s, tls=self._tls, head=head)
            except (OSError, ValueError, UsageError) as error:
                self._say_unreachable(address, error)
            else:
                log.info("broker %s:%d can be reached", *address)

    def _address_of(self, node_id: int | None) -> Address | None:
        return None if node_id is None else self._topology.brokers.get(node_id)

    def _refuse(self, address: Address, own: Address) -> None:
        """The gateway would talk to itself, once more for each connection of its own."""
        self._brokers.reached(address, is_so=False)
        self._counts.upstream_errors["own_address"] += 1
        if address in self._refused:
            return
        self._refused.add(address)
        remedy = (
            "Set advertised.listeners of that broker to an address of its own, not the gateway's"
        )
        if address in self._servers:
            remedy = "Write the brokers' own addresses in upstream.bootstrap_servers"
        log.error(
            "%s:%d is not dialled as a broker: the gateway itself listens there, at %s:%d. %s. Its clients "
            "are disconnected",
            *address,
            *own,
            remedy,
        )

    def _say_unreachable(self, address: Address, error: OSError | ValueError | UsageError) -> None:
        self._counts.upstream_errors["unreachable"] += 1
        if address in self._unreachable:
            return
        self._unreachable.add(address)
        log.error(
            "broker %s:%d cannot be reached: %s. Its clients are disconnected and will try again",
            *address,
            why_unreachable(error, address, self._tls),
        )


def why_unreachable(
    error: OSError | ValueError | UsageError, address: Address, tls: Tls | None
) -> str:
    """Return words for it, without a full stop."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError) and tls is not None:
        return why_no_tls(error, address, tls).rstrip(".")
    if isinstance(error, UsageError):
        return str(error)
    # asyncio has no words for a peer that leaves instead of shaking hands.
    return words_of(error) or "it has closed in the middle of the TLS handshake: does it speak TLS?"
