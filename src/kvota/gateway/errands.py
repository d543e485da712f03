"""Runs the errands of conversations: names are looked up, alterations stored."""

import asyncio
import re
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from kvota.gateway.own_addresses import literal_ip
from kvota.session.outside import (
    AlterSettings,
    Errand,
    FindTokenOwner,
    LookUpHosts,
    Owner,
    Refusal,
)
from kvota.store.quota_store import QuotaStore

AlterTheSettings = Callable[[AlterSettings], Coroutine[None, None, Refusal | None]]
FindOwner = Callable[[str], Coroutine[None, None, Owner]]

# Of one errand: an administrator waits for it.
_LOOK_UP_S = 10.0
# Names of one errand that are asked for; who writes that many means addresses.
NAMES_MAX = 200
# What Java takes for a host's name. The C library reads more: digits of other scripts, zones, what stands before a NUL,
# and numbers that are hexadecimal or octal (0x7f.1, 010.0.0.1).
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OTHER_NUMBERS = re.compile(r"(?=(?:.*\.)?0[xX0-9])(?:0[xX][0-9a-fA-F]*|[0-9]+|\.)+")


class Errands:
    """The errands of all connections of a gateway.

    Args:
        loop: where results are wanted.
        store: of the configured quotas.
        alter_settings: alters the gateway's own settings, where it has any to alter.

    Attributes:
        find_owner: finds whose a delegation token is, where that can be asked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: QuotaStore,
        alter_settings: AlterTheSettings | None = None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._alter_settings = alter_settings
        self.find_owner: FindOwner | None = None
        self._has_stopped = False
        self._names = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kvota-names")

    def run(self, errand: Errand) -> "asyncio.Future[object]":
        """Begin an errand; cancelling what is returned does not undo it."""
        result: asyncio.Future[object] = self._loop.create_future()
        if isinstance(errand, LookUpHosts):
            looking = self._loop.create_task(self._unknown(errand.names))
            looking.add_done_callback(lambda task: _tell(result, task.result()))
        elif isinstance(errand, AlterSettings):
            assert self._alter_settings is not None, "there are settings to alter"
            altering = self._loop.create_task(self._alter_settings(errand))
            altering.add_done_callback(lambda task: _tell(result, task.result()))
        elif isinstance(errand, FindTokenOwner):
            assert self.find_owner is not None, "it can be asked"
            finding = self._loop.create_task(self.find_owner(errand.token_id))
            finding.add_done_callback(lambda task: _tell(result, task.result()))
        else:
            self._store.alter(errand, lambda refusal: _tell(result, refusal))
        return result

    async def addresses_of(self, names: Iterable[str]) -> Mapping[str, str]:
        """The first address of each name that has one; too late is none, and so is all when the gateway ends."""
        to_ask = [] if self._has_stopped else sorted(names)
        asked = [self._loop.run_in_executor(self._names, _address_of, name) for name in to_ask]
        if asked:
            await asyncio.wait(asked, timeout=_LOOK_UP_S)
        return {
            name: address
            for name, answer in zip(to_ask, asked, strict=True)
            if answer.done() and not answer.cancelled() and (address := answer.result())
        }

    def stop(self) -> None:
        """Take no more; what is being looked up is nobody's business any more."""
        self._has_stopped = True
        self._names.shutdown(wait=False, cancel_futures=True)

    async def _unknown(self, names: frozenset[str]) -> frozenset[str]:
        """Which of the names are neither addresses nor known to anybody; too late is unknown, too."""
        to_ask = sorted(name for name in names if literal_ip(name) is None)
        known = await self.addresses_of(to_ask[:NAMES_MAX])
        return frozenset(name for name in to_ask if name not in known)


def _tell(result: "asyncio.Future[object]", what: Refusal | Owner | frozenset[str] | None) -> None:
    if not result.done():  # whose connection has ended was cancelled
        result.set_result(what)


def _address_of(name: str) -> str | None:
    if not _HOST_NAME.fullmatch(name) or _OTHER_NUMBERS.fullmatch(name):
        return None
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: a name that cannot be asked for
        return None
    return str(found[0][4][0])
