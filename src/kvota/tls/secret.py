"""A password that stands in no settings: in a file, or in a variable of the environment."""

import os
from dataclasses import dataclass
from pathlib import Path

from kvota.tls.pem import TlsSettingError

_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where it stands; at most one of both.

    Attributes:
        file: its first line is it.
        variable: whose value is it.
    """

    file: Path | None = None
    variable: str = ""

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.file is not None or bool(self.variable)

    def read(self) -> str | None:
        """Return it; None: there is none.

        Raises:
            TlsSettingError: it is not where it should be.
        """
        if self.variable:
            found = os.environ.get(self.variable)
            if not found:
                problem = f"the environment has no variable {self.variable}, or it is empty"
                raise TlsSettingError(problem, setting="password_env")
            return found
        if self.file is None:
            return None
        try:
            with self.file.open("rb") as file:
                text = file.read(_BYTES_MAX).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
            problem = f"cannot be read: {reason}"
            raise TlsSettingError(problem, setting="password_file", value=self.file) from error
        line = text.split("\n", 1)[0].rstrip("\r")
        if not line:
            problem = "its first line is empty: write the password there"
            raise TlsSettingError(problem, setting="password_file", value=self.file)
        return line


# A password itself, or where it stands.
Password = str | Secret


def read_password(password: Password | None) -> str | None:
    """Return it as it is now; raises as ``Secret.read``."""
    return password.read() if isinstance(password, Secret) else password


def file_of(password: Password | None) -> Path | None:
    """Return the file in which it stands; None: it stands in none."""
    return password.file if isinstance(password, Secret) else None
