"""What is rare on a connection and needs a whole frame: versions, addresses, logins, mutations."""

from struct import Struct
from typing import Protocol

from kvota.model.errors import ProtocolError
from kvota.session.admission import Admission, Around
from kvota.session.commands import Command, Do
from kvota.session.in_flight import Due
from kvota.session.principal import WHOLE_LOGINS, Login, PrincipalWatch
from kvota.session.route import Route
from kvota.session.shared import Shared
from kvota.wire import addresses, api_versions, fetch, headers, produce, sasl
from kvota.wire.apis import API_VERSIONS, APIS, FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import encode_answer

SASL_TOKEN_BYTES_MAX = 524_288  # Kafka's sasl.server.max.receive.size
_WRITE_INT32 = Struct(">i").pack_into
# From v7 on an answer has an error code and a fetch session.
_FETCH_SESSIONS_FROM = 7
# Correlation ids of our own questions; answers are matched by their place, so any value does.
_OWN_CORRELATION = 0x6B_76_6F_74


class Machine(Protocol):
    """The parts of a connection that rare messages act on."""

    number: int
    dialled: tuple[str, int]
    upstream_versions: dict[int, tuple[int, int]]
    principal: PrincipalWatch
    commands: list[Command]
    shared: Shared

    def expect(self, entry: tuple) -> None:  # type: ignore[type-arg]
        """An answer of this kind is due."""

    def answer_locally(self, correlation: int, answer: bytes) -> None:
        """Send our own answer when its turn has come."""

    def wait(self) -> None:
        """Nothing else of this connection goes on for now."""

    def go_on(self, *, raw_sasl: bool) -> None:
        """What waited goes on: as bare tokens, or as Kafka's frames."""

    def forget_routes(self) -> None:
        """Every charge is looked up anew."""

    def learn_own_node(self) -> None:
        """An answer has named brokers."""

    def admission_over(self, mute_ms: int) -> None:
        """The mutation is answered."""


def lower_max_bytes(data: bytes | bytearray, offset: int, allowed_bytes: int) -> bytearray:
    """A Fetch request that asks for no more than the window still allows, but for one byte at least.

    min_bytes stands before max_bytes and is lowered with it, as a broker does; the broker answers one
    whole batch however small the limit.
    """
    patched = data if isinstance(data, bytearray) else bytearray(data)
    most = max(allowed_bytes, 1)
    _WRITE_INT32(patched, offset, most)
    if int.from_bytes(patched[offset - 4 : offset], "big", signed=True) > most:
        _WRITE_INT32(patched, offset - 4, most)
    return patched


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


def acks(
    data: bytes | bytearray, pos: int, frame_end: int, client_id_length: int, route: Route
) -> int:
    """The acks of a Produce with a transactional id, tags in its header, or of v0-2.

    Raises:
        ProtocolError: not within these bytes.
    """
    version = 2 if route.flexible else 1
    body = headers.request_body_offset(data, pos, frame_end, client_id_length, version)
    found = None if body is None else produce.acks(data, body, route.version, frame_end)
    if found is None:
        msg = f"Produce v{route.version}: no acks within the first {len(data) - pos} bytes"
        raise ProtocolError(msg)
    return found


def empty_fetch_answer(correlation: int, version: int, throttle_ms: int) -> bytes:
    """What a broker answers to a consumer over its quota: no topics, and how long to wait."""
    throttle_ms = min(throttle_ms, 2**31 - 1)
    if version >= _FETCH_SESSIONS_FROM:
        return fetch.empty_answer(
            correlation, version, throttle_ms=throttle_ms, error_code=ErrorCode.NONE
        )
    throttle = throttle_ms.to_bytes(4, "big") if version else b""
    return encode_answer(FETCH, version, correlation, throttle + bytes(4))


def request(
    connection: Machine, route: Route, correlation: int, frame: bytes, now_us: int
) -> bytes:
    """A request that must be read whole; returns what goes upstream for it now.

    Raises:
        ProtocolError: it is not what its header says.
    """
    key, version = route.key, route.version
    if key == API_VERSIONS:
        if version > APIS[API_VERSIONS].version_max:
            connection.answer_locally(correlation, api_versions.unsupported(correlation))
            return b""
        connection.expect((correlation, Due.VERSIONS, version))
        return frame
    if key == SASL_HANDSHAKE:
        mechanism = sasl.mechanism(frame)
        if version == 0:
            # Bare tokens may follow, which look like requests: nothing goes on before the answer.
            if mechanism not in WHOLE_LOGINS:
                msg = f"SaslHandshake v0 with {mechanism!r}: its end cannot be seen from outside"
                raise ProtocolError(msg)
            connection.wait()
        connection.principal.handshake(mechanism)
        connection.expect((correlation, Due.SASL_HANDSHAKE, version))
        return frame
    if key == SASL_AUTHENTICATE:
        login = connection.principal.token(sasl.auth_bytes(frame))
        connection.expect((correlation, Due.SASL_AUTHENTICATE, version, login))
        return frame
    return _mutation(connection, route, correlation, frame, now_us)


