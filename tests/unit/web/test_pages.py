"""What the pages answer, to whom, and that nothing can be changed there."""

import asyncio

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.web.conftest import Told, body_of

from kvota.model.errors import UnreachableError
from kvota.web.host_check import HostCheck
from kvota.web.server import HttpServer
from kvota.web.settings import HttpSettings
from kvota.web.shared_work import BETWEEN_S, SharedWork
from kvota.web.source import Health


def test_metrics_in_prometheus_text(get) -> None:
    status, headers, text = get("/metrics")

    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["content-length"]) == len(text.encode())
    names = {family.name for family in text_string_to_metric_families(text)}
    assert "kvota_quota_charged" in names


def test_metrics_in_openmetrics_where_they_are_asked_for(get) -> None:
    _, headers, text = get(
        "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    )

    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert list(openmetrics.text_string_to_metric_families(text))


def test_requests_are_counted_by_path_and_code(get, server: HttpServer) -> None:
    get("/livez")
    get("/livez")
    get("/nowhere")
    get("/livez", Host="evil.example")

    assert server.pages.requests == {
        ("/livez", 200): 2,
        ("other", 404): 1,
        ("other", 421): 1,
    }


@pytest.mark.parametrize(
    ("health", "livez", "readyz", "reasons"),
    [
        (Health(is_live=True), 200, 200, []),
        (Health(is_live=True, notes=("a broker is away",)), 200, 200, []),
        (Health(is_live=True, reasons=("it drains",)), 200, 503, ["it drains"]),
        (Health(is_live=False), 503, 503, ["the event loop does not turn"]),
    ],
)
def test_health(get, told: Told, health: Health, livez: int, readyz: int, reasons: list) -> None:
    told.health_now = health

    assert get("/livez")[0] == livez
    answer = get("/readyz")
    assert answer[0] == readyz
    assert body_of(answer) == {
        "ready": not reasons,
        "reasons": reasons,
        "notes": list(health.notes),
    }


def test_json_pages_pass_on_what_was_asked(get, told: Told) -> None:
    assert get("/v1/tenants")[0] == 200
    assert get("/v1/tenants?limit=7")[0] == 200
    assert get("/v1/explain?user=team%20a&client_id=%22%7D%0A")[0] == 200
    assert get("/v1/explain")[0] == 200
    assert get("/v1/shadow?limit=9")[0] == 200

    assert told.asked == [
        ("tenants", 100),
        ("tenants", 7),
        ("explained", "team a", '"}\n'),
        ("explained", "ANONYMOUS", ""),
        ("shadowed", 9),
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/tenants?limit=0", 'limit: "0" is not a number from 1 to 1000'),
        ("/v1/tenants?limit=1001", "is not a number from 1 to 1000"),
        ("/v1/tenants?limit=" + "9" * 500, "is not a number"),
        ("/v1/tenants?limit=%C2%B2", "is not a number"),
        ("/v1/tenants?limt=5", 'no parameter "limt" here. Known: limit'),
        ("/v1/explain?user=" + "x" * 2000, "user: 2000 characters; at most 1024 are taken"),
        ("/v1/shadow?user=x", 'no parameter "user" here. Known: limit'),
        ("/v1/explain?client=x", "Known: user, client_id"),
    ],
)
def test_wrong_questions_are_told_what_is_wrong(get, told: Told, path: str, said: str) -> None:
    status, _, text = get(path)

    assert status == 400
    assert said in text
    assert told.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(get, told: Told, method: str) -> None:
    status, headers, _ = get("/v1/tenants", method=method)

    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert told.asked == []


def test_a_head_request_gets_the_head_alone(get) -> None:
    status, headers, text = get("/metrics", method="HEAD")

    assert (status, text) == (200, "")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9180", 200),
        ("10.1.2.3:9180", 200),
        ("[::1]:9180", 200),
        ("localhost:9180", 200),
        ("LOCALHOST.", 200),
        ("kvota.prod.example:9180", 200),
        ("evil.example", 421),
        ("evil.example:9180", 421),
        ("kvota.prod.example.evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
def test_only_callers_that_know_our_name_are_answered(get, host: str, status: int) -> None:
    assert get("/livez", Host=host)[0] == status


def test_the_name_is_looked_at_before_anything_else(get, told: Told) -> None:
    get("/v1/tenants", Host="evil.example")

    assert told.asked == []


def test_a_source_that_does_not_answer_in_time_is_said(get, told: Told) -> None:
    told.fails = TimeoutError()

    status, _, text = get("/metrics")

    assert status == 503
    assert "event loop has not answered in time" in text


def test_a_page_that_fails_is_logged_once_and_the_others_go_on(
    get, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.fails = ZeroDivisionError("oops")
    assert [get("/v1/tenants")[0] for _ in range(3)] == [500, 500, 500]
    told.fails = None

    assert get("/v1/tenants")[0] == 200
    assert [record.message for record in caplog.records] == [
        "a page could not be made: /v1/tenants; traffic goes on"
    ]


def test_a_port_that_is_taken_is_said(server: HttpServer, port: int) -> None:
    with pytest.raises(UnreachableError, match=f"cannot listen on 127.0.0.1:{port} \\(HTTP\\)"):
        HttpServer(HttpSettings(port=port, is_port_stated=True))


def test_names_are_compared_whole() -> None:
    check = HostCheck(["gateway.example"])

    assert not check.is_ours(None)
    assert not check.is_ours("gateway.example:80:80")
    assert not check.is_ours("gateway.example:x")
    assert check.is_ours("Gateway.Example.:80")


async def test_work_is_shared_and_begins_after_it_was_asked_for() -> None:
    begun: list[float] = []

    async def work() -> int:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        return len(begun)

    shared = SharedWork(work)
    asked = asyncio.get_running_loop().time()
    first = await shared.fresh()
    results = await asyncio.gather(*[shared.fresh() for _ in range(50)])

    assert first == 1
    assert results == [2] * 50
    assert begun[1] - asked >= BETWEEN_S * 0.99  # a timer may be early by the clock's step


async def test_work_that_fails_fails_for_those_who_asked_and_is_done_again() -> None:
    outcomes = [ZeroDivisionError(), 7]

    async def work() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    shared = SharedWork(work)
    with pytest.raises(ZeroDivisionError):
        await shared.fresh()

    assert await shared.fresh() == 7
