"""TLS between a client and the gateway: the gateway's own transport and OpenSSL, over pipes that cut records anywhere.

What is seen from either end is a pipe as any other. Lengths are the same in each run (signatures of Ed25519 have one, and no
tickets are sent), so a seed repeats exactly although no byte on the way does.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from random import Random
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.simulation.pipe import Pipe, Stall, nothing
from tests.simulation.timeline import Timeline, Timer

from kvota.gateway.tls_transport import TlsTransport
from kvota.gateway.turns import Turns
from kvota.tls.pem import show

# Pipes are slower than anybody who is in earnest.
_HANDSHAKE_S = 1e6
_READ_BYTES = 2**18


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, _certificate_and_key(), None, None)
    server.num_tickets = 0
    server.options |= ssl.OP_NO_TICKET
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


def _certificate_and_key() -> str:
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    begins = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins + timedelta(days=9))
        .sign(key, None)
        .public_bytes(Encoding.PEM)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (pem + certificate).decode()


class _Turns(Turns):
    """Others come first for a while that is drawn."""

    def __init__(self, timeline: Timeline, rng: Random) -> None:
        self._timeline, self._rng = timeline, rng

    def join(self, go_on: Callable[[], None], *, brings_s: float = 0.0) -> None:
        self._timeline.after_us(self._rng.choice((0, 0, 700)), go_on)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:  # type: ignore[override]
        return self._timeline.after_us(int(delay_s * 1e6), call)


class _Socket:
    """The gateway's end of both pipes, as a transport."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._is_closing = False

    def pause_reading(self) -> None:
        self._incoming.pause()

    def resume_reading(self) -> None:
        self._incoming.resume()

    def write(self, data: bytes) -> None:
        self._outgoing.send(data)

    def writelines(self, parts: list[bytes]) -> None:
        self._outgoing.send(b"".join(parts))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._outgoing.finish()

    def close(self) -> None:
        self._is_closing = True
        self._outgoing.finish()

    def is_closing(self) -> bool:
        return self._is_closing


class _Half:
    """What both directions have, as a pipe has it."""

    def __init__(self) -> None:
        self.on_data: Callable[[bytes], None] = nothing
        self.on_end: Callable[[], None] = nothing
        self.on_full: Callable[[bool], None] = nothing
        self.stall: Stall | None = None
        self.sent = 0


class ToGateway(_Half):
    """The client encrypts, the gateway's transport decrypts."""

    def __init__(self, both: "Encrypted") -> None:
        super().__init__()
        self._both = both
        self._is_paused = False

    def send(self, data: bytes | bytearray) -> None:
        self.sent += len(data)
        self._both.client_sends(data)

    def finish(self) -> None:
        self._both.client_finishes()

    def tear(self) -> None:
        self._both.up.tear()

    def pause(self) -> None:
        if not self._is_paused and not self._both.transport.is_closing():
            self._is_paused = True
            self._both.transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self._both.transport.is_closing():
            self._is_paused = False
            self._both.transport.resume_reading()

    def leave(self) -> None:
        self.on_data = self.on_end = nothing
        self._both.up.leave()


class ToClient(_Half):
    """The gateway's transport encrypts, the client decrypts."""

    def __init__(self, both: "Encrypted") -> None:
        super().__init__()
        self._both = both

    def send(self, data: bytes | bytearray) -> None:
        self.sent += len(data)
        self._both.transport.write(data)

    def finish(self) -> None:
        self._both.gateway_closes()

    def leave(self) -> None:
        self.on_data = self.on_end = nothing
        self._both.down.leave()


