"""Who the client is: watches SASL go by, without taking part in it.

The name is believed only when the broker has accepted the login. Passwords and proofs are looked past
and kept nowhere. Source: Kafka's SASL handshake and authenticate messages, RFC 4616, RFC 5802, RFC 7628.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvota.model.errors import ProtocolError
from kvota.session.outside import Owner
from kvota.wire import sasl
from kvota.wire.bearer_token import bearer_name

ANONYMOUS = "ANONYMOUS"
_SCRAM = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
_OAUTH = "OAUTHBEARER"
# These end with an empty token of the broker's: GSSAPI's others are steps of it, and a document that comes for a
# bearer token is a failure that looks like success.
_END_WITHOUT_TOKEN = frozenset({"GSSAPI", _OAUTH})
# Names and texts of peers may be half a megabyte long; the log, and what it remembers, get so many characters.
SHOWN_MAX = 200
_NO_OWN_LOGIN = "a gateway with a login of its own asks: client.quota.callback.static.kafka.admin.security.protocol"
# Logins in which a name can always be read, but for delegation tokens.
NAMED_LOGINS = frozenset({"PLAIN", *_SCRAM})
# Logins whose end is seen in the broker's tokens.
WHOLE_LOGINS = NAMED_LOGINS | {_OAUTH}


@dataclass(frozen=True, slots=True)
class LoginRefusal:
    """The broker has not let a client log in.

    Attributes:
        user: the name that was claimed; None where none could be read.
        mechanism: as the client has named it.
        why: the broker's own words, or what can be seen from outside.
    """

    user: str | None
    mechanism: str
    why: str


class Login:
    """One attempt to log in: what the client has claimed so far."""

    __slots__ = (
        "claimed",
        "has_warned",
        "is_malformed",
        "mechanism",
        "readable",
        "token_id",
        "tokens",
        "why",
    )

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.claimed: str | None = None
        self.readable = True
        self.why = ""  # it is not readable
        self.token_id = ""  # of a delegation token, whose owner never crosses the wire
        self.is_malformed = False  # a name ought to stand in it, and none can be read
        self.tokens = 0
        self.has_warned = False

    def refusal(self, why: str) -> LoginRefusal:
        """Return what to say of it when the broker refuses it; no more of a name than is shown."""
        user = None if self.claimed is None else self.claimed[:SHOWN_MAX]
        return LoginRefusal(user, self.mechanism[:SHOWN_MAX], why[:SHOWN_MAX])


class PrincipalWatch:
    """One connection's name; a later re-authentication is another attempt.

    Every token belongs to an attempt, and its answer is told with that attempt: a client that sends
    the next handshake ahead of an answer cannot pass for somebody else.

    Args:
        claim: of bearer tokens, in which the name stands.
        users: who one is whose name cannot be read, by mechanism; else ``ANONYMOUS``.

    Attributes:
        name: of the user.
        has_logged_in: the broker has accepted a login on this connection, and knows the user by it.
        warning: what the log should say of it.
    """

    __slots__ = ("_claim", "_login", "_users", "has_logged_in", "name", "warning")

    def __init__(self, claim: str = "sub", users: Mapping[str, str] = MappingProxyType({})) -> None:
        self._claim, self._users = claim, users
        self.name = ANONYMOUS
        self.has_logged_in = False
        self.warning: str | None = None
        self._login = Login("")

    def handshake(self, mechanism: str) -> None:
        """The client has named a mechanism."""
        self._login = Login(mechanism)

    def token(self, auth_bytes: bytes) -> Login:
        """The client has sent a token; only the first one of an attempt names anybody."""
        login = self._login
        login.tokens += 1
        if login.tokens > 1:
            return login
        try:
            if login.mechanism == "PLAIN":
                _authorization, login.claimed = sasl.plain_names(auth_bytes)
            elif login.mechanism in _SCRAM:
                login.claimed, is_token = sasl.scram_name(auth_bytes)
                login.readable = not is_token
                login.token_id = login.claimed if is_token else ""
            elif login.mechanism == _OAUTH:
                login.claimed, login.why = bearer_name(auth_bytes, self._claim)
                login.readable = login.claimed is not None
            else:
                login.readable = False
        except ProtocolError:
            login.is_malformed = True  # the broker will refuse it
        return login

    def is_complete(self, login: Login, error_code: int, auth_bytes: bytes) -> bool:
        """The broker has answered a token; True when this completes the login: then ``accept`` it.

        The end of a login with another mechanism than these (one of a vendor's own) cannot be
        seen. Its name cannot be read either, so each token that the broker accepts may be the last one.

        Raises:
            ProtocolError: the broker reads a name where none can be read here. Who could choose to have no
                name would have no quota.
        """
        if error_code != 0:
            login.claimed = None
            return False
        if login.is_malformed:
            msg = (
                f"the broker accepts a login with {login.mechanism} in which no user's name can be read: whose "
                "quotas would hold is not known"
            )
            raise ProtocolError(msg)
        if login.mechanism in _SCRAM and not sasl.is_server_final(auth_bytes):
            return False
        return login.mechanism not in _END_WITHOUT_TOKEN or not auth_bytes

    def accept(self, login: Login, owner: Owner | None = None) -> None:
        """A login is complete: believe its name.

        Args:
            login: which one.
            owner: of the delegation token, where there is one and it was asked for.
        """
        self.has_logged_in = True
        name, why = login.claimed, login.why
        if not login.readable:
            of_rule = self._users.get(login.mechanism)
            name, why = (of_rule, why or self._why_unknown(login)) if owner is None else owner
        if name is not None:
            self.name = name
            return
        self.name = ANONYMOUS
        if login.has_warned:
            return
        login.has_warned = True
        what = (
            "the owner of a delegation token"
            if login.token_id
            else f"the name behind a {login.mechanism or 'SASL'} login"
        )
        because = f" ({why})" if why else ""
        self.warning = (
            f"{what} cannot be read from the wire{because}; its quotas are those of {ANONYMOUS}"
        )

    @staticmethod
    def _why_unknown(login: Login) -> str:
        return _NO_OWN_LOGIN if login.token_id else ""
