"""Uvicorn's HTTP connection, with an end to each: in number, in time, in size."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
# For the head of a request, and again for its answer: a scrape of the largest kind takes some 100 ms.
REQUEST_S = 10.0
KEEP_ALIVE_S = 75
# Of a request's line and headers; there is no body.
HEAD_BYTES_MAX = 16_384


@dataclass(slots=True)
class Doorkeeper:
    """Counts connections, and says who has to leave when there are too many.

    Attributes:
        closed: connections that were closed here, by reason.
        open: connections, the oldest first.
    """

    closed: Counter[str] = field(default_factory=Counter)
    open: "dict[GuardedProtocol, None]" = field(default_factory=dict)

    def came(self, connection: "GuardedProtocol") -> None:
        """One more; the oldest one that is not being answered makes room for it."""
        self.open[connection] = None
        if len(self.open) <= CONNECTIONS_MAX:
            return
        idle = (one for one in self.open if not one.is_answered)
        self.end(next(idle, connection), "crowded")

    def end(self, connection: "GuardedProtocol", reason: str) -> None:
        """Close one at once."""
        self.open.pop(connection, None)
        self.closed[reason] += 1
        connection.transport.abort()

    def left(self, connection: "GuardedProtocol") -> None:
        """One is gone."""
        self.open.pop(connection, None)


class GuardedProtocol(H11Protocol):
    """One connection; it is closed where its next request, or the reading of its answer, takes too long."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        keeper: Doorkeeper,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._keeper = keeper
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_answered(self) -> bool:
        """True while a request has come and not all of its answer has gone."""
        return not getattr(self.cycle, "response_complete", True)  # there is no cycle at first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        super().connection_made(transport)
        self._set_deadline()
        self._keeper.came(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes; they do not move the deadline: one that drips is late, too."""
        if self._deadline is None:
            self._set_deadline()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """An answer is written; what of it the client has not read has its own time."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size() == 0:
            self._drop_deadline()
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._drop_deadline()
        self._keeper.left(self)
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(REQUEST_S, self._is_late)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_late(self) -> None:
        self._deadline = None
        waits = not self.is_answered and self.transport.get_write_buffer_size() == 0
        if waits and self.timeout_keep_alive_task is not None:
            return  # all was read; the next request has its own time
        self._keeper.end(self, "late")
