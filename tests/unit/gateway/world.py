"""A gateway on real sockets with brokers behind it that do what a test says."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from kvota.app.gateway_process import free_port_range
from kvota.callbacks import ClientQuotaCallback, DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.gateway.driver import Driver
from kvota.gateway.gateway import Gateway
from kvota.gateway.settings import GatewayLimits, GatewaySettings, ListenerSettings, Network
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.session.budget import AnnouncedBudgets
from kvota.session.facts import ClusterFacts
from kvota.session.outside import Refusal
from kvota.session.settings import ConnectionSettings
from kvota.session.shared import Shared
from kvota.session.topology import Advertised, Topology
from kvota.store.quota_store import TomlStore
from kvota.testing.frames import (
    HEARTBEAT,
    METADATA,
    answer,
    fetch_answer,
    metadata_answer,
    produce_answer,
    request,
)
from kvota.testing.stage import ALL_TYPES, Rows
from kvota.tls.client_tls import Tls
from kvota.tls.server_tls import ServerTls

# Where REQUEST is in force, too, callbacks of one's own are asked about it.
BYTES_AND_MUTATIONS = ALL_TYPES - {QuotaType.REQUEST}

# A test that waits for ever on this loop is not ended by pytest's own signal.
PATIENCE_S = 15
BROKER_HOST = "127.0.0.2"
GATEWAY_HOST = "127.0.0.1"
BALANCER_HOST = "127.0.0.4"
WRITTEN_BY_PEOPLE = Refusal(44, "the quotas of this world are written by people")
Behaviour = Callable[["Broker", bytes], Awaitable[bytes]]


async def obliging(broker: "Broker", frame: bytes) -> bytes:
    """Answers Produce, Fetch, Metadata and Heartbeat as these tests ask them."""
    correlation = int.from_bytes(frame[8:12], "big")
    key, version = frame[5], frame[7]
    if key == 0:
        return produce_answer(version, correlation=correlation)
    if key == 1:
        records = b"f" * broker.answer_bytes
        return fetch_answer(version, correlation=correlation, records=records)
    if key == METADATA:
        brokers = [(number, *address) for number, address in enumerate(broker.cluster, 1)]
        return metadata_answer(version, correlation=correlation, brokers=brokers)
    return answer(HEARTBEAT, 4, correlation=correlation)


async def silent(broker: "Broker", frame: bytes) -> bytes:
    """Never answers."""
    return b""


class Broker:
    """One server; reads frames one after the other, keeps them, answers as told."""

    def __init__(
        self,
        behaviour: Behaviour,
        cluster: list[tuple[str, int]],
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.tls = tls
        self.cluster = cluster
        self.port = port
        self.frames: list[bytes] = []
        self.bytes_read = 0
        self.connections = 0
        self.certificates: list[
            tuple[tuple[tuple[str, str], ...], ...]
        ] = []  # the subjects of those that it has been shown
        self.answer_bytes = 100
        self.gate = asyncio.Event()
        self.gate.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> tuple[str, int]:
        return BROKER_HOST, self.port

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, BROKER_HOST, self.port, limit=2**20, ssl=self.tls
        )

    async def stop(self) -> None:
        """Close listener and connections, as a broker that dies."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close all connections, and listen on."""
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        shown = writer.get_extra_info("peercert")
        if shown:
            self.certificates.append(shown["subject"])
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self.gate.wait()
                    head = await reader.readexactly(4)
                    frame = head + await reader.readexactly(int.from_bytes(head, "big"))
                    self.bytes_read += len(frame)
                    self.frames.append(frame)
                    writer.write(await self.behaviour(self, frame))
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()


class Balancer:
    """An address of its own that leads to a broker."""

    def __init__(self, broker: tuple[str, int]) -> None:
        self.address = (BALANCER_HOST, free_port_range(1, BALANCER_HOST))
        self.connections = 0
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self.address)

    def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        to_reader, to_writer = await asyncio.open_connection(*self._broker)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


class Client:
    """A raw connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            return head + await self.reader.readexactly(int.from_bytes(head, "big"))

    async def ask(self, data: bytes) -> bytes:
        self.send(data)
        return await self.frame()

    async def rest(self) -> bytes:
        """All that still comes until the gateway closes."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        return b""


