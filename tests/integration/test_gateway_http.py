"""On a real Kafka: what HTTP tells is what the record has, and what clients were told."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.documented_files import not_of_a_gateway

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.app.http_client import ask
from kvota.localkafka import LocalKafka
from kvota.model.errors import UnreachableError
from kvota.testing.frames import produce, throttle_of

PROMTOOL = shutil.which("promtool")
MONITORING = Path(__file__).parents[2] / "monitoring"
# What a thousand connections at the HTTP port may cost: 64 are kept, each with a page that is not read.
CROWD_BYTES_MAX = 40 * 2**20
QUOTAS = '[[quota]]\nuser_default = true\nproducer_byte_rate = "100KB/s"\n'


@pytest.fixture
def gateway(tmp_path: Path, kafka: LocalKafka) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        record="record",
        http_port=0,
    )
    with GatewayProcess(tmp_path, config=config, quotas=QUOTAS) as running:
        yield running


class Producer(contextlib.AbstractContextManager["Producer"]):
    """One connection that sends Produce v9 requests and reads each answer."""

    def __init__(self, gateway: GatewayProcess, client_id: str = "app") -> None:
        host, port = gateway.bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.client_id = client_id
        self.correlation = 0

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, size: int) -> int:
        """Returns the throttle time that the answer tells."""
        self.correlation += 1
        # The records are no batch: the broker refuses them, and the gateway charges them all the same.
        frame = produce(client=self.client_id, correlation=self.correlation, records=b"r" * size)
        self.socket.sendall(frame)
        head = self.socket.recv(4, socket.MSG_WAITALL)
        answer = head + self.socket.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        return throttle_of(answer, 0, 9)


def metrics_of(gateway: GatewayProcess) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rows_of(gateway: GatewayProcess) -> list[dict[str, Any]]:
    files = sorted((gateway.folder / "record").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_counts_are_those_of_the_record_exactly(gateway: GatewayProcess) -> None:
    with contextlib.ExitStack() as stack:
        producers = [stack.enter_context(Producer(gateway, f"client-{n}")) for n in range(4)]
        for round_ in range(12):
            for producer in producers:
                producer.send(1_000 + 100 * round_)
        series = metrics_of(gateway)
    gateway.stop()

    record = sorted((gateway.folder / "record").rglob("*"))
    assert record
    assert not_of_a_gateway(record, gateway.folder) == []
    rows = rows_of(gateway)
    decisions = Counter((row["quota_type"], row["outcome"], row["enforced"]) for row in rows)
    assert sum(decisions.values()) == 48
    for (quota_type, outcome, enforced), count in decisions.items():
        labels = {
            "quota_type": quota_type,
            "outcome": outcome,
            "enforced": str(enforced).lower(),
        }
        assert series["kvota_decisions_total", tuple(sorted(labels.items()))] == count
    charged = sum(row["value"] for row in rows)
    key = (("enforced", "true"), ("quota_type", "PRODUCE"))
    assert series["kvota_charged_total", key] == charged
    assert series["kvota_requests_total", (("api", "Produce"),)] == 48
    assert series["kvota_request_bytes_total", (("api", "Produce"),)] == charged
    told_s = sum(row["throttle_ms"] for row in rows) / 1000
    of_user = {"quota_type": "PRODUCE", "user": "ANONYMOUS", "node_id": "1"}
    name = ("kvota_quota_throttle_seconds_total", tuple(sorted(of_user.items())))
    assert series[name] == pytest.approx(told_s)


def test_somebody_who_is_throttled_is_found_and_explained(gateway: GatewayProcess) -> None:
    url = gateway.http_url
    with Producer(gateway) as producer:
        # It is muted for more than a minute, as two more processes shall see that.
        throttle_ms = producer.send(10_000_000)
        assert throttle_ms > 0

        (tenant,) = ask(url, "/v1/tenants")["tenants"]
        asked_s = time.monotonic()
        explained = ask(url, "/v1/explain", {"client_id": "app"})
        _, status = _kvota("status", "--url", url)
        code, why = _kvota("explain", "--client-id", "app", "--url", url)

        assert tenant["user"] == "ANONYMOUS"
        assert tenant["muted_connections"] == 1
        assert 0 < tenant["mute_left_ms"] <= throttle_ms
        assert tenant["limit_from"].endswith("quotas.toml:1")
        left_ms = explained["quotas"][0]["counters"][0]["wait_ms"]
        assert 0 < left_ms <= throttle_ms
        assert re.search(r"ANONYMOUS PRODUCE .*KB/s, muted .*, 1 connection, quotas.toml:1", status)
        assert code == 1
        assert "PRODUCE  throttled for " in why
        assert "> level 6  the default user-principal" in why
        _wait_for(gateway, "throttling begins: ANONYMOUS PRODUCE at broker 1, 100 KB/s allowed by ")
        # Its limit is raised: it goes on at once, and that is seen.
        gateway.reload(QUOTAS.replace("100KB/s", "100MB/s"))
        raised_s = time.monotonic()
        assert producer.send(100) == 0
        # Long before its wait would have been over.
        assert time.monotonic() - raised_s < (left_ms / 1000 - (raised_s - asked_s)) / 2
        assert ask(url, "/v1/tenants")["tenants"][0]["throttled_until_ms"] is None
        assert _kvota("explain", "--client-id", "app", "--url", url)[0] == 0


SMALL = 20_000
# For minutes, so that it is still said of who asks slowly.
OVER = 3_000_000
TABLE = f"""
[[quota]]
client_id = "small"
producer_byte_rate = {SMALL}

