"""The pages: metrics in both formats of Prometheus, health, JSON."""

import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvota.metrics.exposition import OPENMETRICS, TEXT, Exposition
from kvota.metrics.families import Labels, families
from kvota.web.guarded_protocol import HEAD_BYTES_MAX
from kvota.web.host_check import HostCheck
from kvota.web.shared_work import SharedWork
from kvota.web.source import Json, Source

log = logging.getLogger(__name__)

TENANTS_DEFAULT, TENANTS_MAX = 100, 1_000
NAME_CHARS_MAX = 1_024
# Long enough that the thread which runs the gateway has had its turn.
_BREATH_S = 0.0003
_READ_ONLY = frozenset({"GET", "HEAD"})

_INDEX = """kvota: what a gateway does now; nothing can be changed here

/metrics       for Prometheus (text, or OpenMetrics where it is asked for)
/livez         200 while the gateway's event loop turns
/readyz        200 while clients may be sent here; else 503, and why
/v1/tenants    who uses how much of which limit, worst first (?limit=100)
/v1/shadow     who would be held back by the file of quotas.shadow, worst first (?limit=100)
/v1/explain    why a client is treated as it is (?user=NAME&client_id=NAME)
"""

Page = Callable[[Request], Awaitable[Response]]


class Pages:
    """All pages of one gateway.

    Args:
        source: looks at the gateway.

    Attributes:
        requests: how many there were, by path and code.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._labels = Labels()
        self._expositions = {is_open: Exposition(openmetrics=is_open) for is_open in (False, True)}
        self._scrapes = {
            False: SharedWork(self._scraped),
            True: SharedWork(self._scraped_openmetrics),
        }
        self.requests: Counter[tuple[str, int]] = Counter()

    def app(self, check: HostCheck) -> ASGIApp:
        """The pages as an ASGI application, for callers by these names."""
        pages: Mapping[str, Page] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/v1/tenants": self._tenants,
            "/v1/explain": self._explain,
            "/v1/shadow": self._shadow,
        }
        routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
        errors = {HTTPException: _refused, TimeoutError: _stuck}
        return _Gate(Starlette(routes=routes, exception_handlers=errors), check, self.requests)  # type: ignore[arg-type]

    async def _index(self, _request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    async def _metrics(self, request: Request) -> Response:
        is_openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        text = await self._scrapes[is_openmetrics].fresh()
        # In one: each part would take the interpreter for as long as all of it does.
        return Response(text, headers={"Content-Type": OPENMETRICS if is_openmetrics else TEXT})

    async def _scraped(self) -> bytes:
        return await self._written(openmetrics=False)

    async def _scraped_openmetrics(self) -> bytes:
        return await self._written(openmetrics=True)

    async def _written(self, *, openmetrics: bool) -> bytes:
        observed = await self._source.observed()
        return _breathing(self._expositions[openmetrics].written(families(observed, self._labels)))

    async def _livez(self, _request: Request) -> Response:
        health = await self._source.health()
        text = (
            "the gateway's event loop turns" if health.is_live else "the event loop does not turn"
        )
        return PlainTextResponse(text + "\n", 200 if health.is_live else 503)

    async def _readyz(self, _request: Request) -> Response:
        health = await self._source.health()
        reasons = list(health.reasons)
        if not health.is_live:
            reasons.append("the event loop does not turn")
        body = {"ready": not reasons, "reasons": reasons, "notes": list(health.notes)}
        return _json(body, 503 if reasons else 200)

    async def _tenants(self, request: Request) -> Response:
        limit = _number(request, "limit", TENANTS_DEFAULT, TENANTS_MAX)
        _only(request, "limit")
        return _json(await self._source.tenants(limit))

    async def _shadow(self, request: Request) -> Response:
        limit = _number(request, "limit", TENANTS_DEFAULT, TENANTS_MAX)
        _only(request, "limit")
        return _json(await self._source.shadowed(limit))

    async def _explain(self, request: Request) -> Response:
        _only(request, "user", "client_id")
        user = _name(request, "user") or "ANONYMOUS"
        return _json(await self._source.explained(user, _name(request, "client_id")))


class _Gate:
    """Lets through what is meant for us and changes nothing, and counts what was answered."""

    def __init__(self, app: ASGIApp, check: HostCheck, requests: Counter[tuple[str, int]]) -> None:
        self._app = app
        self._check = check
        self._requests = requests
        self._has_failed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        refusal = self._refusal(scope, host.decode("latin-1"))

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                known = scope["path"] if status in {200, 503} else "other"
                self._requests[known, status] += 1
                message.setdefault("headers", []).append((b"x-content-type-options", b"nosniff"))
            await send(message)

        try:
            await (refusal or self._app)(scope, receive, counted)
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                log.exception("a page could not be made: %s; traffic goes on", scope["path"][:80])
            raise

    def _refusal(self, scope: Scope, host: str) -> Response | None:
        if not self._check.is_ours(host):
            text = (
                "this gateway does not answer to that name. Call it by its address, or add the name to http.names "
                "of gateway.toml\n"
            )
            return PlainTextResponse(text, 421)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES_MAX:
            return PlainTextResponse(f"at most {HEAD_BYTES_MAX} bytes of headers\n", 431)
        if scope["method"] not in _READ_ONLY:
            return PlainTextResponse(
                "nothing can be changed here\n", 405, headers={"Allow": "GET, HEAD"}
            )
        return None


def _breathing(pieces: Iterable[bytes]) -> bytes:
    """All of it; between two pieces traffic has the interpreter, and whoever asks for another page waits some ms."""
    written = []
    for piece in pieces:
        written.append(piece)
        time.sleep(_BREATH_S)  # noqa: TID251  (no gateway runs on this thread)
    return b"".join(written)


async def _refused(_request: Request, error: HTTPException) -> Response:
    return PlainTextResponse(f"{error.detail}\n", error.status_code)


async def _stuck(_request: Request, _error: TimeoutError) -> Response:
    return PlainTextResponse("the gateway's event loop has not answered in time\n", 503)


def _json(body: Json, status: int = 200) -> Response:
    text = json.dumps(body, ensure_ascii=True, allow_nan=False)
    return Response(text + "\n", status, media_type="application/json")


def _only(request: Request, *known: str) -> None:
    for name in request.query_params:
        if name not in known:
            msg = f'there is no parameter "{name[:80]}" here. Known: {", ".join(known)}'
            raise HTTPException(400, msg)


def _name(request: Request, parameter: str) -> str:
    name = request.query_params.get(parameter, "")
    if len(name) > NAME_CHARS_MAX:
        msg = f"{parameter}: {len(name)} characters; at most {NAME_CHARS_MAX} are taken"
        raise HTTPException(400, msg)
    return name


def _number(request: Request, parameter: str, default: int, most: int) -> int:
    text = request.query_params.get(parameter, str(default))
    if not (text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        msg = f'{parameter}: "{text[:80]}" is not a number from 1 to {most}'
        raise HTTPException(400, msg)
    return int(text)
