"""One request gets one answer over a plain socket; localkafka itself needs no more."""

import io
import socket
import struct
from typing import TYPE_CHECKING, TypeVar

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i16, i32

from kvota.model.errors import ProtocolError, UnreachableError

if TYPE_CHECKING:
    from kio.static.protocol import HeaderV1ResponsePayload, HeaderV2RequestPayload

    Answer = TypeVar("Answer", bound=HeaderV1ResponsePayload)

_CLIENT_ID = "kvota-localkafka"
_ANSWER_BYTES_MAX = 64 << 20


def ask(
    address: tuple[str, int],
    request: "HeaderV2RequestPayload",
    answer_type: "type[Answer]",
    *,
    timeout_s: float = 30.0,
) -> "Answer":
    """Sends one request to a broker and reads its answer.

    Raises:
        UnreachableError: nobody listens there, or no whole answer came in time.
        ProtocolError: the answer cannot be read.
    """
    frame = _encoded(request)
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            answer = _frame(connection)
    except OSError as error:
        msg = f"{address[0]}:{address[1]} does not answer {type(request).__name__}: {error}"
        raise UnreachableError(msg) from error
    try:
        _, header_bytes = entity_reader(answer_type.__header_schema__)(answer, 0)
        return entity_reader(answer_type)(answer, header_bytes)[0]
    except (
        SerialError,
        ValueError,
        KeyError,
    ) as error:  # kio raises the last two on what it does not know
        msg = f"{address[0]}:{address[1]}: unreadable {answer_type.__name__}: {error}"
        raise ProtocolError(msg) from error


def _encoded(request: "HeaderV2RequestPayload") -> bytes:
    header = request.__header_schema__(
        request_api_key=i16(request.__api_key__),
        request_api_version=i16(request.__version__),
        correlation_id=i32(1),
        client_id=_CLIENT_ID,
    )
    frame = io.BytesIO()
    entity_writer(type(header))(frame, header)
    entity_writer(type(request))(frame, request)
    return frame.getvalue()


def _frame(connection: socket.socket) -> bytes:
    (size_bytes,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < size_bytes <= _ANSWER_BYTES_MAX:
        msg = f"an answer of {size_bytes} bytes"
        raise OSError(msg)
    return _exactly(connection, size_bytes)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        chunk = connection.recv(size_bytes - len(data))
        if not chunk:
            msg = "the connection was closed before the answer"
            raise OSError(msg)
        data += chunk
    return bytes(data)
