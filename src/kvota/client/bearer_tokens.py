"""Where the bearer token of an OAUTHBEARER login comes from: a file that somebody keeps fresh, or ourselves."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kvota.model.errors import UsageError

# Of an unsecured token, as Kafka's own.
_LIFETIME_S = 3_600
# Far beyond any token; a broker takes messages of half a megabyte.
_FILE_BYTES_MAX = 262_144


def of_file(path: Path) -> Callable[[], str]:
    """Return what reads the token anew for each login, without the blanks around it."""

    def read() -> str:
        try:
            with path.open("rb") as file:
                token = file.read(_FILE_BYTES_MAX + 1)
        except OSError as error:
            msg = f"the bearer token cannot be read: {path}: {error.strerror}"
            raise UsageError(msg) from error
        if len(token) > _FILE_BYTES_MAX:
            msg = f"{path} has more than {_FILE_BYTES_MAX} bytes: that is no bearer token"
            raise UsageError(msg)
        return token.decode(errors="replace").strip()

    return read


def unsecured(claims: Mapping[str, object]) -> Callable[[], str]:
    """Return what makes a token that nobody has signed, for clusters on which anybody may be anybody."""

    def make() -> str:
        now_s = time.time_ns() // 10**9  # noqa: TID251  (a token counts by the wall)
        body = {"iat": now_s, "exp": now_s + _LIFETIME_S, **claims}
        return f"{_encoded({'alg': 'none'})}.{_encoded(body)}."

    return make


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
