"""Heads of messages that the hot path cannot read at fixed places, and words for bad ones."""

from kvota.model.errors import ProtocolError
from kvota.session.route import Route
from kvota.wire import headers, produce
from kvota.wire.apis import name_of


def behind_header_tags(data: bytes | bytearray, at: int, end: int) -> int:
    """Where a flexible header ends, if it has tags.

    Raises:
        ProtocolError: not within these bytes.
    """
    behind = headers.skip_header_tags(data, at, end)
    if behind is None:
        msg = "a message header's tagged fields are not within its first bytes"
        raise ProtocolError(msg)
    return behind


def read_acks(
    data: bytes | bytearray, pos: int, frame_end: int, client_id_length: int, route: Route
) -> bytes:
    """The acks, as two bytes, of a Produce with a transactional id, tags in its header, or of v0-2.

    Raises:
        ProtocolError: not within these bytes.
    """
    version = 2 if route.flexible else 1
    body = headers.request_body_offset(data, pos, frame_end, client_id_length, version)
    found = None if body is None else produce.acks(data, body, route.version, frame_end)
    if found is None:
        msg = f"Produce v{route.version}: no acks within the first {len(data) - pos} bytes"
        raise ProtocolError(msg)
    return found.to_bytes(2, "big", signed=True)


def bad_size(size: int, route: Route) -> ProtocolError:
    """A request announces a size that it cannot have."""
    return ProtocolError(
        f"API key {route.key} v{route.version}: a request of {size} bytes is announced; between "
        f"{headers.REQUEST_SIZE_MIN} and {route.size_max} are possible",
        "size",
    )


def bad_first_size(data: bytes, size_max: int) -> ProtocolError:
    """The first bytes of a request announce an impossible size: often it is not Kafka at all."""
    size = int.from_bytes(data[:4], "big", signed=True)
    hint = ""
    if data[:2] == b"\x16\x03":
        hint = ". This is TLS, and this port takes none: its client needs security.protocol=PLAINTEXT, or SASL_PLAINTEXT, or another port"
    elif data[:4] in {b"GET ", b"POST", b"HEAD"}:
        hint = ". This is HTTP"
    return ProtocolError(
        f"a request of {size} bytes is announced; between {headers.REQUEST_SIZE_MIN} and {size_max} "
        f"are possible{hint}",
        "not_kafka" if hint else "size",
    )


def bad_client_id(length: int, bytes_max: int, route: Route) -> ProtocolError:
    """A request's client id is longer than is taken, or than the request."""
    return ProtocolError(
        f"API key {route.key} v{route.version}: a client id of {length} bytes; at most {bytes_max} "
        "are taken, and not more than the request has",
        "client_id",
    )


def during_login(key: int, version: int) -> ProtocolError:
    """A request comes while the broker waits for a login's tokens; it would close the connection."""
    return ProtocolError(
        f"{name_of(key)} v{version} in the middle of a login: behind an accepted SaslHandshake a broker "
        "takes nothing but SaslAuthenticate until the user is logged in; nothing of it was forwarded or "
        "charged",
        "login",
    )
