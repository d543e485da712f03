"""One connection with the gateway's own driver, on a loop that is cranked by hand: what is one step, and how long is it?

A step is what the event loop calls: a chunk that the client or the broker has sent, or what was put off. Others wait as
long as a step takes, so ``measure`` is called with each of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any

from kvota.gateway.backlog import Backlog
from kvota.gateway.client_side import ClientSide, Reception
from kvota.gateway.connection_rates import ConnectionRates
from kvota.gateway.dialling import Destination
from kvota.gateway.held_back import HeldBack
from kvota.gateway.journal import Journal
from kvota.gateway.listeners import Entrance
from kvota.gateway.means import Means
from kvota.gateway.places import Places
from kvota.gateway.settings import ConnectionRateSettings, GatewayLimits, ListenerSettings
from kvota.gateway.turns import Turns
from kvota.gateway.upstream_side import UpstreamSide
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.session.topology import Advertised
from kvota.testing.stage import BROKER, GATEWAY, NODE_PORT_BASE, Cluster

# So much uvloop reads at once.
READ_BYTES = 256_000


class Measure:
    """Is told of each step; this one only takes it.

    Args:
        shrink: of what is only long, not hostile, so small a part is enough.
    """

    def __init__(self, *, shrink: int = 1) -> None:
        self._shrink = shrink

    def most(self, size: int) -> int:
        return size // self._shrink

    def take(self, what: str, step: Callable[[], object]) -> None:
        """Takes a step, which is ``what`` the loop calls."""
        step()


class HandLoop:
    """As much of a loop as a driver needs; timers are never due."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()

    def time(self) -> float:
        return 0.0

    def call_soon(self, action: Callable[..., object], *args: object) -> None:
        self.soon.append(lambda: action(*args))

    def call_at(self, _when: float, _action: object, *_args: object) -> asyncio.TimerHandle:
        return _NEVER

    call_later = call_at


class _Never:
    def cancel(self) -> None:
        pass


_NEVER: Any = _Never()


class Wire:
    """A transport whose other end is the test; nothing that is written waits."""

    def __init__(self) -> None:
        self.inbox = bytearray()  # sent by the other end and not read yet
        self.written: list[bytes | bytearray] = []
        self.is_read = True
        self.is_closed = False

    def write(self, data: bytes | bytearray) -> None:
        self.written.append(data)

    def taken(self) -> bytes:
        """What has been written since this was asked last."""
        data = b"".join(self.written)
        self.written.clear()
        return data

    @property
    def is_due(self) -> bool:
        return bool(self.inbox) and self.is_read and not self.is_closed

    def next_chunk(self) -> bytes:
        chunk = bytes(self.inbox[:READ_BYTES])
        del self.inbox[:READ_BYTES]
        return chunk

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, **_limits: int) -> None:
        pass

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("192.0.2.1", 50_000) if name == "peername" else None


class _Dialler:
    """There is one broker, and it accepts at once."""

    def destination(self, _listener_node_id: int | None) -> Destination:
        return Destination(listener_node_id=1, address=BROKER)

    def node_of(self, _address: tuple[str, int]) -> int:
        return 1

    async def dial(
        self,
        destination: Destination,
        make_end: Callable[[], UpstreamSide],
        _turns: Turns,
        _between: object,
    ) -> tuple[UpstreamSide, tuple[str, int]]:
        end = make_end()
        end.connection_made(Wire())  # type: ignore[arg-type]
        return end, destination.address


class _AtOnce:
    """Runs a task when it is made: dialling here waits for nothing."""

    def create_task(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("it waits for something")


ENTRANCE = Entrance(
    0,
    ListenerSettings(
        host="127.0.0.1",
        bootstrap_port=9192,
        advertised=Advertised(
            host=GATEWAY, node_port_base=NODE_PORT_BASE, node_id_min=0, node_id_max=9
        ),
    ),
    1,
)


class House:
    """What the connections of one gateway have in common."""

    def __init__(
        self, cluster: Cluster, limits: Mapping[str, int] | None = None, *, errands: object = None
    ) -> None:
        self.cluster = cluster
        self.errands = errands
        self.loop = HandLoop()
        gateway_limits = GatewayLimits(**(limits or {}))
        counts = GatewayCounts()
        places = Places(gateway_limits, counts)
        means = Means(
            loop=self.loop,  # type: ignore[arg-type]
            limits=gateway_limits,
            shared=cluster.shared,
            asking=None,  # type: ignore[arg-type]
            brokers=None,  # type: ignore[arg-type]
            errands=errands,  # type: ignore[arg-type]
            counts=counts,
            turns=Turns(self.loop),  # type: ignore[arg-type]
            backlog=Backlog(places, cluster.shared),
            journal=Journal(lambda: 0.0),
            numbers=count(1),
        )
        self.reception = Reception(
            means=means,
            places=places,
            rates=ConnectionRates(ConnectionRateSettings()),
            held_back=HeldBack(self.loop),  # type: ignore[arg-type]
            dialler=_Dialler(),  # type: ignore[arg-type]
            tasks=_AtOnce(),  # type: ignore[arg-type]
            certificates=(None,),
        )


class Stand:
    """One connection; what its client and its broker send is cut as a socket cuts it."""

    def __init__(self, house: House | None = None, measure: Measure | None = None) -> None:
        self.house = house or House(Cluster())
        self._measure = measure or Measure()
        self._to_client = Wire()
        self._side = ClientSide(self.house.reception, ENTRANCE)
        self._side.connection_made(self._to_client)  # type: ignore[arg-type]
        self.driver = self._side.driver

    @property
    def is_closed(self) -> bool:
        return self._to_client.is_closed

    def client(self, data: bytes) -> bytes:
        """The client sends, and all is done that can be; returns what the broker gets because of it."""
        self._to_client.inbox += data
        self._run()
        return self._to_broker.taken() if self.driver.upstream is not None else b""

    def broker(self, data: bytes) -> bytes:
        """The broker sends; returns what the client gets because of it."""
        self._to_broker.inbox += data
        self._run()
        return self._to_client.taken()

    def leave(self) -> None:
        """The client has gone."""
        self._measure.take("the client goes", lambda: self._side.connection_lost(None))
        self._run()

    @property
    def _to_broker(self) -> Wire:
        assert self.driver.upstream is not None
        wire: Any = self.driver.upstream.transport
        return wire

    def _run(self) -> None:
        """Rounds of the loop: a chunk from each socket that is read, then what was put off before."""
        soon = self.house.loop.soon
        while True:
            ends = [("from the client", self._to_client, self._side)]
            upstream = self.driver.upstream
            if upstream is not None:
                assert isinstance(upstream, UpstreamSide)
                ends.append(("from the broker", self._to_broker, upstream))  # type: ignore[arg-type]
            due = [end for end in ends if end[1].is_due]
            if not due and not soon:
                return
            for name, wire, side in due:
                chunk = wire.next_chunk()
                self._measure.take(name, lambda side=side, chunk=chunk: side.data_received(chunk))  # type: ignore[misc]
            for _ in range(len(soon)):
                self._measure.take("put off", soon.popleft())
