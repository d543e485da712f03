"""How a client logs in."""

from dataclasses import dataclass, field
from typing import Literal

from kvota.model.errors import UsageError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """No login, or one by SASL; the password is in no text of this object.

    Raises:
        UsageError: a mechanism without a name, or one that is not known.
    """

    mechanism: Mechanism | None = None
    username: str = ""
    password: str = field(default="", repr=False)

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
    def plain(cls, username: str, password: str) -> "Security":
        """SASL PLAIN: the password itself goes to the broker."""
        return cls(mechanism="PLAIN", username=username, password=password)

    @classmethod
    def scram(
        cls, username: str, password: str, *, mechanism: Mechanism = "SCRAM-SHA-512"
    ) -> "Security":
        """SASL SCRAM: each side proves to the other that it knows the password."""
        return cls(mechanism=mechanism, username=username, password=password)


NO_LOGIN = Security()
