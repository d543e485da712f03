"""The broker's side of one client's connection."""

import asyncio
import logging
from time import time_ns
from typing import cast

from kvota.gateway.driver import Driver
from kvota.gateway.side import Side
from kvota.model.errors import ProtocolError
from kvota.session.pausing import Reason
from kvota.wire.addresses import UnknownNodeError

log = logging.getLogger(__name__)


class UpstreamSide(Side):
    """Hands what the broker sends to the machine, and tells the driver how the broker reads."""

    __slots__ = ("_driver", "_machine", "_write_buffer_bytes")

    def __init__(self, driver: Driver, *, write_buffer_bytes: int) -> None:
        super().__init__()
        self._driver = driver
        self._machine = driver.machine
        self._write_buffer_bytes = write_buffer_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker has accepted."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._write_buffer_bytes)

    def data_received(self, data: bytes) -> None:
        """The hot path, broker to client."""
        driver = self._driver
        if driver.closing:
            return
        machine = self._machine
        try:
            out = machine.from_upstream(data, time_ns() // 1000)
        except UnknownNodeError as error:
            host, port = driver.destination.address
            level = logging.DEBUG if error.is_repeated else logging.ERROR
            told_by = f"(told by {host}:{port})"
            driver.close(f"an answer was not forwarded: {error} {told_by}", level=level)
            return
        except ProtocolError as error:
            driver.close(f"an answer was not forwarded: {error}", level=logging.ERROR)
            return
        if out:
            driver.write_client(out)
        if machine.commands or machine.pausing.reasons:
            driver.look()

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
        self._machine.upstream_gone()
        driver = self._driver
        if driver.closing:
            return
        if driver.client_has_ended and exc is None:
            driver.close("")
            return
        cause = f" ({exc})" if exc else ""
        where = (*driver.destination.address, driver.number, driver.peer, cause)
        due = self._machine.due_count
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
        driver.close("")
