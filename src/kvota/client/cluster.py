"""A cluster as one thing to ask: any of its brokers, a certain one, its controller, or a coordinator."""

import asyncio
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Final, Self

from kvota.client.cluster_metadata import ClusterMetadata, metadata_fields
from kvota.client.connection import BrokerConnection, ClientLimits
from kvota.client.coordinator import Coordinator, finding, found_in
from kvota.client.messages import Answer, Fields, decode
from kvota.client.security import NO_LOGIN, Security
from kvota.client.turns import in_turns
from kvota.model.address import Address, parse_address
from kvota.model.errors import UnreachableError, UsageError
from kvota.wire.apis import FIND_COORDINATOR, METADATA
from kvota.wire.cluster_brokers import read_brokers_in_steps


class _To(Enum):
    ANY = "any broker"
    CONTROLLER = "the controller"

    def __str__(self) -> str:
        return self.value


ANY: Final = _To.ANY
CONTROLLER: Final = _To.CONTROLLER
Destination = _To | int | Coordinator


class Cluster:
    """Asks the brokers of a cluster, over one connection to each, made when it is needed.

    Args:
        servers: ``host:port`` of brokers to begin with, as many as are known.
        security: how to log in, the same at all of them.
        client_id: as the brokers' quotas see this client.
        limits: of each connection.

    Raises:
        UsageError: a server is no ``host:port``.
    """

    def __init__(
        self,
        servers: Iterable[str | Address],
        *,
        security: Security = NO_LOGIN,
        client_id: str = "kvota",
        limits: ClientLimits | None = None,
    ) -> None:
        self._servers = [_address(server) for server in servers]
        if not self._servers:
            msg = 'no server to begin with; name one, e.g. "127.0.0.1:9092"'
            raise UsageError(msg)
        self._security = security
        self._client_id = client_id
        self._limits = limits or ClientLimits()
        self._brokers: dict[int, Address] = {}
        self._controller_id: int | None = None
        self._coordinators: dict[Coordinator, int] = {}
        self._open: dict[Address, BrokerConnection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        # Tried, and not in since: they have refused us, or whoever asked would not wait any longer.
        self._doubted: set[Address] = set()

    async def __aenter__(self) -> Self:
        """Reach the cluster and learn its brokers.

        Raises:
            UnreachableError: none of the servers answers.
            BrokerError: the login is refused.
        """
        try:
            await self.metadata([])
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    @property
    def broker_ids(self) -> Sequence[int]:
        """The brokers that the last metadata named."""
        return sorted(self._brokers)

    async def close(self) -> None:
        """Close all connections; the object may be used again afterwards."""
        connections, self._open = list(self._open.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))

    # ------------------------------------------------------------------ asking

    async def ask(
        self,
        key: int,
        content: Fields,
        *,
        to: Destination = ANY,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send one request and return the answer; what may have been carried out is never sent again.

        Args:
            key: of the API.
            content: values by the schema's field names.
            to: ``ANY``, ``CONTROLLER``, a node id or a ``Coordinator``.
            timeout_s: for the answer.

        Raises:
            UnreachableError: nobody could be asked, or the connection was lost before the answer.
            UsageError: no version is spoken by both, or there is no such node.
            ProtocolError: the answer cannot be read.
        """
        connection = await self.connection_to(to)
        return await connection.ask(key, content, timeout_s=timeout_s)

    async def metadata(
        self,
        topics: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
        avoiding: Container[Address] = (),
    ) -> ClusterMetadata:
        """Ask any broker what there is; None: all topics. Topics are not created by being named.

        Where no topic is asked about none is read, whatever the answer holds: it may be as large as one about all of
        them, and a broker that does not do as it is told holds nobody else up. Which brokers are coordinators is looked up again after that.

        Args:
            topics: their names.
            timeout_s: for the answer; else the limits' ``request_s``.
            avoiding: brokers that are asked only where there is no other.

        Raises:
            UnreachableError: no broker can be reached, or the one that was asked has not answered; the next
                call asks another one.
        """
        connection = await self.connection_to(ANY, avoiding=avoiding)
        version = connection.version_of(METADATA)
        names = None if topics is None else list(topics)
        content = _metadata_request(version, names)
        frame = await connection.ask_frame(METADATA, content, version=version, timeout_s=timeout_s)
        if names == []:
            told = await in_turns(read_brokers_in_steps(frame, version))
            found = ClusterMetadata.without_topics(told)
        else:
            found = ClusterMetadata.of(decode(METADATA, version, frame))
        self._brokers = {
            broker.node_id: (broker.host, broker.port) for broker in found.brokers.values()
        }
        self._controller_id = found.controller_id
        self._coordinators.clear()
        return found

    # ------------------------------------------------------------------ connections

    async def connection_to(
        self, to: Destination, *, avoiding: Container[Address] = ()
    ) -> BrokerConnection:
        """Return an open connection to a broker, e.g. to see what it offers.

        Args:
            to: ``ANY``, ``CONTROLLER``, a node id or a ``Coordinator``.
            avoiding: where it is ``ANY``: brokers that are taken only where there is no other.

        Raises:
            UnreachableError: it cannot be reached.
            UsageError: there is no such node.
            BrokerError: the user may not know of this group or transactional id.
        """
        if to is CONTROLLER:
            if self._controller_id is None or self._controller_id not in self._brokers:
                await self.metadata([])
            if self._controller_id is None or self._controller_id not in self._brokers:
                msg = "the cluster has no controller at the moment"
                raise UnreachableError(msg)
            return await self._connection(self._brokers[self._controller_id])
        if isinstance(to, int):
            if to not in self._brokers:
                await self.metadata([])
            if to not in self._brokers:
                known = ", ".join(map(str, self.broker_ids)) or "none"
                msg = f"the cluster has no broker {to}; it has {known}"
                raise UsageError(msg)
            return await self._connection(self._brokers[to])
        if isinstance(to, Coordinator):
            return await self._coordinator_connection(to, avoiding)
        return await self._any_connection(avoiding)

    async def _coordinator_connection(
        self, wanted: Coordinator, avoiding: Container[Address]
    ) -> BrokerConnection:
        node_id = self._coordinators.get(wanted)
        if node_id is None or node_id not in self._brokers:
            connection = await self._any_connection(avoiding)
            version = connection.version_of(FIND_COORDINATOR)
            answer = await connection.ask(FIND_COORDINATOR, finding(wanted, version))
            node_id, host, port = found_in(answer, wanted)
            self._coordinators[wanted] = node_id
            self._brokers[node_id] = (host, port)
        return await self._connection(self._brokers[node_id])

    async def _any_connection(self, avoiding: Container[Address]) -> BrokerConnection:
        """One that is open, else the first broker that lets us in; last those to be avoided."""
        for address, connection in self._open.items():
            if not connection.is_closed and address not in avoiding:
                return connection
        # Behind the others those whose connection has ended, or has not come about: a broker that hangs would cost
        # its time once more.
        addresses = dict.fromkeys([*self._brokers.values(), *self._servers])
        tried = self._doubted | self._open.keys()
        refused: list[str] = []
        for address in sorted(addresses, key=lambda each: (each in avoiding, each in tried)):
            try:
                return await self._connection(address)
            except UnreachableError as error:
                refused.append(str(error))
        msg = "; ".join(refused)
        raise UnreachableError(msg)

    async def _connection(self, address: Address) -> BrokerConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            found = self._open.get(address)
            if found is not None and not found.is_closed:
                return found
            if found is not None:
                await found.close()
            self._doubted.add(address)
            connection = await BrokerConnection.open(
                address, security=self._security, client_id=self._client_id, limits=self._limits
            )
            self._doubted.discard(address)
            self._open[address] = connection
            return connection


def _metadata_request(version: int, topics: Iterable[str] | None) -> Fields:
    if topics is None:
        return metadata_fields(version, None)
    has_ids: Fields = {"topic_id": None} if version >= 10 else {}
    return metadata_fields(version, [{**has_ids, "name": name} for name in topics])


def _address(server: str | Address) -> Address:
    if not isinstance(server, str):
        return server
    with suppress(ValueError):
        host, port = parse_address(server.strip())
        if host:
            return host, port
    msg = f'"{server}" is not host:port, e.g. 127.0.0.1:9092'
    raise UsageError(msg)
