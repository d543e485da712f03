"""An HTTP port whose source says what a test wants."""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.metrics.conftest import Held, Rows, memo
from tests.unit.metrics.test_families import observed

from kvota.metrics.cells import Cells
from kvota.metrics.families import Observed
from kvota.metrics.tally import Tally
from kvota.web.server import HttpServer
from kvota.web.settings import HttpSettings
from kvota.web.source import Health, Json

Answer = tuple[int, dict[str, str], str]


class Told:
    """A source that tells what it was told, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.health_now = Health(is_live=True)
        self.fails: Exception | None = None
        tally = Tally(Cells(shown_max=1000), Held())
        self.rows = Rows(tally)
        self.rows.add((memo("alice"), 0, 100))

    async def observed(self) -> Observed:
        self._note("observed")
        return observed(self.rows)

    async def tenants(self, at_most: int) -> Json:
        self._note("tenants", at_most)
        return {"tenants": []}

    async def shadowed(self, at_most: int) -> Json:
        self._note("shadowed", at_most)
        return {"file": None}

    async def explained(self, user: str, client_id: str) -> Json:
        self._note("explained", user, client_id)
        return {"user": user}

    async def health(self) -> Health:
        self._note("health")
        return self.health_now

    def _note(self, *asked: object) -> None:
        self.asked.append(asked)
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def server(told: Told) -> Iterator[HttpServer]:
    server = HttpServer(HttpSettings(port=0, names=("kvota.prod.example",)))
    server.start(lambda _: told)
    yield server
    server.stop()


@pytest.fixture
def port(server: HttpServer) -> int:
    return int(server.address.rpartition(":")[2])


@pytest.fixture
def get(port: int) -> Callable[..., Answer]:
    def ask(path: str, *, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=fields)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    return ask


def body_of(answer: Answer) -> Any:
    return json.loads(answer[2])
