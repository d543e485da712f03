"""The two ends of one relayed connection: asyncio protocols that perform what the machine says."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import time_ns
from typing import Protocol, cast

from kvota.gateway.settings import GatewayLimits
from kvota.model.errors import ProtocolError
from kvota.session.commands import Do
from kvota.session.connection import DRAINING, MUTED, Connection
from kvota.session.muting import Muting

log = logging.getLogger(__name__)

# How long a closed connection may take to write what it still holds.
_LINGER_S = 30.0
# How long a client may take to close after it was told that no more answers come.
_GOODBYE_S = 1.0
# Why the client is not being read right now.
_STALLED, _UPSTREAM_FULL, _DIALLING, _READS_SLOWLY = 1, 2, 4, 8


class Owner(Protocol):
    """What a connection asks of its gateway."""

    loop: asyncio.AbstractEventLoop
    limits: GatewayLimits

    def target(self, listener_node_id: int | None) -> tuple[str, int]:
        """The broker that a connection to this listener is for."""

    def new_machine(self, client: "ClientSide") -> Connection:
        """A machine for a new connection."""

    def admit(self, client: "ClientSide") -> str:
        """Take a connection in; a reason when it must be refused."""

    def forget(self, client: "ClientSide") -> None:
        """A connection is over."""

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run something for a connection."""

    async def dial(self, client: "ClientSide") -> "UpstreamSide | None":
        """Connect to the client's broker."""

    def upstream_lost(self, client: "ClientSide", exc: Exception | None, due: int) -> None:
        """A broker has closed a connection."""

    def mute_ended(self, late_ms: float) -> None:
        """A mute is over, so much later than it should have been."""