[[quota]]
client_id_default = true
producer_byte_rate = 1_000_000_000

[[quota]]
user = "ANONYMOUS"
client_id = "of both"
producer_byte_rate = {SMALL}
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A client, what it has sent, and what must be said of the next request."""

    client_id: str
    sent: tuple[int, ...] = ()
    outlook: str
    level: int | None
    enforced: bool = True


CASES = {
    "never seen": Case(client_id="new", outlook="passes", level=8),
    "within its quota": Case(client_id="other", sent=(1_000,), outlook="passes", level=8),
    "over its quota": Case(client_id="small", sent=(OVER,), outlook="throttled", level=7),
    "by user and client id": Case(client_id="of both", sent=(OVER,), outlook="throttled", level=1),
    "no client id": Case(client_id="", sent=(300_000,), outlook="passes", level=None),
    "hostile": Case(client_id='"}\n', sent=(1_000,), outlook="passes", level=8),
    "in shadow mode": Case(
        client_id="small", sent=(300_000,), outlook="passes", level=7, enforced=False
    ),
}


def test_explain_says_what_the_wire_then_does(gateway: GatewayProcess) -> None:
    """``tests/unit/session/test_explaining`` has the whole table; here are sockets and a broker around it."""
    gateway.reload(TABLE)
    for name, case in CASES.items():
        if not case.enforced:
            _enforce_nothing(gateway)
        with Producer(gateway, case.client_id) as before:
            for size in case.sent:
                before.send(size)
            asked_s = time.monotonic()
            said = ask(gateway.http_url, "/v1/explain", {"client_id": case.client_id})["quotas"][0]
            (counter,) = said["counters"]
            with Producer(gateway, case.client_id) as after:
                told_ms = after.send(10)
        spent_ms = (time.monotonic() - asked_s) * 1000

        assert (counter["outlook"], said["enforced"]) == (case.outlook, case.enforced), name
        decides = [level["level"] for level in said["levels"] if level["decides"]]
        assert decides == ([case.level] if case.level else []), name
        if case.outlook == "passes":
            assert (told_ms, counter["throttled_until_ms"]) == (0, None), name
        else:
            # What the request itself costs is 10 bytes and its head: some ms of its limit.
            assert counter["wait_ms"] - spent_ms - 1 <= told_ms <= counter["wait_ms"] + 20, name
            assert counter["throttled_until_ms"] > said_at(gateway), name
    every, one = (ask(gateway.http_url, "/v1/tenants", {"limit": limit}) for limit in ("100", "1"))
    assert len(one["tenants"]) == 1
    assert one["counters"] == every["counters"] == len(every["tenants"]) > 1


def said_at(gateway: GatewayProcess) -> int:
    at_ms: int = ask(gateway.http_url, "/v1/tenants")["at_ms"]
    return at_ms


def _enforce_nothing(gateway: GatewayProcess) -> None:
    config = (gateway.folder / "gateway.toml").read_text()
    gateway.reload(TABLE, config.replace("enforce = true", "enforce = false"))


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_names_of_tenants_never_leave_their_quotes(gateway: GatewayProcess, accept: str) -> None:
    names = ['"}\n', '\\"', 'x",user="root', "\u2028\x85", "é 日本", "kvota_up 1\n# HELP"]
    for name in names:
        with Producer(gateway, name) as producer:
            producer.send(1_000)
    request = urllib.request.Request(gateway.http_url + "/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    parse = openmetrics_families if "openmetrics" in accept else text_string_to_metric_families
    samples = [sample for family in parse(text) for sample in family.samples]

    charged = {
        sample.labels.get("client_id", ""): sample.value
        for sample in samples
        if sample.name == "kvota_quota_charged_total"
    }
    # The quota is the user's: its clients share one counter, so no name of theirs is a label.
    assert charged.keys() == {""}
    assert {sample.labels.get("user") for sample in samples} <= {None, "ANONYMOUS", "__other__"}
    tenants = ask(gateway.http_url, "/v1/tenants")["tenants"]
    assert [tenant["user"] for tenant in tenants] == ["ANONYMOUS"]


def test_promtool_has_nothing_to_say(gateway: GatewayProcess) -> None:
    """Where there is no promtool its parser's twin in Python has read the same text in every other test."""
    if PROMTOOL is None:
        pytest.skip("no promtool on this machine: the metrics' names and the rules are not linted")
    gateway.reload(TABLE)
    for name in ('"}\n', "é 日本", "a"):
        with Producer(gateway, name) as producer:
            producer.send(1_000)
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=60) as answer:
        text = answer.read()

    linted = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False
    )
    rules = subprocess.run(
        [PROMTOOL, "test", "rules", "alerts_test.yml"],
        cwd=MONITORING,
        capture_output=True,
        check=False,
    )

    assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")
    assert rules.returncode == 0, rules.stdout


