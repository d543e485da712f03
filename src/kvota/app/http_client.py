"""Asks a running gateway's HTTP port."""

import http.client
import json
from typing import Any
from urllib.parse import urlencode, urlsplit

from kvota.model.errors import UnreachableError, UsageError

_TIMEOUT_S = 10.0
_BYTES_MAX = 64 * 2**20


def ask(url: str, path: str, parameters: dict[str, str] | None = None) -> Any:
    """Return the JSON that is served at a path.

    Args:
        url: of the gateway's HTTP port, e.g. ``http://127.0.0.1:9180``.
        path: e.g. ``/v1/tenants``.
        parameters: of the question.

    Raises:
        UsageError: the URL is none, or what is asked is refused.
        UnreachableError: nobody answers there, or somebody else does.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host, port = None, 0
    if parts.scheme != "http" or not host:
        msg = f'"{url}" is no URL of a gateway. Write e.g. http://127.0.0.1:9180'
        raise UsageError(msg)
    target = path + (f"?{urlencode(parameters)}" if parameters else "")
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read(_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = (
            f"no gateway answers at {url}: {reason}. Its log says where it serves HTTP (http.port of "
            "gateway.toml; http.enabled must not be false)"
        )
        raise UnreachableError(msg) from error
    finally:
        connection.close()
    text = body.decode("utf-8", "replace").strip()
    if answer.status in {400, 421}:
        msg = f"{url}: {text}"
        raise UsageError(msg)
    try:
        found = json.loads(text) if answer.status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = text.splitlines()[0][:200] if text else "nothing"
        msg = f"{url} answers {answer.status} ({shown}); that is no gateway, or one in trouble"
        raise UnreachableError(msg)
    return found