class World:
    """Ready on entry; the gateway drains and all is closed on exit.

    It has been told of the brokers, nodes 1 to n, unless ``knows_brokers`` is false.
    """

    def __init__(
        self,
        *,
        behaviour: Behaviour = obliging,
        brokers: int = 1,
        started: tuple[int, ...] | None = None,
        table: ConfiguredQuotas | None = None,
        callback: ClientQuotaCallback | None = None,
        enforced: frozenset[QuotaType] = BYTES_AND_MUTATIONS,
        limits: GatewayLimits | None = None,
        connection: ConnectionSettings | None = None,
        knows_brokers: bool = True,
        upstream_host: str | None = None,
        behind: "World | None" = None,
        tls: ServerTls | None = None,
        upstream_tls: Tls | None = None,
        node_host: str = "",
        proxied_by: tuple[Network, ...] = (),
        tells_clients: bool = False,
        broker_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.limits = limits or GatewayLimits(drain_ms=2_000)
        ports = free_port_range(brokers, BROKER_HOST)
        cluster = [(BROKER_HOST, ports + number) for number in range(brokers)]
        self.brokers = [Broker(behaviour, cluster, port, broker_tls) for _host, port in cluster]
        self._started = range(brokers) if started is None else started
        upstream = tuple(cluster)
        if upstream_host is not None:
            upstream = tuple((upstream_host, port) for _host, port in cluster)
        elif behind is not None:
            upstream = ((GATEWAY_HOST, behind.first_port),)
        self.first_port = free_port_range(2 * (brokers + 2), GATEWAY_HOST)
        advertised = Advertised(
            host=GATEWAY_HOST,
            node_port_base=self.first_port + 1,
            node_id_min=0,
            node_id_max=brokers,
        )
        self.tls_port = self.first_port + brokers + 2
        inside = replace(
            advertised,
            node_port_base=self.tls_port + (not node_host),
            node_host=node_host,
        )
        further = ListenerSettings(
            host=GATEWAY_HOST,
            bootstrap_port=self.tls_port,
            advertised=inside,
            tls=tls,
            proxied_by=proxied_by,
            table="listeners.outside",
        )
        self.sink = Rows()
        default_callback = DefaultQuotaCallback(table or ConfiguredQuotas())
        self.engine = QuotaEngine(callback or default_callback, {})
        self.store = store = TomlStore(
            ClientQuotas.of(table or ConfiguredQuotas()), WRITTEN_BY_PEOPLE
        )
        self.shared = Shared(
            engine=self.engine,
            sink=self.sink,
            topology=Topology(advertised),
            budgets=AnnouncedBudgets(limit_bytes=self.limits.announced_bytes_max),
            facts=ClusterFacts(),
            settings=connection or ConnectionSettings(enforced=enforced),
            default_callback=default_callback,
            client_quotas=store,
        )
        if knows_brokers:
            for node_id, address in enumerate(cluster, 1):
                self.shared.topology.address_of(node_id, *address)
        self.gateway = Gateway(
            GatewaySettings(
                host=GATEWAY_HOST,
                bootstrap_port=self.first_port,
                advertised=advertised,
                upstream=upstream,
                proxied_by=proxied_by,
                tells_clients=tells_clients,
                limits=self.limits,
                further_listeners=() if tls is None else (further,),
                upstream_tls=upstream_tls,
            ),
            self.shared,
            store,
        )
        self._running: asyncio.Task[None] | None = None
        self._clients: list[Client] = []
        self._balancers: list[Balancer] = []

    async def __aenter__(self) -> Self:
        for number in self._started:
            await self.brokers[number].start()
        started = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self.gateway.run(started=started))
        starting = asyncio.ensure_future(started.wait())
        await asyncio.wait({self._running, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():  # somebody else has taken its ports, say: nobody waits for that
            starting.cancel()
            await self._running
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        await self.stop()
        for balancer in self._balancers:
            balancer.stop()
        for broker in self.brokers:
            broker.gate.set()
            await broker.stop()

    async def stop(self) -> None:
        """SIGTERM's way; returns when the gateway has drained."""
        assert self._running is not None
        self.gateway.stop()
        await self._running

    def stop_soon(self) -> asyncio.Task[None]:
        assert self._running is not None
        self.gateway.stop()
        return self._running

    async def connect(self, node_id: int | None = None, *, host: str = GATEWAY_HOST) -> Client:
        """A client that comes from this address."""
        port = self.first_port if node_id is None else self.first_port + 1 + node_id
        client = Client(
            *await asyncio.open_connection(GATEWAY_HOST, port, limit=2**24, local_addr=(host, 0))
        )
        self._clients.append(client)
        return client

    async def connect_by_tls(
        self, context: ssl.SSLContext, name: str = "localhost", *, node_id: int | None = None
    ) -> Client:
        """A client of the listener with TLS."""
        port = self.tls_port if node_id is None else self.tls_port + 1 + node_id
        client = Client(
            *await asyncio.open_connection(
                GATEWAY_HOST, port, limit=2**24, ssl=context, server_hostname=name
            )
        )
        self._clients.append(client)
        return client

    async def balance(self) -> "Balancer":
        """Puts a balancer before the first broker in the place of the bootstrap servers."""
        balancer = Balancer(self.brokers[0].address)
        await balancer.start()
        self._balancers.append(balancer)
        self.gateway._dialler._servers = (balancer.address,)
        return balancer

    @property
    def open_connections(self) -> int:
        return len(self.gateway._places)

    @property
    def drivers(self) -> list[Driver]:
        return list(self.gateway._places)

    def dial_later(self) -> asyncio.Event:
        """Brokers accept nothing before the event that is returned."""
        gate, dial = asyncio.Event(), self.gateway._dialler.dial

        async def dial_behind_gate(*arguments: object) -> object:
            await gate.wait()
            return await dial(*arguments)  # type: ignore[arg-type]

        self.gateway._dialler.dial = dial_behind_gate  # type: ignore[assignment, method-assign]
        return gate

    def sweep(self) -> None:
        """What upkeep does every other second."""
        self.gateway._slow_senders.sweep(asyncio.get_running_loop().time() * 1000)


Worlds = Callable[..., Awaitable[World]]


async def only_driver(world: World) -> Driver:
    """The driver of the only connection, once it is there."""
    await until(lambda: world.drivers)
    (driver,) = world.drivers
    return driver


def reasons_of(driver: Driver) -> int:
    return driver.machine.pausing.reasons


def heartbeat(correlation: int = 1) -> bytes:
    return request(HEARTBEAT, 4, correlation=correlation)


def heartbeat_answer(correlation: int = 1) -> bytes:
    return answer(HEARTBEAT, 4, correlation=correlation)


async def until(is_so: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Waits until it is so; generous, as the machine may be busy."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - what is watched has no event of its own
            await asyncio.sleep(0.005)
