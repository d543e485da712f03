"""The HTTP port, on a thread with an event loop of its own: nothing here can stall traffic."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

from uvicorn import Config, Server

from kvota.model.address import address_text
from kvota.model.errors import UnreachableError
from kvota.web.guarded_protocol import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    KEEP_ALIVE_S,
    Doorkeeper,
    GuardedProtocol,
)
from kvota.web.host_check import HostCheck
from kvota.web.pages import Pages
from kvota.web.settings import HttpSettings
from kvota.web.source import Source

log = logging.getLogger(__name__)

_STOP_S = 2.0


class HttpServer:
    """Opens the port when it is made, so that a port which is taken is found before anything runs.

    Args:
        settings: where, and for whom.

    Raises:
        UnreachableError: the port cannot be listened on; says which and why.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._socket = _listening(settings)
        self.address = address_text(*self._socket.getsockname()[:2])
        self.doorkeeper = Doorkeeper()
        self.pages: Pages
        self._server: Server
        self._is_up = Event()
        self._thread: Thread | None = None

    def start(self, make_source: Callable[["HttpServer"], Source]) -> None:
        """Serve what the source shows; it is made first, and may ask the server for its counts."""
        self.pages = Pages(make_source(self))
        check = HostCheck((self._settings.host, *self._settings.names))
        config = Config(
            self.pages.app(check),
            http=partial(GuardedProtocol, keeper=self.doorkeeper),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            backlog=2 * CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        # Garbage is counted by its answer's code, not logged once each.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server = Server(config)
        self._thread = Thread(target=self._run, name="kvota-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port; answers under way have a moment."""
        if self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except Exception:
            log.exception("the HTTP port %s has failed; traffic goes on", self.address)


def _listening(settings: HttpSettings) -> socket.socket:
    try:
        infos = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = infos[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2 * CONNECTIONS_MAX)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        where = address_text(settings.host, settings.port)
        msg = (
            f"cannot listen on {where} (HTTP): {error.strerror or error}. End what uses it, choose another "
            "http.port, or write http.enabled = false"
        )
        raise UnreachableError(msg) from error
    listening.settimeout(0)
    return listening
