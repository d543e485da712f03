"""The broker's side of one client's connection."""

import asyncio
import logging
from time import time_ns
from typing import cast

from kvota.gateway.driver import Driver
from kvota.gateway.means import Means
from kvota.gateway.request_time import took
from kvota.gateway.side import LONG_NS, TIMED_READ_BYTES, BrokerSide
from kvota.model.address import address_text
from kvota.model.errors import ProtocolError
from kvota.session.pausing import Reason
from kvota.wire.addresses import UnknownNodeError


class UpstreamSide(BrokerSide):
    """Hands what the broker sends to the machine, and tells the driver how the broker reads."""

    __slots__ = ("_counts", "_driver", "_machine", "_means")

    def __init__(self, driver: Driver, means: Means) -> None:
        super().__init__()
        self._counts = means.counts
        self._driver = driver
        self._machine = driver.machine
        self._means = means

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker has accepted."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._means.limits.write_buffer_bytes)
        self._means.backlog.came(self)

    def data_received(self, data: bytes) -> None:
        """The hot path, broker to client."""
        driver = self._driver
        if driver.closing:
            return
        machine = self._machine
        began_ns = time_ns()
        try:
            out = machine.from_upstream(data, began_ns // 1000)
        except ProtocolError as error:
            self._refuse(error)
            return
        if out:
            driver.write_client(out)
        if machine.commands or machine.pausing.reasons:
            driver.look()
        if len(data) > self.timed_bytes:
            self._took(len(data), began_ns)

    def _took(self, size: int, began_ns: int) -> None:
        """Where much has come at once and that took long, others come before more of it is read."""
        took_ns = took(self._driver, began_ns)
        if size > TIMED_READ_BYTES and took_ns > LONG_NS:
            self.pause()
            self._means.turns.join(self.look, brings_s=took_ns / 1e9)

    def _refuse(self, error: ProtocolError) -> None:
        is_unknown = isinstance(error, UnknownNodeError)
        self._counts.upstream_errors["unknown_node" if is_unknown else "bad_answer"] += 1
        is_repeated = isinstance(error, UnknownNodeError) and error.is_repeated
        level = logging.DEBUG if is_repeated else logging.ERROR
        told_by = address_text(*self._driver.destination.address)
        reason = f"an answer was not forwarded: {error} (told by {told_by})"
        self._driver.close(reason, level=level, by="bad_answer")

    def tls_failed(self, tls: asyncio.Transport, error: Exception) -> None:
        """What has come cannot be decrypted."""
        self._counts.upstream_errors["bad_answer"] += 1
        where = address_text(*self._driver.destination.address)
        self._driver.close(f"what broker {where} has sent is damaged: {error}", by="bad_answer")
        tls.abort()

    # ------------------------------------------------------------------ reading on

    def look(self) -> None:
        """Read on, or leave what comes in the socket, as machine and client have it."""
        machine = self._machine
        if machine.leaves_upstream_unread or machine.pausing.reasons & Reason.CLIENT_FULL:
            self.pause()
        else:
            self.resume()

    def breathe(self) -> None:
        """What has come is not all looked at, and goes on when others have had their turn."""
        self.pause()
        self._means.turns.join(self._read_on)

    def _read_on(self) -> None:
        driver = self._driver
        if driver.closing:
            return
        began_ns = time_ns()
        try:
            out = self._machine.read_on(began_ns // 1000)
        except ProtocolError as error:
            self._refuse(error)
            return
        if out:
            driver.write_client(out)
        driver.look()
        self.look()
        took(driver, began_ns)

    # ------------------------------------------------------------------ writing, and the end

    def pause_writing(self) -> None:
        """The broker reads slowly."""
        self._driver.pause(Reason.UPSTREAM_FULL)

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self._driver.resume(Reason.UPSTREAM_FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker has closed, or died: the client reconnects and sends again what was not answered.

        A broker also closes once it has been told that the client has: what was due then, nobody waits for.
        """
        self.forget_linger()
        self._means.backlog.forget(self)
        driver, machine, journal = self._driver, self._machine, self._means.journal
        machine.upstream_gone()
        if driver.closing:
            return
        if driver.client_has_ended and exc is None:
            driver.close("", by="client")
            return
        refusal = machine.refused_by_closing
        if refusal is not None:
            journal.warn(driver.number, driver.peer, refusal)
        elif not machine.is_refused:
            self._counts.upstream_errors["closed"] += bool(machine.due_count)
            journal.broker_closed(
                driver.destination.address,
                driver.number,
                driver.peer,
                due=machine.due_count,
                cause=f" ({exc})" if exc else "",
                needs_login=machine.needs_login,
            )
        driver.close("", by="broker")
