"""Keystores and truststores as Kafka's clients name them: PEM files (KIP-651) and PKCS #12 are read, JKS is not."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kvota.model.errors import UsageError

KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 - the name of a property
_PKCS12 = "PKCS12"


class Store(NamedTuple):
    """The properties of one.

    Attributes:
        type: PEM, PKCS12; where it is not said, it is PKCS12 if there is a password, which PEM files have not.
        location: its file.
        password: opens it.
        instead: say in another way what it has.
    """

    type: str
    location: str
    password: str
    instead: tuple[str, ...]

    def password_in(self, properties: Mapping[str, str]) -> str | None:
        """Return what opens the PKCS #12 file that is named; None: none is.

        Raises:
            UsageError: it is named in a way that cannot be meant, or is of another type; no password is in its text.
        """
        kind = properties.get(self.type, "").strip().upper()
        if kind not in {"", "PEM", _PKCS12}:
            msg = (
                f'{self.type}: "{properties[self.type].strip()}" cannot be read. Name PEM files ({self.type}=PEM, Kafka 2.7 '
                "and newer), or make PKCS #12 of it: "
                f"keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype {_PKCS12}"
            )
            raise UsageError(msg)
        password = properties.get(self.password, "")
        if kind == "PEM" and password:
            msg = (
                f"{self.password}: PEM files have none (a key has: {KEY_PASSWORD}); a store that has one is of "
                f"{self.type}={_PKCS12}"
            )
            raise UsageError(msg)
        if kind == "PEM" or not (kind or password):
            return None
        problem = self._what_is_wrong(properties, password)
        if problem:
            raise UsageError(problem)
        return password or None

    def _what_is_wrong(self, properties: Mapping[str, str], password: str) -> str:
        location = properties.get(self.location, "").strip()
        for name in self.instead:
            if properties.get(name, "").strip():
                return f"{name}: with {self.type}={_PKCS12} all of it stands in {self.location}; keep one of the two"
        if password and not location:
            return f"{self.location}: missing, and {self.password} opens a store"
        if location and not password:
            return f"{self.password}: missing; it opens {location}"
        return ""


TRUSTSTORE: Final = Store(
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    ("ssl.ca.location", "ssl.truststore.certificates"),
)
KEYSTORE: Final = Store(
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    (
        "ssl.certificate.location",
        "ssl.keystore.certificate.chain",
        "ssl.key.location",
        "ssl.keystore.key",
    ),
)


def passwords_in(properties: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return what opens the truststore and the keystore, where they are PKCS #12.

    Raises:
        UsageError: as ``Store.password_in``, or the keystore's key has another password.
    """
    trusted, shown = TRUSTSTORE.password_in(properties), KEYSTORE.password_in(properties)
    if shown is not None and properties.get(KEY_PASSWORD, "") not in {"", shown}:
        msg = (
            f"{KEY_PASSWORD}: it is another one than {KEYSTORE.password}; of PKCS #12 one password opens the store and "
            "the key in it"
        )
        raise UsageError(msg)
    return trusted, shown
