"""Performs what the machine of one connection says, on the two transports that it is between."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import cast

from kvota.engine import Question
from kvota.gateway.closing import (
    close_when_written,
    half_close,
    has_gone,
    leave_upstream,
    say_goodbye,
)
from kvota.gateway.dialling import Destination
from kvota.gateway.means import Means
from kvota.gateway.questions import Questions
from kvota.gateway.request_time import charge_time_or_not, took
from kvota.gateway.side import BrokerSide, Side, written_nowhere
from kvota.model.address import Address
from kvota.model.errors import ProtocolError
from kvota.session.commands import Do
from kvota.session.connection import Connection
from kvota.session.outside import Errand
from kvota.session.pausing import Pausing, Reason
from kvota.wire.address_rewrite import AddressOf

log = logging.getLogger(__name__)

_ASKED = int(Reason.DIALLING | Reason.ASKING)


class Driver:
    """One relayed connection; its two sides call it, and each step of the machine goes through ``look``.

    Attributes:
        means: the gateway's parts.
        number: unique within the gateway's run.
        machine: what is driven.
        client: the client's side.
        upstream: the broker's side, once it has accepted.
        host: the client's address.
        peer: the same with its port, for the log.
        destination: which broker.
        closing: true once the connection has been given up; nothing of the machine is performed then.
        ended_by: who has ended it, or will: one word for those who count.
        write_client: sends bytes to the client.
        write_upstream: sends bytes to the broker; before it is there, keeps them for it.
    """

    __slots__ = (
        "_eof",
        "_questions",
        "_timer",
        "client",
        "closing",
        "destination",
        "ended_by",
        "host",
        "machine",
        "means",
        "number",
        "peer",
        "upstream",
        "write_client",
        "write_upstream",
    )

    def __init__(
        self,
        means: Means,
        client: Side,
        destination: Destination,
        *,
        node_id: int,
        address_of: AddressOf,
        come_from: Address | None = None,
    ) -> None:
        self.means = means
        self._eof = False
        self._timer: asyncio.TimerHandle | None = None
        self._questions = Questions(means)
        self.client = client
        self.upstream: BrokerSide | None = None
        self.destination = destination
        self.closing = False
        self.ended_by = "client"
        self.number = next(means.numbers)
        self.write_client: Callable[[bytes | bytearray], None] = client.transport.write
        self.write_upstream: Callable[[bytes | bytearray], None] = written_nowhere
        address = come_from or client.transport.get_extra_info("peername")
        self.host: str = address[0] if address else "?"
        self.peer = f"{self.host}:{address[1]}" if address else "?"
        self.machine = Connection(
            means.shared,
            Pausing(cap_ms=means.shared.settings.mute_ms_max),
            number=self.number,
            dialled=destination.address,
            node_id=node_id,
            client_host=self.host,
            wake=self._wake,
            address_of=address_of,
        )
        charge_time_or_not(self)

    # ------------------------------------------------------------------ after each step

    def look(self) -> None:
        """Carry out the machine's commands; then keep its one timer, and read on or not, as it says.

        Due after every step that leaves a command or a reason to pause.
        """
        machine = self.machine
        commands = machine.commands
        while commands and not self.closing:
            self._perform(*commands.pop(0))  # which may add others
        if self.closing:
            return
        if machine.pausing.deadline_changed:
            self._keep_timer()
        if machine.pauses_reading:
            self.client.pause()
        else:
            self.client.resume()
        if self._eof:
            self._pass_eof()
        self.means.backlog.look(self)

    def _perform(self, code: int, argument: object) -> None:
        match code:
            case Do.SEND_CLIENT:
                self.write_client(cast("bytes", argument))
            case Do.SEND_UPSTREAM:
                self.write_upstream(cast("bytes", argument))
            case Do.RESUME:
                self._step(partial(self.machine.resume, cast("int", argument)))
            case Do.ASK | Do.ERRAND | Do.FIND_NODE:
                self._ask_outside(code, argument)
            case Do.STEP | Do.YIELD | Do.BREATHE:
                self._give_way(code, argument)
            case Do.READ_UPSTREAM:
                self._read_upstream()
            case Do.CLOSE:
                self.close(cast("str", argument), by="waited")
            case Do.WARN:
                self.means.journal.warn(self.number, self.peer, argument)
            case _:
                msg = f"unknown command {code}"
                raise AssertionError(msg)

    def pause(self, reason: int) -> None:
        """A reason to leave the client's bytes in its socket; it may come in the middle of a step."""
        self.machine.pausing.reasons |= reason
        if not self.closing:
            self.client.pause()

    def resume(self, reason: int) -> None:
        """A reason to pause is over."""
        self._go_on(partial(self.machine.resume, reason))

    def look_again(self) -> None:
        """Counters have changed: a running mute may end earlier, or later."""
        if not self.closing:
            charge_time_or_not(self)
            self.machine.look_again(time_ns() // 1000)
            self.look()

    def _go_on(self, step: Callable[[int], bytes | bytearray | None]) -> None:
        if self.closing:
            return
        began_ns = time_ns()
        self._step(step)
        self.look()
        took(self, began_ns)

    def _step(self, step: Callable[[int], bytes | bytearray | None]) -> None:
        """Let the machine go on; what it had buffered and now lets through goes up."""
        try:
            out = step(time_ns() // 1000)
        except ProtocolError as error:
            self.close_for(error)
            return
        if out:
            self.write_upstream(out)

    # ------------------------------------------------------------------ what is waited for

    def _keep_timer(self) -> None:
        loop = self.means.loop
        deadline_ms = self.machine.next_deadline_ms(int(loop.time() * 1000))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer = loop.call_at(deadline_ms / 1000, self._deadline_passed, deadline_ms)

    def _deadline_passed(self, deadline_ms: int) -> None:
        self._timer = None
        monotonic_ms = self.means.loop.time() * 1000
        if self.close_if_gone():
            return
        if self.machine.pausing.reasons & Reason.MUTED:
            self.means.counts.mute_lateness.add((monotonic_ms - deadline_ms) / 1000)
        self._go_on(partial(self.machine.deadline_passed, int(monotonic_ms)))

    def _wake(self) -> None:
        """The budget has room again, or a line has moved; called in the middle of another's step."""
        self.means.loop.call_soon(self._woken)

    def _woken(self) -> None:
        if self.closing or self.close_if_gone():
            self.machine.pass_room_on()
        else:
            self._go_on(self.machine.woken)

    def _ask_outside(self, code: int, argument: object) -> None:
        """Ask for what the machine cannot know; the result goes to it."""
        questions, machine = self._questions, self.machine
        if code == Do.ASK:
            token, question = cast("tuple[int, Question]", argument)
            questions.ask(question, partial(self._tell, machine.resolved, token))
        elif code == Do.ERRAND:
            questions.run(cast("Errand", argument), partial(self._tell, machine.told))
        else:
            assert self.upstream is not None, "it has answered"
            address = self.upstream.transport.get_extra_info("peername")
            if address is not None:  # else it has gone since; its end closes the connection
                questions.find_node(address[:2], self._located)

    def _tell(self, step: Callable[..., bytes | bytearray | None], *brought: object) -> None:
        self._go_on(partial(step, *brought))

    def _located(self, node_id: int | None) -> None:
        if node_id is None:
            host, port = self.destination.address
            reason = (
                f"{host}:{port} is no broker's own address, and nothing is counted for it: when its "
                "client connects again, a broker is dialled at the address it advertises"
            )
            self.close(reason, level=logging.INFO, by="moved")
        else:
            self._go_on(partial(self.machine.located, node_id))

    # ------------------------------------------------------------------ the broker's side

    def dialled(self, upstream: BrokerSide) -> None:
        """The broker has accepted; what was kept for it has been written."""
        self.upstream = upstream
        charge_time_or_not(self)
        upstream.look()
        self.resume(Reason.DIALLING)

    def _give_way(self, code: int, argument: object) -> None:
        """Others have their turn first: before the machine or the client goes on, or the broker is read on."""
        turns = self.means.turns
        if code == Do.STEP:
            turns.join(partial(self._go_on, self.machine.step))
        elif code == Do.YIELD:
            turns.join(partial(self.resume, cast("int", argument)))
        elif self.upstream is not None:
            self.upstream.breathe()

    # ------------------------------------------------------------------ the client's side

    def client_full(self) -> None:
        """The client reads slowly: read neither the broker nor what the client asks for on top."""
        self.pause(Reason.CLIENT_FULL)
        if not self.closing:
            self.machine.whole_answer.stay_unread(self.client.transport.get_write_buffer_size())
        self._read_upstream()

    def client_caught_up(self) -> None:
        """The client has read most of what it was sent."""
        self.machine.whole_answer.has_been_read()
        self.resume(Reason.CLIENT_FULL)
        self._read_upstream()

    def _read_upstream(self) -> None:
        if self.upstream is not None:
            self.upstream.look()

    def client_sends_no_more(self) -> bool:
        """True when answers to what it has sent are still to come, and the connection stays open for them."""
        if self.closing or not self.has_asked:
            return False
        self._eof = True
        self._pass_eof()
        return True

    def client_lost(self) -> None:
        """The client is gone (or was closed by us)."""
        if not self.closing:
            self._give_up()
        if self.upstream is not None and self.ended_by == "client":
            self.means.backlog.leave(self.upstream)  # else what was taken has to arrive
        if self.upstream is None:
            self.machine.upstream_gone()
        # Cycles would keep all this until the collector's next full run, thousands of connections later.
        self.upstream = None
        self.write_client = self.write_upstream = written_nowhere
        del self.client

    @property
    def client_has_ended(self) -> bool:
        """True once the client has closed in order, and the broker, too, has been told of it."""
        return self._eof and not self.machine.pausing.reasons

    def _pass_eof(self) -> None:
        """Tell the broker once nothing pauses: what the client has sent has then gone up."""
        if self.upstream is not None and not self.machine.pausing.reasons:
            half_close(self.upstream)

    # ------------------------------------------------------------------ the end

    def drain(self) -> None:
        """Take no further request; the one that is half here and the answers still due go on.

        One that waits in line is neither charged nor forwarded: its client sends it again, elsewhere.
        """
        if self.machine.is_in_line:
            self.close("", by="drained")
            return
        self.take_no_more(by="drained")

    def take_no_more(self, *, by: str) -> None:
        """Have it end when it has all that is due to it: ``finish`` it as soon as it ``can_finish``."""
        if not self.closing:
            self.ended_by = by
            self.machine.pausing.reasons |= Reason.DRAINING
            self.look()

    @property
    def can_finish(self) -> bool:
        """True when nothing is due, or waits for its broker, and the client has been sent all there is.

        A Fetch that waits for records is nothing to wait for; a ShareFetch is: its records may be locked
        already, and its acknowledgements applied. A record with acks = 0 is due no more once
        it waits for a broker that is being dialled.
        """
        if self.upstream is None and self.machine.pausing.reasons & Reason.DIALLING:
            return False
        if not (self.machine.idle or self.machine.only_awaits_records):
            return False
        return not self.client.transport.get_write_buffer_size()

    @property
    def is_unread(self) -> bool:
        """True while what the client sends stays in its socket, and its close, too."""
        return self.client.paused and not self.closing

    @property
    def has_been_left(self) -> bool:
        """True once the client has closed in order, and nothing but records is due to it.

        A broker that waits for records does not see the close. Only a client that has closed one direction alone
        would still read them.
        """
        return self._eof and not self.closing and self.machine.only_awaits_any_records

    @property
    def has_asked(self) -> bool:
        """True once a request has been sent on, or is waiting to be."""
        return self.upstream is not None or self.machine.pausing.reasons & _ASKED != 0

    def finish(self, *, by: str = "") -> None:
        """Close a connection on which nothing is due, without losing answers on their way.

        Without ``by`` it is ended by whom it has been told that it is.
        """
        if not self.closing:
            self.ended_by = by or self.ended_by
            self._give_up()
            say_goodbye(self.client, self.means.loop)

    def close_for(self, error: ProtocolError) -> None:
        """Close because of what the client has sent."""
        self.means.counts.bad_frames[error.kind] += 1
        self.close(str(error), by="bad_frame")

    def close(self, reason: str, *, by: str, level: int = logging.WARNING) -> None:
        """Close; what is already written still reaches the client. An empty reason was logged before."""
        if self.closing:
            return
        self.ended_by = by
        if reason:
            self.means.journal.closed(self.number, self.peer, reason, level)
        self._give_up()
        close_when_written(self.client, self.means.loop)

    def abort(self) -> None:
        """Close at once, whatever is still to be written."""
        self._give_up()
        self.client.transport.abort()

    def close_if_gone(self) -> bool:
        """Close where a request waits whose client does not wait for it any more."""
        if self.closing or not self.machine.waits_for_an_answer or not has_gone(self.client):
            return False
        self.close(
            "its client has gone while a request waited",
            level=logging.DEBUG,
            by="client",
        )
        return True

    def _give_up(self) -> None:
        """Nothing is taken any more: what others wait for is free now, not when the client has read the rest."""
        self.closing = True
        self._drop_waits()
        if self.upstream is not None:
            self._leave_upstream(self.upstream)
        try:
            self.machine.close()
            self.machine.give_back_missing(time_ns() // 1000)
        except Exception:  # a fault in the accounts must not keep its place and its client
            log.exception("connection %d from %s", self.number, self.peer)
        self.means.backlog.look(self)

    def _leave_upstream(self, upstream: Side) -> None:
        leave_upstream(upstream, self.means.loop, is_inside_frame=self.machine.is_inside_frame)

    def _drop_waits(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._questions.drop()