def test_a_crowd_at_the_http_port_does_not_touch_traffic(gateway: GatewayProcess) -> None:
    """A thousand connections, half of which send what is no HTTP, and never read."""
    host, port = gateway.http_url.removeprefix("http://").split(":")
    with Producer(gateway) as producer:
        assert producer.send(100) == 0
        before = memory_bytes(gateway)
        crowd = [socket.create_connection((host, int(port)), timeout=60) for _ in range(1_000)]
        for number, one in enumerate(crowd):
            with contextlib.suppress(OSError):
                one.sendall(
                    (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03")[number % 2]
                )
        for _ in range(20):
            assert producer.send(100) == 0
        assert memory_bytes(gateway) - before < CROWD_BYTES_MAX
        for one in crowd:
            one.close()

        assert _behind_the_crowd(gateway.http_url)["connections"] == 1
    assert "Traceback" not in gateway.log


def _behind_the_crowd(url: str) -> Any:
    """The tenants, as soon as it is noticed that the crowd has gone: it had all the places there are."""
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(*([UnreachableError] if time.monotonic() < end else [])):
            return ask(url, "/v1/tenants")
        time.sleep(0.05)


def memory_bytes(gateway: GatewayProcess) -> int:
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _kvota(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def _wait_for(gateway: GatewayProcess, text: str) -> None:
    end = time.monotonic() + 60
    while text not in gateway.log and time.monotonic() < end:
        time.sleep(0.05)
    assert text in gateway.log
