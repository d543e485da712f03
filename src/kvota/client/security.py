"""How a client reaches brokers: encrypted or not, with a login or without."""

from dataclasses import dataclass, field
from typing import Literal

from kvota.model.errors import UsageError
from kvota.tls.client_tls import Tls

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """No login, or one by SASL; plain, or through TLS. The password is in no text of this object.

    Attributes:
        mechanism: of the login; None: there is none.
        username: who logs in.
        password: of the user.
        tls: how connections are encrypted; None: they are not.

    Raises:
        UsageError: a mechanism without a name, or one that is not known.
    """

    mechanism: Mechanism | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot log in."""
        if self.mechanism is None:
            return
        if self.mechanism not in MECHANISMS:
            msg = f'"{self.mechanism}" is no mechanism; known are {", ".join(MECHANISMS)}'
            raise UsageError(msg)
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


NO_LOGIN = Security()
