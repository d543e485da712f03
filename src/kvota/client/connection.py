"""One connection to one broker: versions agreed, logged in, requests in flight."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Self

from kvota.client.broker_error import BrokerError, UnsupportedVersionError
from kvota.client.login import Login
from kvota.client.messages import (
    Answer,
    Content,
    Fields,
    api_name,
    decode,
    encode,
    known_versions,
)
from kvota.client.security import NO_LOGIN, Security
from kvota.model.address import Address, address_text
from kvota.model.errors import KvotaError, ProtocolError, UnreachableError
from kvota.tls.client_tls import Tls
from kvota.tls.tls_error import (
    PLAINTEXT_DOUBT,
    TLS_ANSWER_DOUBT,
    TLS_DOUBT,
    TlsError,
    is_tls,
    tls_error,
)
from kvota.wire.apis import API_VERSIONS
from kvota.wire.error_code import ErrorCode

# Of the time that a login lasts so much is let pass before the next one, as Kafka's clients do (85 to 95 %).
_LOGIN_AGAIN_AT = 0.85
# So brokers do with whoever asks before a login: they close, and say nothing.
_LOGIN_DOUBT = " before it has answered anything: maybe it wants a login, and none is set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Bounds of one client.

    Attributes:
        connect_s: time to connect, agree on TLS and log in.
        request_s: time for one answer.
        answer_bytes_max: the largest answer that is taken.
        in_flight_max: requests of one connection without an answer; further ones wait.
    """

    connect_s: float = 10.0
    request_s: float = 30.0
    answer_bytes_max: int = 64 * 2**20
    in_flight_max: int = 100