class Encrypted:
    """Both directions of one connection.

    Args:
        up: what is encrypted goes to the gateway in it.
        down: and comes from there in this one.
        failed: is called where TLS ends before its time, as when a client leaves in the middle of a handshake.

    Attributes:
        to_gateway: the same without TLS.
        to_client: the same.
    """

    def __init__(
        self, timeline: Timeline, rng: Random, up: Pipe, down: Pipe, failed: Callable[[], None]
    ) -> None:
        self.up, self.down = up, down
        self.to_gateway, self.to_client = ToGateway(self), ToClient(self)
        self._timeline, self._failed = timeline, failed
        self._is_lost = False
        self._says_it_ends = rng.random() < 0.5
        server, client = _contexts()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client.wrap_bio(self._incoming, self._outgoing)
        self._has_shaken = self._is_finished = False
        self._before: bytearray = bytearray()
        self.transport = TlsTransport(
            self,
            partial(server.wrap_bio, server_side=True),
            turns=_Turns(timeline, rng),
            handshake_s=_HANDSHAKE_S,
            protocol=cast("Any", self),
        )
        self._begin()

    def _begin(self) -> None:
        self.transport.connection_made(cast("Any", _Socket(self.up, self.down)))
        self.up.on_data = self._gateway_reads
        self.up.on_end = self._client_ended
        self.down.on_full = self._client_is_full
        self.down.on_data = self._client_reads
        self.down.on_end = self._gateway_ended
        self._shake()

    def _gateway_reads(self, data: bytes) -> None:
        """As an event loop reads: into memory that is another connection's when this call is over."""
        memory = self.transport.get_buffer(-1)
        for at in range(0, len(data), len(memory)):
            part = data[at : at + len(memory)]
            memory[: len(part)] = part
            self.transport.buffer_updated(len(part))
            memory[: len(part)] = bytes(len(part))

    # ------------------------------------------------------------------ the client's end

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.up.send(self._outgoing.read())
            return
        self._has_shaken = True
        self.up.send(self._outgoing.read())
        before, self._before = self._before, bytearray()
        if before:
            self.client_sends(before)
        if self._is_finished:
            self.client_finishes()

    def client_sends(self, data: bytes | bytearray) -> None:
        if not self._has_shaken:
            self._before += data
        elif data:
            self._tls.write(data)
            self.up.send(self._outgoing.read())

    def client_finishes(self) -> None:
        """Some say so in TLS, others just close."""
        self._is_finished = True
        if not self._has_shaken:
            return
        if self._says_it_ends:
            with suppress(ssl.SSLError):  # the other end has not said so yet, or has, and more
                self._tls.unwrap()
            self.up.send(self._outgoing.read())
        self.up.finish()

    def _client_reads(self, data: bytes) -> None:
        self._incoming.write(data)
        if not self._has_shaken:
            self._shake()
        while self._has_shaken:
            try:
                plain = self._tls.read(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return
            if not plain:
                return
            self.to_client.on_data(plain)

    def _gateway_ended(self) -> None:
        self.to_client.on_end()

    # ------------------------------------------------------------------ the gateway's end

    def gateway_closes(self) -> None:
        self.transport.close()
        if not self._is_lost:
            self._is_lost = True
            self._timeline.after_us(0, partial(self.transport.connection_lost, None))

    # ------------------------------------------------------------------ its transport's protocol

    def _client_ended(self) -> None:
        if not self.transport.eof_received():
            self.transport.close()

    def _client_is_full(self, is_full: bool) -> None:
        if is_full:
            self.transport.pause_writing()
        else:
            self.transport.resume_writing()

    def connection_made(self, transport: object) -> None:
        """Nothing is due."""

    def data_received(self, data: bytes) -> None:
        self.to_gateway.on_data(data)

    def eof_received(self) -> bool:
        self.to_gateway.on_end()
        return True

    def pause_writing(self) -> None:
        self.to_client.on_full(True)

    def resume_writing(self) -> None:
        self.to_client.on_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing is due."""

    def secured(self, tls: TlsTransport) -> None:
        """Nothing is due."""

    def tls_failed(self, tls: TlsTransport, error: Exception) -> None:
        self._failed()