class ClientSide(asyncio.Protocol):
    """The client's end; it owns the machine and the connection to the broker."""

    __slots__ = (
        "_before_dialled",
        "_eof",
        "_held",
        "_linger",
        "_muting",
        "_timer",
        "closing",
        "frame_bytes",
        "frame_mark",
        "frame_since_ms",
        "gateway",
        "listener_node_id",
        "machine",
        "peer",
        "target",
        "transport",
        "upstream",
    )

    transport: asyncio.Transport
    machine: Connection

    def __init__(self, gateway: Owner, *, listener_node_id: int | None) -> None:
        self.gateway = gateway
        self.listener_node_id = listener_node_id  # None: the bootstrap port
        self.target = gateway.target(listener_node_id)
        self.upstream: UpstreamSide | None = None
        self.peer = "?"
        self.closing = False
        self.frame_mark = -1
        self.frame_bytes = 0
        self.frame_since_ms = 0.0
        self._muting: Muting | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._held = 0
        self._eof = False
        self._before_dialled: list[bytes | bytearray] | None = None

    # ------------------------------------------------------------------ asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; nothing is dialled before its first request has passed."""
        self.transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.machine = self.gateway.new_machine(self)
        refused = self.gateway.admit(self)
        if refused:
            self.close(refused)
            return
        self.transport.set_write_buffer_limits(high=self.gateway.limits.write_buffer_bytes)

    def data_received(self, data: bytes) -> None:
        """The hot path, client to broker."""
        machine = self.machine
        try:
            out = machine.from_client(data, time_ns() // 1000)
        except ProtocolError as error:
            self.close(str(error))
            return
        if out:
            upstream = self.upstream
            if upstream is not None:
                upstream.write(out)
            else:
                self._write_when_dialled(out)
        if machine.commands:
            self.perform()
        if machine.stall and machine.holds_reading:
            self._hold(_STALLED)

    def eof_received(self) -> bool:
        """The client will send no more; answers still due must reach it."""
        if self.upstream is None and self._before_dialled is None:
            return False
        self._eof = True
        self._pass_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The client is gone (or was closed by us)."""
        self.closing = True
        for timer in (self._timer, self._linger):
            if timer is not None:
                timer.cancel()
        self.machine.close()
        if self.upstream is not None:
            self.upstream.leave()
        else:
            self.machine.upstream_gone()
        self.gateway.forget(self)
        # Cycles would keep all this until the collector's next full run, thousands of connections later.
        self.upstream = self._timer = self._linger = None

    def pause_writing(self) -> None:
        """The client reads slowly: read neither the broker nor what the client asks for on top."""
        self._hold(_READS_SLOWLY)
        if self.upstream is not None:
            self.upstream.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._release(_READS_SLOWLY)
        if self.upstream is not None:
            self.upstream.resume()

    # ------------------------------------------------------------------ performing

    def perform(self) -> None:
        """Carry out the machine's commands, in order; doing one may add others."""
        commands = self.machine.commands
        while commands and not self.closing:
            code, argument = commands.pop(0)
            match code:
                case Do.MUTE:
                    self._mute(cast("int", argument))
                case Do.SEND_CLIENT:
                    self.transport.write(cast("bytes", argument))
                case Do.SEND_UPSTREAM:
                    self._to_upstream(cast("bytes", argument))
                case Do.RESUME:
                    self._resume(cast("int", argument))
                case Do.WARN:
                    log.warning(
                        "connection %d from %s: %s", self.machine.number, self.peer, argument
                    )
                case _:
                    msg = f"unknown command {code}"
                    raise AssertionError(msg)

    def _to_upstream(self, data: bytes | bytearray | None) -> None:
        if not data:
            return
        if self.upstream is not None:
            self.upstream.write(data)
        else:
            self._write_when_dialled(data)

    def _resume(self, reason: int) -> None:
        self._go_on(lambda now_us: self.machine.resume(reason, now_us))

    def _go_on(self, step: Callable[[int], bytes | bytearray | None]) -> None:
        """Let the machine continue with held bytes, then read on if it may."""
        if self.closing:
            return
        try:
            out = step(time_ns() // 1000)
        except ProtocolError as error:
            self.close(str(error))
            return
        self._to_upstream(out)
        if self.machine.commands:
            self.perform()
        if self.machine.holds_reading:
            self._hold(_STALLED)
        else:
            self._release(_STALLED)
            self._pass_eof()

    def wake_for_budget(self) -> None:
        """The announced-bytes budget has room again."""
        self.gateway.loop.call_soon(self._take_room)

    def _take_room(self) -> None:
        if self.closing:
            self.machine.pass_room_on()
        else:
            self._go_on(self.machine.room)

    def _mute(self, throttle_ms: int) -> None:
        if self._muting is None:
            self._muting = Muting(cap_ms=self.gateway.limits.mute_ms_max)
        loop = self.gateway.loop
        look_ms = self._muting.mute(throttle_ms, now_ms=int(loop.time() * 1000))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(look_ms / 1000, self._mute_over, look_ms)

    def _mute_over(self, due_ms: int) -> None:
        assert self._muting is not None
        self._timer = None
        now_ms = self.gateway.loop.time() * 1000
        self.gateway.mute_ended(now_ms - due_ms)
        # A timer may fire a fraction of a millisecond early: what it was set for is over.
        left_ms = self._muting.end(now_ms=max(due_ms, int(now_ms)))
        if left_ms:
            self._go_on(lambda now_us: self.machine.let_one_pass(left_ms, now_us))
        else:
            self._resume(MUTED)

    # ------------------------------------------------------------------ the broker's end

    def _write_when_dialled(self, data: bytes | bytearray) -> None:
        if self._before_dialled is not None:
            self._before_dialled.append(data)
            return
        self._before_dialled = [data]
        self._hold(_DIALLING)
        self.gateway.spawn(self._dial())

    async def _dial(self) -> None:
        try:
            upstream = await self.gateway.dial(self)
        except Exception:  # the trouble of one connection must not become all others'
            log.exception("connection %d from %s", self.machine.number, self.peer)
            upstream = None
        if upstream is None:
            self.close("")  # the gateway has said why
            return
        if self.closing:
            upstream.leave()
            return
        self.upstream = upstream
        waiting, self._before_dialled = self._before_dialled or [], None
        for data in waiting:
            upstream.write(data)
        self._release(_DIALLING)
        self._pass_eof()

    def _pass_eof(self) -> None:
        if self._eof and self.upstream is not None and not self.machine.stall:
            self.upstream.write_eof()

    # ------------------------------------------------------------------ reading or not

    def upstream_full(self, *, full: bool) -> None:
        """The broker reads slowly, or has caught up."""
        if full:
            self._hold(_UPSTREAM_FULL)
        else:
            self._release(_UPSTREAM_FULL)

    def _hold(self, reason: int) -> None:
        if not self._held and not self.transport.is_closing():
            self.transport.pause_reading()
        self._held |= reason

    def _release(self, reason: int) -> None:
        if not self._held & reason:
            return
        self._held &= ~reason
        if not self._held and not self.transport.is_closing():
            self.transport.resume_reading()

    def drain(self) -> None:
        """Take no further request; the one that is half here and the answers still due go on."""
        self.machine.stall |= DRAINING
        if self.machine.holds_reading:
            self._hold(_STALLED)

    def finish(self) -> None:
        """Close a connection on which nothing is due, without losing answers on their way.

        A socket closed with unread bytes in it resets the connection, and the client may not have
        read its last answers yet: say that no more comes, and read past what still does.
        """
        if self.closing:
            return
        self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self.upstream is not None:
            self.upstream.leave()
        self._linger = self.gateway.loop.call_later(_GOODBYE_S, self.transport.abort)
        self.transport.set_protocol(_Unheard(self))
        self.transport.write_eof()
        if self._held:
            self.transport.resume_reading()

    @property
    def waits_for_client(self) -> bool:
        """True while it is the client's turn: a request has begun and not ended, or none has gone on."""
        return not self._held & ~_STALLED and (self.machine.incomplete or not self.has_asked)

    @property
    def has_asked(self) -> bool:
        """True once a request has been sent on, or is waiting to be."""
        return self.upstream is not None or self._before_dialled is not None

    @property
    def can_finish(self) -> bool:
        """True when nothing is due and the client has been sent all there is."""
        return self.machine.idle and not self.transport.get_write_buffer_size()

    def close(self, reason: str, *, level: int = logging.WARNING) -> None:
        """Close; what is already written still reaches the client. An empty reason was logged before."""
        if self.closing:
            return
        self.closing = True
        if reason:
            log.log(
                level, "connection %d from %s closed: %s", self.machine.number, self.peer, reason
            )
        if self._timer is not None:
            self._timer.cancel()
        if self.upstream is not None:
            self.upstream.leave()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._linger = self.gateway.loop.call_later(_LINGER_S, self.transport.abort)


class _Unheard(asyncio.Protocol):
    """Reads past what a client still sends while it learns that no more answers come."""

    __slots__ = ("_client",)

    def __init__(self, client: ClientSide) -> None:
        self._client = client

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed, or has not in time."""
        self._client.connection_lost(exc)


class UpstreamSide(asyncio.Protocol):
    """The broker's end of one client's connection."""

    __slots__ = ("_client", "_linger", "_machine", "_paused", "transport", "write")

    transport: asyncio.Transport

    def __init__(self, client: ClientSide) -> None:
        self._client = client
        self._machine = client.machine
        self._paused = False
        self._linger: asyncio.TimerHandle | None = None
        self.write: Callable[[bytes | bytearray], None] = _not_connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker has accepted."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._client.gateway.limits.write_buffer_bytes)
        self.write = self.transport.write

    def data_received(self, data: bytes) -> None:
        """The hot path, broker to client."""
        client = self._client
        if client.closing:
            return
        machine = self._machine
        try:
            out = machine.from_upstream(data, time_ns() // 1000)
        except ProtocolError as error:
            client.close(f"an answer was not forwarded: {error}", level=logging.ERROR)
            return
        if out:
            client.transport.write(out)
        if machine.commands:
            client.perform()
        if machine.stall and machine.holds_reading:
            client._hold(_STALLED)  # noqa: SLF001  (two ends of one connection, one file)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker has closed, or died: the client reconnects and sends again what was not answered."""
        if self._linger is not None:
            self._linger.cancel()
        self._machine.upstream_gone()
        client = self._client
        if client.closing:
            return
        due = client.machine.in_flight_count
        client.gateway.upstream_lost(client, exc, due)
        client.close("")

    def pause_writing(self) -> None:
        """The broker reads slowly."""
        self._client.upstream_full(full=True)

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self._client.upstream_full(full=False)

    def pause(self) -> None:
        """The client reads slowly: leave the broker's bytes in its socket."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """The client has caught up."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def write_eof(self) -> None:
        """Pass on that the client sends no more."""
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()

    def leave(self) -> None:
        """Close once what was forwarded has been written: an acks=0 record is still on its way.

        In the middle of a frame the broker closes first: it has taken memory for all of the frame,
        and only its own end of the connection says that it has let go.
        """
        if self.transport.is_closing() or self._linger is not None:
            return
        loop = self._client.gateway.loop
        if self._machine.is_inside_frame:
            self._linger = loop.call_later(_LINGER_S, self.transport.abort)
            self.resume()
            self.write_eof()
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._linger = loop.call_later(_LINGER_S, self.transport.abort)


def _not_connected(_data: bytes | bytearray) -> None:
    msg = "written before the broker had accepted"
    raise AssertionError(msg)
