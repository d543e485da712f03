"""The gateway: listeners, connections, the way to the brokers, the end."""

import asyncio
import logging
import os
import resource
import time
from collections.abc import Coroutine
from itertools import count

from kvota.gateway.relay import ClientSide, UpstreamSide
from kvota.gateway.settings import GatewayLimits, GatewaySettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UnreachableError
from kvota.session.connection import BUDGET, Connection
from kvota.session.shared import Shared

log = logging.getLogger(__name__)

_SWEEP_S = 2.0
_PURGE_S = 10.0
# Node ids of connections whose broker is not known yet; -1 is taken by cluster-wide quotas.
_UNKNOWN_NODE = -2


class Gateway:
    """One gateway in front of one cluster.

    Args:
        settings: where to listen, whom to reach, limits.
        shared: engine, sink and the rest that every connection's machine uses.
    """

    def __init__(self, settings: GatewaySettings, shared: Shared) -> None:
        self.settings = settings
        self.limits: GatewayLimits = settings.limits
        self.shared = shared
        self.loop: asyncio.AbstractEventLoop
        self._servers: list[asyncio.Server] = []
        self._clients: dict[ClientSide, None] = {}  # in the order they came
        self._numbers = count(1)
        self._tasks: asyncio.TaskGroup
        self._next_upstream = 0
        self._unreachable: set[tuple[str, int]] = set()
        self._mutes = 0
        self._mute_late_ms_max = 0.0
        self._draining = False
        self._stop: asyncio.Event

    # ------------------------------------------------------------------ life

    async def run(self, *, started: asyncio.Event | None = None) -> None:
        """Listen and relay until ``stop`` is called, then drain.

        Raises:
            UnreachableError: a port cannot be listened on; says which and why.
        """
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._listen()
                self._raise_descriptor_limit()
                upkeep = tasks.create_task(self._upkeep())
                if started is not None:
                    started.set()
                await self._stop.wait()
                await self._drain()
                upkeep.cancel()
            finally:
                for server in self._servers:
                    server.close()

    def stop(self) -> None:
        """Begin to drain; safe to call from a signal handler of the loop, and twice."""
        self._stop.set()

    def replace_quotas(self, quotas: ConfiguredQuotas) -> None:
        """Put other quotas in force, for open connections too, from their next request on."""
        self.shared.engine.replace_quotas(quotas)

    async def _listen(self) -> None:
        told = self.settings.advertised
        ports: list[tuple[int, int | None]] = [(self.settings.bootstrap_port, None)]
        ports += [
            (told.node_port_base + node_id, node_id)
            for node_id in range(told.node_id_min, told.node_id_max + 1)
        ]
        for port, node_id in ports:
            try:
                server = await self.loop.create_server(
                    lambda node_id=node_id: ClientSide(self, listener_node_id=node_id),  # type: ignore[misc]
                    self.settings.host,
                    port,
                    backlog=1024,
                )
            except OSError as error:
                for opened in self._servers:
                    opened.close()
                what, setting = "the bootstrap port", "gateway.bootstrap_port"
                if node_id is not None:
                    what = f"node {node_id}'s port"
                    setting = "gateway.node_port_base, or fewer gateway.node_ids"
                msg = (
                    f"cannot listen on {self.settings.host}:{port} ({what}): "
                    f"{_reason(error)}. End what uses it, or choose another: {setting}."
                )
                raise UnreachableError(msg) from error
            self._servers.append(server)

    def _raise_descriptor_limit(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 2 * self.limits.connections_max + len(self._servers) + 64
        if soft == resource.RLIM_INFINITY or soft >= needed:
            return
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            log.warning(
                "the limit of open files is %d, %d connections need %d: raise it (ulimit -n) or lower "
                "limits.connections_max; connections beyond it fail",
                soft,
                self.limits.connections_max,
                needed,
            )

    async def _drain(self) -> None:
        """Take no new connection; let each open one finish what is in flight, then close it."""
        self._draining = True
        for server in self._servers:
            server.close()
        log.info("draining %d connections", len(self._clients))
        for client in list(self._clients):
            client.drain()
        end = self.loop.time() + self.limits.drain_ms / 1000
        while self._clients and self.loop.time() < end:
            for client in list(self._clients):
                if client.can_finish:
                    client.finish()
            await asyncio.sleep(0.02)
        if self._clients:
            log.warning(
                "%d connections had not finished after %d ms",
                len(self._clients),
                self.limits.drain_ms,
            )
        for client in list(self._clients):
            client.close("")
            client.transport.abort()
        await asyncio.sleep(0)
        log.info("mutes: %d, the latest ended %.1f ms late", self._mutes, self._mute_late_ms_max)

    async def _upkeep(self) -> None:
        """Close connections whose request does not arrive; forget idle counters."""
        purge_at = self.loop.time() + _PURGE_S
        while True:
            await asyncio.sleep(min(_SWEEP_S, self.limits.frame_ms / 4000))
            self._sweep(self.loop.time() * 1000)
            if self.loop.time() >= purge_at:
                purge_at += _PURGE_S
                self.shared.engine.purge_expired(time.time_ns() // 1_000_000)

    def _sweep(self, now_ms: float) -> None:
        limits = self.limits
        for client in list(self._clients):
            if self._is_for_a_known_node(client) and client.machine.idle:
                assert client.listener_node_id is not None
                if client.target != self.shared.topology.brokers[client.listener_node_id]:
                    # It was dialled before its node's address was known, or the node has moved.
                    client.close("", level=logging.INFO)
                    continue
            if client.machine.holds_reading and client.machine.keeps_others_waiting:
                client.close(
                    f"muted with {client.machine.arrived_bytes} bytes of a request, and others wait "
                    "for room (limits.announced_bytes_max)"
                )
                continue
            if not client.waits_for_client:
                client.frame_mark = -1
                continue
            arrived_bytes, before_bytes = client.machine.arrived_bytes, client.frame_bytes
            client.frame_bytes = arrived_bytes
            if client.frame_mark != client.machine.requests:
                client.frame_mark = client.machine.requests
                client.frame_since_ms = now_ms
                continue
            allowed_ms = limits.frame_ms + arrived_bytes * 1000 // limits.frame_bytes_per_s_min
            if now_ms - client.frame_since_ms >= allowed_ms:
                client.close(self._why_too_late(client, allowed_ms))
            elif arrived_bytes == before_bytes and client.machine.keeps_others_waiting:
                client.close(
                    f"its request stands still at {arrived_bytes} bytes, and others wait for room "
                    "(limits.announced_bytes_max)"
                )

    def _why_too_late(self, client: ClientSide, allowed_ms: int) -> str:
        if client.machine.stall & BUDGET:
            return (
                f"no room for its request in {allowed_ms} ms (limits.announced_bytes_max, "
                f"{self.limits.announced_bytes_max} bytes)"
            )
        return f"no whole request in {allowed_ms} ms; {client.machine.arrived_bytes} bytes of one are here"

    # ------------------------------------------------------------------ what connections ask

    def target(self, listener_node_id: int | None) -> tuple[str, int]:
        """The broker that a connection to this listener is for.

        While a node's address is not known (the gateway has just started), any bootstrap server does:
        what it answers teaches the address, and the connection is then closed, to be made anew.
        """
        if listener_node_id is not None:
            known = self.shared.topology.brokers.get(listener_node_id)
            if known is not None:
                return known
        servers = self.settings.upstream
        self._next_upstream = (self._next_upstream + 1) % len(servers)
        return servers[self._next_upstream]

    def node_of(self, target: tuple[str, int]) -> int:
        """The node id for counters of a connection to this address."""
        known = self.shared.topology.node_at(*target)
        if known is not None:
            return known
        servers = self.settings.upstream
        return _UNKNOWN_NODE - (servers.index(target) if target in servers else 0)

    def new_machine(self, client: ClientSide) -> Connection:
        """A machine for a new connection."""
        return Connection(
            self.shared,
            number=next(self._numbers),
            dialled=client.target,
            node_id=self.node_of(client.target),
            wake=client.wake_for_budget,
        )

    def admit(self, client: ClientSide) -> str:
        """Take a connection in; a reason when it must be refused."""
        if len(self._clients) >= self.limits.connections_max and not self._made_room():
            return (
                f"all {self.limits.connections_max} connections are in use (limits.connections_max)"
            )
        if self._draining:
            return "the gateway is stopping"
        self._clients[client] = None
        return ""

    def _made_room(self) -> bool:
        """Close the oldest connection that has not sent one whole head of a request, if there is any.

        So those who connect and are silent cannot keep out those who have something to say.
        """
        for client in self._clients:
            if not client.has_asked:
                client.close("it had asked nothing yet when all connections were in use")
                self._clients.pop(client, None)
                return True
        return False

    def forget(self, client: ClientSide) -> None:
        """A connection is over."""
        self._clients.pop(client, None)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run something for a connection; it must not raise."""
        self._tasks.create_task(work)

    async def dial(self, client: ClientSide) -> UpstreamSide | None:
        """Connect to the client's broker; None when it cannot be reached (said in the log)."""
        candidates = [client.target]
        if not self._is_for_a_known_node(client):  # any bootstrap server will do
            candidates += [other for other in self.settings.upstream if other != client.target]
        for host, port in candidates:
            try:
                async with asyncio.timeout(self.limits.connect_ms / 1000):
                    _, upstream = await self.loop.create_connection(
                        lambda: UpstreamSide(client), host, port
                    )
            # A TimeoutError is an OSError; a name that cannot be encoded is a ValueError.
            except (OSError, ValueError) as error:
                self._say_unreachable((host, port), error)
                continue
            if (host, port) in self._unreachable:
                self._unreachable.discard((host, port))
                log.info("broker %s:%d can be reached again", host, port)
            if (host, port) != client.target:
                client.target = (host, port)
                client.machine.redialled((host, port), self.node_of((host, port)))
            return upstream
        return None

    async def look_upstream(self) -> None:
        """Connect to each bootstrap server once, and say which cannot be reached."""
        for host, port in self.settings.upstream:
            try:
                async with asyncio.timeout(self.limits.connect_ms / 1000):
                    _, writer = await asyncio.open_connection(host, port)
            except (OSError, ValueError) as error:
                self._say_unreachable((host, port), error)
            else:
                log.info("broker %s:%d can be reached", host, port)
                writer.close()

    def _is_for_a_known_node(self, client: ClientSide) -> bool:
        node_id = client.listener_node_id
        return node_id is not None and node_id in self.shared.topology.brokers

    def _say_unreachable(self, address: tuple[str, int], error: OSError | ValueError) -> None:
        if address in self._unreachable:
            return
        self._unreachable.add(address)
        reason = "no answer in time" if isinstance(error, TimeoutError) else _reason(error)
        log.error(
            "broker %s:%d cannot be reached: %s. Its clients are disconnected and will try again",
            *address,
            reason,
        )

    def mute_ended(self, late_ms: float) -> None:
        """Keep count: what timers gave away is what a client may catch up."""
        self._mutes += 1
        self._mute_late_ms_max = max(self._mute_late_ms_max, late_ms)

    def upstream_lost(self, client: ClientSide, exc: Exception | None, due: int) -> None:
        """A broker has closed a connection."""
        cause = f" ({exc})" if exc else ""
        where = (*client.target, client.machine.number, client.peer, cause)
        if due:
            log.warning(
                "broker %s:%d closed connection %d from %s%s; %d answers were due, the client will "
                "send those requests again",
                *where,
                due,
            )
        else:
            log.info(
                "broker %s:%d closed connection %d from %s%s; no answer was due: it was idle, or a "
                "request that waits for none was refused",
                *where,
            )


def _reason(error: OSError | ValueError) -> str:
    """The system's own words; an event loop may have put others around them."""
    if isinstance(error, OSError):
        if error.errno is not None and error.errno > 0:
            return os.strerror(error.errno)
        return error.strerror or str(error)
    return str(error)
