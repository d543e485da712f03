"""Tells the service manager how the gateway is, as sd_notify(3) has it: ``Type=notify`` and ``WatchdogSec`` of systemd.

Datagrams to the socket that ``NOTIFY_SOCKET`` names; without that variable nobody has asked, and nothing is sent.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger("kvota.gateway")

# The manager is told so often in the time after which it takes silence for a hang.
_TELLS = 2


class ServiceManager:
    """Who has started this process and wants to know how it is.

    Args:
        environment: of the process; ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` count.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # of Linux' abstract names
            self._address = f"\0{self._address[1:]}"
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        is_for_us = pid in {"", str(os.getpid())}
        self._watchdog_s = int(usec) / 1e6 if usec.isdecimal() and is_for_us else 0.0

    def ready(self) -> None:
        """Clients are served, or are again after ``reloading``."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Files are read again; ``ready`` comes behind it."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """No new request is taken."""
        self._tell("STOPPING=1")

    async def watch(self) -> None:
        """Say that the loop turns, in time for the watchdog, until cancelled; ends at once where there is none."""
        while self._address and self._watchdog_s > 0:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / _TELLS)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            what, _, _ = state.partition("\n")
            log.warning("the service manager cannot be told %s: %s", what, error.strerror)
