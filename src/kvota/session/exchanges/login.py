"""Logins, watched as they go by: SaslHandshake, SaslAuthenticate, and bare tokens (handshake v0).

Nothing goes on behind a message of a login before its answer is here: whose request it is that stands
behind it, and whether it is one at all, follows from the answer. A broker, too, has one message of a
connection in hand. From its yes to a mechanism until it has accepted the last token a broker takes
nothing but tokens, and closes the connection for anything else (``Caller.logs_in``).
"""

from kvota.model.errors import ProtocolError
from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.session.outside import FindTokenOwner, Owner
from kvota.session.principal import ANONYMOUS, SHOWN_MAX, WHOLE_LOGINS, Login, LoginRefusal
from kvota.wire import sasl
from kvota.wire.apis import SASL_AUTHENTICATE, SASL_BYTES_MAX, SASL_HANDSHAKE
from kvota.wire.error_code import ErrorCode
from kvota.wire.varint import Frame

# The brokers are asked for less; a client waits for its first answer so long.
OWNER_MS_MAX = 15_000
LOGIN_KEYS = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class Handshake(Exchange):
    """SaslHandshake: the client names a mechanism."""

    __slots__ = ("_mechanism", "_version")

    def __init__(self, version: int, mechanism: str) -> None:
        self._version = version
        self._mechanism = mechanism

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """Whether it takes the mechanism the broker says."""
        mechanism = sasl.mechanism(frame)
        caller.principal.handshake(mechanism)
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.version, mechanism)))
        caller.wait()
        return frame

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:  # noqa: ARG002
        """Tokens follow if the broker takes the mechanism; else the client is who it was.

        A refusal is what a listener without logins says, or one where nobody logs in twice. After v0 bare tokens
        follow, which look like requests: their end must be seen.

        Raises:
            ProtocolError: v0 with a mechanism whose end cannot be seen from outside.
        """
        error_code, mechanisms = sasl.handshake_answer(frame)
        if error_code == ErrorCode.NONE:
            if self._version == 0 and self._mechanism not in WHOLE_LOGINS:
                msg = (
                    f"SaslHandshake v0 with {self._mechanism[:SHOWN_MAX]!r}: its end cannot be seen from outside. Its client "
                    "has to send SaslHandshake v1, as clients since Kafka 1.0 do"
                )
                raise ProtocolError(msg)
            caller.sends_tokens = self._version == 0
            caller.begin_login()
        else:
            why = _why_no_handshake(error_code, mechanisms, caller.principal.name)
            refusal = LoginRefusal(None, self._mechanism[:SHOWN_MAX], why[:SHOWN_MAX])
            caller.refuse_login(refusal, ends=error_code != ErrorCode.ILLEGAL_SASL_STATE)
        caller.go_on()
        return frame


class Authenticate(Exchange):
    """SaslAuthenticate: one token of a login, in a request of Kafka's."""

    __slots__ = ("_login", "_version")

    def __init__(self, version: int, login: Login) -> None:
        self._version = version
        self._login = login

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The broker judges the token; only the name in it is read here."""
        login = caller.principal.token(sasl.auth_bytes(frame))
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.version, login)))
        caller.wait()
        return frame

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:  # noqa: ARG002
        """Believe the name where the broker has accepted it."""
        answer = sasl.authenticate_answer(frame, self._version)
        if answer.error_code != ErrorCode.NONE:
            why = answer.error_message or f"error {answer.error_code}"
            caller.refuse_login(self._login.refusal(why))
        _judged(caller, self._login, answer.error_code, answer.auth_bytes)
        return frame


class Token(Exchange):
    """One token without Kafka's header; nothing else goes on before it is answered."""

    __slots__ = ("_login",)

    def __init__(self, login: Login) -> None:
        self._login = login

    @staticmethod
    def frame_bytes(data: bytes | bytearray) -> int:
        """How many bytes the token that ``data`` begins with has, its size field included.

        Raises:
            ProtocolError: more than any token has.
        """
        if len(data) < 4:
            return 4
        size = int.from_bytes(data[:4], "big", signed=True)
        if not 0 <= size <= SASL_BYTES_MAX:
            msg = f"a SASL token of {size} bytes is announced"
            raise ProtocolError(msg)
        return 4 + size

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The broker judges the token."""
        login = caller.principal.token(frame[4:])
        caller.expect((head.correlation, Due.TOKEN, cls(login)))
        caller.wait()
        return frame

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:  # noqa: ARG002
        """Another token follows, unless this one has completed the login."""
        caller.sends_tokens = not _judged(caller, self._login, 0, bytes(frame[4:]))
        return frame

    @property
    def refusal(self) -> LoginRefusal:
        """What it means that the broker closes instead of answering: these tokens have no other no."""
        return self._login.refusal("the broker has closed the connection")


def _why_no_handshake(error_code: int, mechanisms: list[str], user: str) -> str:
    if error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return f"the broker takes {', '.join(mechanisms) or 'no mechanism'}"
    if error_code != ErrorCode.ILLEGAL_SASL_STATE:
        return f"error {error_code}"
    if user == ANONYMOUS:
        return "this listener of the broker has no logins (is it PLAINTEXT?)"
    return f"the broker lets nobody log in twice on one connection, and this one is {user}'s"


class _TokenOwner:
    """The broker has accepted a delegation token: whose it is must be known before anything else goes on."""

    __slots__ = ("_login",)

    def __init__(self, login: Login) -> None:
        self._login = login

    def begin(self, caller: Caller) -> None:
        """Ask, outside: on the client's connection brokers tell nobody of tokens who has logged in with one."""
        caller.at_work = self
        caller.wait(OWNER_MS_MAX)
        caller.commands.append((Do.ERRAND, FindTokenOwner(self._login.token_id)))

    def step(self, caller: Caller, now_us: int) -> bytes:  # noqa: ARG002
        """There are no steps: what is waited for comes from outside."""
        raise AssertionError

    def told(self, caller: Caller, result: object, now_us: int) -> bytes:  # noqa: ARG002
        """Whose it is, or why that cannot be told."""
        assert isinstance(result, Owner)
        caller.at_work = None
        _accepted(caller, self._login, result)
        return b""

    def abandoned(self) -> None:
        """The connection has ended; whose it was is nobody's business any more."""


def _judged(caller: Caller, login: Login, error_code: int, auth_bytes: bytes) -> bool:
    """The broker has answered a token; True when this completed the login."""
    if not caller.principal.is_complete(login, error_code, auth_bytes):
        caller.go_on()
        return False
    if login.token_id and caller.shared.finds_token_owners:
        _TokenOwner(login).begin(caller)
    else:
        _accepted(caller, login)
    return True


def _accepted(caller: Caller, login: Login, owner: Owner | None = None) -> None:
    """Who it is counts from now on, and what waits behind the login goes on."""
    principal = caller.principal
    before = principal.name
    principal.accept(login, owner)
    caller.end_login()
    if principal.name != before:
        caller.forget_lanes()
    if principal.warning:
        caller.commands.append((Do.WARN, principal.warning))
        principal.warning = None
    caller.go_on()