class BrokerConnection:
    """Requests and answers of one broker; any number of tasks may ask at once.

    Make one by ``open``; once it has failed it stays closed. A request that was sent and is not answered in time
    closes it, for brokers answer in order: what was asked behind it would wait in vain, too.
    """

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        client_id: str,
        limits: ClientLimits,
        security: Security = NO_LOGIN,
    ) -> None:
        self.address = address
        self._tls = security.tls
        self._login = Login(security, address, self._ask_at_once)
        self._logging_in = asyncio.Lock()
        self._login_due_s: float | None = None  # None: it lasts
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._limits = limits
        self._correlations = count(1)
        self._room = asyncio.Semaphore(limits.in_flight_max)
        # By correlation id: brokers answer in order, but a task that has given up leaves its answer to come.
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._failed: KvotaError | None = None
        # Why it may have closed: until it has answered something else than its versions.
        self._doubt = PLAINTEXT_DOUBT if self._tls is None else TLS_ANSWER_DOUBT
        self._versions: dict[int, tuple[int, int]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        security: Security = NO_LOGIN,
        client_id: str = "kvota",
        limits: ClientLimits | None = None,
    ) -> Self:
        """Connect, ask for the broker's versions, log in.

        Raises:
            UnreachableError: nobody answers there in time.
            BrokerError: the login is refused.
            TlsError: one side does not trust the other's certificate, or only one speaks TLS.
            UsageError: a certificate, a key or its password cannot be used.
            ProtocolError: what answers is no broker.
        """
        limits = limits or ClientLimits()
        connection = None
        try:
            async with asyncio.timeout(limits.connect_s):
                reader, writer = await _streams(address, security.tls)
                connection = cls(
                    address,
                    reader,
                    writer,
                    client_id=client_id,
                    limits=limits,
                    security=security,
                )
                await connection._agree_on_versions()
                connection._doubt = _LOGIN_DOUBT if security.mechanism is None else ""
                if security.mechanism is not None:
                    await connection._log_in()
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, TimeoutError):
                msg = f"{address_text(*address)} has not let us in within {limits.connect_s:g} s"
                raise UnreachableError(msg) from error
            if isinstance(error, OSError | ValueError):  # ValueError: a name that cannot be encoded
                msg = f"{address_text(*address)} cannot be reached: {_reason(error)}"
                raise UnreachableError(msg) from error
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        """True once nothing can be asked any more."""
        return self._failed is not None

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """What the broker offers, by API key: lowest and highest version."""
        return self._versions

    def version_of(self, key: int, *, version_max: int | None = None) -> int:
        """Return the highest version of an API that both sides speak.

        Args:
            key: of the API.
            version_max: no higher than this.

        Raises:
            UnsupportedVersionError: there is none.
        """
        ours, theirs = known_versions(key), self._versions.get(key, (0, -1))
        if version_max is not None:
            ours = ours[0], min(ours[1], version_max)
        version = min(ours[1], theirs[1])
        if version < max(ours[0], theirs[0]):
            offered = f"offers {theirs[0]}-{theirs[1]}" if theirs[1] >= 0 else "does not offer it"
            msg = f"{address_text(*self.address)} {offered}: {api_name(key)} is spoken here in {ours[0]}-{ours[1]}"
            raise UnsupportedVersionError(msg)
        return version

    async def ask(
        self,
        key: int,
        content: Content,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send one request and return its answer.

        Args:
            key: of the API.
            content: values by the schema's field names, or encoded already (see ``client.messages``).
            version: else the highest that both sides speak.
            timeout_s: else the limits' ``request_s``.

        Raises:
            UnreachableError: the connection has ended, or no answer came in time, which ends it; whether the
                request was carried out is not known.
            BrokerError: the time of the login was over, and another one is refused, which ends the connection.
            ProtocolError: the answer cannot be read.
            UsageError: the request cannot be said in a version that both speak.
        """
        if version is None:
            version = self.version_of(key)
        frame = await self.ask_frame(key, content, version=version, timeout_s=timeout_s)
        return decode(key, version, frame)

    async def ask_frame(
        self, key: int, content: Content, *, version: int, timeout_s: float | None = None
    ) -> bytes:
        """The same for an answer that is read elsewhere: its bytes, without the size before them."""
        correlation = next(self._correlations) & 0x7FFF_FFFF
        frame = encode(key, version, content, correlation=correlation, client_id=self._client_id)
        seconds = self._limits.request_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(seconds), self._room:
                await self._stay_logged_in()
                answer = await self._answer_to(correlation, frame)
        except TimeoutError as error:
            msg = f"{address_text(*self.address)} has not answered {api_name(key)} in {seconds:g} s"
            # Else it has waited for room, behind others that have times of their own.
            if correlation in self._asked:
                self._fail(UnreachableError(f"{msg}, so the connection was closed"))
            raise UnreachableError(msg) from error
        self._doubt = ""
        return answer

    async def close(self) -> None:
        """Close; whoever still waits for an answer gets an ``UnreachableError``."""
        self._fail(UnreachableError(f"the connection to {address_text(*self.address)} was closed"))
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        with suppress(OSError):  # it is closed all the same
            await self._writer.wait_closed()

    # ------------------------------------------------------------------ bytes

    async def _answer_to(self, correlation: int, frame: bytes) -> bytes:
        if self._failed is not None:
            raise self._failed
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[correlation] = answer
        self._writer.write(frame)
        try:
            await self._writer.drain()
        except OSError as error:
            self._fail(self._lost(error))
        return await answer

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(4)
                size = int.from_bytes(head, "big", signed=True)
                if self._tls is None and not self._versions and is_tls(head):
                    msg = (
                        f"{address_text(*self.address)} speaks TLS: set security.protocol to SSL or SASL_SSL, "
                        "or name the port of a listener without it"
                    )
                    self._fail(TlsError(msg))
                    return
                if not 4 <= size <= self._limits.answer_bytes_max:
                    msg = (
                        f"{address_text(*self.address)} announces an answer of {size} bytes; at most "
                        f"{self._limits.answer_bytes_max} are taken"
                    )
                    self._fail(ProtocolError(msg))
                    return
                frame = await self._reader.readexactly(size)
                answer = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True), None)
                if answer is None:
                    msg = f"{address_text(*self.address)} answers what nobody has asked"
                    self._fail(ProtocolError(msg))
                    return
                if not answer.done():
                    answer.set_result(frame)
        except (OSError, EOFError) as error:
            self._fail(self._lost(error))

    def _lost(self, error: OSError | EOFError) -> KvotaError:
        # With TLS 1.3 a broker refuses our certificate when the handshake is over for us.
        if isinstance(error, ssl.SSLError) and self._tls is not None and not self._versions:
            return tls_error(error, self.address, self._tls)
        why = f"it has closed{self._doubt}" if isinstance(error, EOFError) else _reason(error)
        return UnreachableError(f"the connection to {address_text(*self.address)} is lost: {why}")

    def _fail(self, error: KvotaError) -> None:
        if self._failed is None:
            self._failed = error
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(self._failed)
                answer.exception()  # seen: its task may have been cancelled meanwhile
        # A broker that takes nothing would keep a mere ``close`` waiting for what is still to be written.
        self._writer.transport.abort()

    # ------------------------------------------------------------------ the opening

    async def _agree_on_versions(self) -> None:
        """Ask in the newest version; a broker that does not know it answers in v0, with error 35."""
        _, newest = known_versions(API_VERSIONS)
        for version in dict.fromkeys((newest, 3, 0)):
            content: Fields = {}
            if version >= 3:
                content = {"client_software_name": "kvota", "client_software_version": "0"}
            correlation = next(self._correlations)
            frame = encode(
                API_VERSIONS, version, content, correlation=correlation, client_id=self._client_id
            )
            answer = await self._answer_to(correlation, frame)
            if int.from_bytes(answer[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
                continue
            found = decode(API_VERSIONS, version, answer)
            code = int(found.error_code)
            if code:
                what = f"{address_text(*self.address)}: api_versions"
                raise BrokerError(what, code)
            self._versions = {
                int(api.api_key): (int(api.min_version), int(api.max_version))
                for api in found.api_keys
            }
            return
        msg = f"{address_text(*self.address)} speaks no version of ApiVersions that is known here"
        raise ProtocolError(msg)

    # ------------------------------------------------------------------ the login

    async def _stay_logged_in(self) -> None:
        """Log in again before the broker's time for it is over (KIP-368); it takes nothing else meanwhile."""
        while self._logging_in.locked() or self._is_login_due:
            async with self._logging_in:
                if self._is_login_due:
                    await self._log_in()

    @property
    def _is_login_due(self) -> bool:
        due_s = self._login_due_s
        return due_s is not None and asyncio.get_running_loop().time() >= due_s

    async def _log_in(self) -> None:
        try:
            lasts_ms = await self._login.run()
        except BaseException as error:
            why = error if isinstance(error, KvotaError) else None
            at = address_text(*self.address)
            self._fail(why or UnreachableError(f"the connection to {at} ended in a login"))
            raise
        now_s = asyncio.get_running_loop().time()
        self._login_due_s = now_s + lasts_ms / 1000 * _LOGIN_AGAIN_AT if lasts_ms else None

    async def _ask_at_once(self, key: int, content: Fields, version: int | None) -> Answer:
        if version is None:
            version = self.version_of(key)
        correlation = next(self._correlations) & 0x7FFF_FFFF
        frame = encode(key, version, content, correlation=correlation, client_id=self._client_id)
        answer = decode(key, version, await self._answer_to(correlation, frame))
        self._doubt = ""
        return answer


async def _streams(
    address: Address, tls: Tls | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and agree on TLS.

    Raises:
        TlsError: one side does not trust the other's certificate.
        UnreachableError: the handshake was broken off.
        OSError: nobody answers there.
    """
    if tls is None:
        return await asyncio.open_connection(*address)
    context = await asyncio.to_thread(tls.context)
    try:
        return await asyncio.open_connection(*address, ssl=context)
    except (
        ssl.SSLEOFError,
        ConnectionResetError,
        ConnectionAbortedError,
        BrokenPipeError,
    ) as error:
        msg = f"{address_text(*address)} has closed{TLS_DOUBT}"
        raise UnreachableError(msg) from error
    except ssl.SSLError as error:
        raise tls_error(error, address, tls) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):  # its number is OpenSSL's, not the system's
        return str(error.reason or error).replace("_", " ").lower()
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
