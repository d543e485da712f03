"""A client of bytes: sends frames as they are, reads whole frames."""

import socket
import ssl
from types import TracebackType
from typing import Any, Self

from kvota.testing.kafka_messages import from_frame


class RawClient:
    """One connection, closed on exit; with ``tls`` all bytes go inside that."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float = 60.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """The next whole frame."""
        size = int.from_bytes(self._take(4), "big")
        return size.to_bytes(4, "big") + self._take(size)

    def ask(self, request: bytes) -> Any:
        """The kio message that answers a request frame."""
        self.send(request)
        return from_frame(self.frame(), request[5], request[7], "response")

    def is_closed(self) -> bool:
        """Waits until the other side has closed; False when it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(1 << 18)
            if not data:
                msg = f"closed with {len(self._received)} of {size} bytes"
                raise ConnectionError(msg)
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken
