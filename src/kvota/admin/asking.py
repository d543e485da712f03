"""One request to the right broker, before a deadline, and what is known when there is no answer."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from kvota.client import (
    ANY,
    Answer,
    BrokerConnection,
    Cluster,
    Destination,
    Fields,
    ProtocolError,
    UnreachableError,
    UsageError,
)
from kvota.client.messages import decode
from kvota.model.address import Address, address_text
from kvota.model.errors import KvotaError
from kvota.wire.apis import name_of

_JITTER = 0.2
_MS = timedelta(milliseconds=1)


class NotSentError(KvotaError):
    """No broker has got the request."""


class NotInTimeError(NotSentError):
    """The deadline came before a broker listened."""


class AnswerLostError(KvotaError):
    """The request was sent, and what became of it is not known."""


class Deadline:
    """A moment on the event loop's clock.

    Args:
        timeout_ms: from now on.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._at_s = now_s() + timeout_ms / 1000

    @property
    def left_s(self) -> float:
        """Seconds until then, never below 0."""
        return max(0.0, self._at_s - now_s())

    def timeout(self) -> asyncio.Timeout:
        """Return what ends a block then."""
        return asyncio.timeout_at(self._at_s)

    async def sleep(self, seconds: float) -> bool:
        """Sleep, at most until then; False: it is then."""
        await asyncio.sleep(min(seconds, self.left_s))
        return self.left_s > 0


def now_s() -> float:
    """The event loop's clock."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long is waited, for what.

    Attributes:
        request_timeout_ms: for one answer.
        default_api_timeout_ms: for a whole call, all tries together.
        retry_backoff_ms: before the second try; twice as long before each further one, a fifth more or less by chance.
        retry_backoff_max_ms: not longer than this (KIP-580).
    """

    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def backoff_s(self, failures: int, chance: Random) -> float:
        """The wait after so many failures in a row, 1 at least."""
        doubled = self.retry_backoff_ms << min(failures - 1, 30)
        wait_ms = min(doubled, self.retry_backoff_max_ms)
        return wait_ms / 1000 * chance.uniform(1 - _JITTER, 1 + _JITTER)


# The request's fields, by the version that both speak and the milliseconds there are for the answer.
Content = Callable[[int, int], Fields | bytes]


class Asker:
    """Sends requests, and holds them back where a broker has said that it does not listen.

    A broker that answers with a throttle time reads nothing from that connection until it is over (KIP-219).
    What is not sent meanwhile is known not to have been carried out.
    """

    def __init__(self, cluster: Cluster, patience: Patience, chance: Random) -> None:
        self.cluster = cluster
        self.patience = patience
        self.chance = chance
        self._mute_until_s: dict[Address, float] = {}

    async def ask(
        self,
        key: int,
        content: Content,
        *,
        to: Destination,
        deadline: Deadline,
        read: Callable[[int, bytes], Answer] | None = None,
        version_max: int | None = None,
    ) -> Answer:
        """Send one request, once, and return its answer.

        Raises:
            NotSentError: no broker has got it (NotInTimeError: the deadline came first).
            AnswerLostError: a broker may have got it.
            UsageError: no version is spoken by both, it cannot be said in it, or there is no such broker.
            BrokerError: the login is refused.
        """
        connection = await self._listening(to, deadline)
        version = connection.version_of(key, version_max=version_max)
        seconds = min(self.patience.request_timeout_ms / 1000, deadline.left_s)
        try:
            fields = content(version, max(1, int(seconds * 1000)))
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            msg = f"{name_of(key)}: {error}"
            raise UsageError(msg) from error
        try:
            frame = await connection.ask_frame(key, fields, version=version, timeout_s=seconds)
            answer = decode(key, version, frame) if read is None else read(version, frame)
        except (UnreachableError, ProtocolError) as error:
            raise AnswerLostError(str(error)) from error
        throttle_ms = throttle_time_ms(answer)
        if throttle_ms:
            # Answers that were in flight together may tell waits of their own; the longest holds.
            told_s = self._mute_until_s.get(connection.address, 0.0)
            self._mute_until_s[connection.address] = max(told_s, now_s() + throttle_ms / 1000)
        return answer

    async def look_again(self, deadline: Deadline) -> None:
        """Learn which brokers there are now, and which of them is the controller; it may fail."""
        with suppress(KvotaError, TimeoutError):
            async with deadline.timeout():
                await self.cluster.metadata([], avoiding=self._mutes_s())

    async def _listening(self, to: Destination, deadline: Deadline) -> BrokerConnection:
        """An open connection to a broker that listens."""
        try:
            async with deadline.timeout():
                while True:
                    connection = await self.cluster.connection_to(to, avoiding=self._mutes_s())
                    mutes_s = self._mutes_s()
                    if connection.address not in mutes_s:
                        return connection
                    wait_s = mutes_s[connection.address]
                    await asyncio.sleep(min(mutes_s.values()) if to is ANY else wait_s)
        except UnreachableError as error:
            raise NotSentError(str(error)) from error
        except TimeoutError as error:
            whom = f"broker {to}" if isinstance(to, int) else str(to)
            msg = f"{whom} did not listen in time{self._mutes()}"
            raise NotInTimeError(msg) from error

    def _mutes_s(self) -> dict[Address, float]:
        """For how long each of those who do not listen does not."""
        now = now_s()
        return {
            address: until_s - now
            for address, until_s in self._mute_until_s.items()
            if until_s > now
        }

    def _mutes(self) -> str:
        mutes = [
            f"{address_text(*address)} does not listen for {left_s:.1f} s more"
            for address, left_s in self._mutes_s().items()
        ]
        return f" ({'; '.join(mutes)})" if mutes else ""


def throttle_time_ms(answer: Answer) -> int:
    """How long the broker does not listen to this connection."""
    throttle: timedelta = getattr(answer, "throttle_time", timedelta())
    return max(0, throttle // _MS)
