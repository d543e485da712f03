"""How a client reaches brokers: encrypted or not, with a login or without."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kvota.model.errors import UsageError
from kvota.tls.client_tls import Tls

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTHBEARER: Mechanism = "OAUTHBEARER"
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
OF_DELEGATION_TOKENS: frozenset[Mechanism] = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
# What a token is made of (RFC 6750).
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """No login, or one by SASL; plain, or through TLS. No password and no token is in any text of this object.

    Attributes:
        mechanism: of the login; None: there is none.
        username: who logs in.
        password: of the user.
        is_delegation_token: the name is a delegation token's id, the password its secret (its HMAC in base64); only of SCRAM.
        token: gives the bearer token, anew for each login; only of OAUTHBEARER.
        tls: how connections are encrypted; None: they are not.

    Raises:
        UsageError: a mechanism without a name or a token, or one that is not known, or that takes no delegation token.
    """

    mechanism: Mechanism | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    is_delegation_token: bool = False
    token: Callable[[], str] | None = field(default=None, repr=False)
    tls: Tls | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot log in."""
        if self.mechanism is None:
            return
        if self.mechanism not in MECHANISMS:
            msg = f'"{self.mechanism}" is no mechanism; known are {", ".join(MECHANISMS)}'
            raise UsageError(msg)
        if self.is_delegation_token and self.mechanism not in OF_DELEGATION_TOKENS:
            msg = f"a delegation token logs in by {' or '.join(sorted(OF_DELEGATION_TOKENS))}"
            raise UsageError(msg)
        if self.mechanism == OAUTHBEARER:
            if self.token is None:
                msg = f"a login by {OAUTHBEARER} needs a token"
                raise UsageError(msg)
            return
        if not self.username:
            msg = f"a login by {self.mechanism} needs a user name"
            raise UsageError(msg)

    @classmethod
    def plain(cls, username: str, password: str, *, tls: Tls | None = None) -> "Security":
        """SASL PLAIN: the password itself goes to the broker; without TLS everybody on the way can read it."""
        return cls(mechanism="PLAIN", username=username, password=password, tls=tls)

    @classmethod
    def scram(
        cls,
        username: str,
        password: str,
        *,
        mechanism: Mechanism = "SCRAM-SHA-512",
        tls: Tls | None = None,
    ) -> "Security":
        """SASL SCRAM: each side proves to the other that it knows the password."""
        return cls(mechanism=mechanism, username=username, password=password, tls=tls)

    @classmethod
    def delegation_token(
        cls,
        token_id: str,
        secret: str,
        *,
        mechanism: Mechanism = "SCRAM-SHA-512",
        tls: Tls | None = None,
    ) -> "Security":
        """A delegation token (KIP-48): to brokers one is its owner; ``secret``: its HMAC in base64."""
        return cls(
            mechanism=mechanism,
            username=token_id,
            password=secret,
            is_delegation_token=True,
            tls=tls,
        )

    @classmethod
    def bearer(cls, token: Callable[[], str] | str, *, tls: Tls | None = None) -> "Security":
        """SASL OAUTHBEARER: the token itself goes to the broker; without TLS everybody on the way can use it.

        Args:
            token: itself, or what gives one that is fresh: it is asked before each login, on a thread of its own.
            tls: how connections are encrypted.
        """
        given = token
        give = given if callable(given) else lambda: given
        return cls(mechanism=OAUTHBEARER, token=give, tls=tls)

    def fresh_token(self) -> str:
        """Return a token to log in with; it may take a while.

        Raises:
            UsageError: what is given is no token; nothing of it is in the text.
        """
        assert self.token is not None, "the mechanism has one"
        token = self.token()
        if not _TOKEN.fullmatch(token):
            msg = f"a bearer token of {len(token)} characters is none: it is empty, or has others than A-Z, 0-9 and -_~+/."
            raise UsageError(msg)
        return token


NO_LOGIN = Security()