def _mutation(
    connection: Machine, route: Route, correlation: int, frame: bytes, now_us: int
) -> bytes:
    shared = connection.shared
    admission = Admission(
        Around(
            engine=shared.engine,
            sink=shared.sink,
            facts=shared.facts,
            topology=shared.topology,
            enforced=route.enforced,
            partitions_max=shared.settings.mutation_partitions_max,
            default_partitions=shared.settings.default_partitions,
        ),
        connection,
        user=connection.principal.name,
        frame=frame,
        key=route.key,
        version=route.version,
        now_ms=now_us // 1000,
    )
    connection.wait()
    if admission.needs_no_question:
        connection.expect((correlation, Due.MUTATION, admission))
        return frame
    question = admission.question(_OWN_CORRELATION)
    assert question is not None, "a mutation of at least one topic asks at least one question"
    connection.expect((_OWN_CORRELATION, Due.QUESTION, admission, correlation))
    return question


def answer(connection: Machine, entry: tuple, frame: bytes, now_us: int) -> bytes:  # type: ignore[type-arg]
    """An answer that was waited for whole; returns what the client gets instead of it.

    Raises:
        ProtocolError: it cannot be read, or names a node outside the range: nothing is forwarded.
    """
    match entry[1]:
        case Due.REWRITE:
            frame = addresses.rewrite(
                frame, entry[2], entry[3], connection.shared.topology.address_of
            )
            connection.learn_own_node()
        case Due.VERSIONS:
            frame, connection.upstream_versions = api_versions.clamp(frame, entry[2])
        case Due.SASL_AUTHENTICATE:
            told = sasl.authenticate_answer(frame, entry[2])
            _authenticated(connection, entry[3], told.error_code, told.auth_bytes)
        case Due.SASL_HANDSHAKE:
            if entry[2] == 0:
                connection.go_on(raw_sasl=sasl.handshake_answer(frame)[0] == ErrorCode.NONE)
        case Due.SASL_RAW:
            complete = _authenticated(connection, entry[2], 0, frame[4:])
            connection.go_on(raw_sasl=not complete)
        case Due.QUESTION:
            return _question_answered(connection, entry[2], entry[3], frame, now_us)
        case Due.MUTATION:
            return _mutation_answered(connection, entry[2], frame, now_us)
        case _:
            msg = f"an answer of kind {entry[1]}"
            raise AssertionError(msg)
    return frame


def _authenticated(connection: Machine, login: Login, error_code: int, auth_bytes: bytes) -> bool:
    principal = connection.principal
    before = principal.name
    if not principal.answer(login, error_code, auth_bytes):
        return False
    if principal.name != before:
        connection.forget_routes()
    if principal.warning:
        connection.commands.append((Do.WARN, principal.warning))
        principal.warning = None
    return True


def _question_answered(
    connection: Machine, admission: Admission, correlation: int, frame: bytes, now_us: int
) -> bytes:
    """Our own question's answer: ask the next one, or decide and send the request on."""
    admission.learn(frame, now_us)
    question = admission.question(_OWN_CORRELATION)
    if question is not None:
        connection.expect((_OWN_CORRELATION, Due.QUESTION, admission, correlation))
        connection.commands.append((Do.SEND_UPSTREAM, question))
        return b""
    forward = admission.decide(now_us)
    if forward is not None:
        connection.expect((correlation, Due.MUTATION, admission))
        connection.commands.append((Do.SEND_UPSTREAM, forward))
        return b""
    own = admission.own_answer(correlation, now_us)
    connection.admission_over(admission.mute_ms(now_us))
    return own


def _mutation_answered(
    connection: Machine, admission: Admission, frame: bytes, now_us: int
) -> bytes:
    merged = admission.answer(frame, now_us)
    connection.admission_over(admission.mute_ms(now_us))
    return merged
