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
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.app.http_client import ask
from kvota.localkafka import LocalKafka
from kvota.testing.frames import produce, throttle_of

PROMTOOL = shutil.which("promtool")
MONITORING = Path(__file__).parents[2] / "monitoring"
QUOTAS = '[[quota]]\nuser_default = true\nproducer_byte_rate = "100KB/s"\n'


@pytest.fixture
def gateway(tmp_path: Path, kafka: LocalKafka) -> Iterator[GatewayProcess]:
    first_port = free_port_range(4)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        first_port=first_port,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        record="record",
        http_port=0,
    )
    with GatewayProcess(tmp_path, config=config, quotas=QUOTAS, first_port=first_port) as running:
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
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=15) as answer:
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
        throttle_ms = 0
        while not throttle_ms:
            throttle_ms = producer.send(400_000)

        (tenant,) = ask(url, "/v1/tenants")["tenants"]
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
        assert producer.send(100) == 0
        assert ask(url, "/v1/tenants")["tenants"][0]["throttled_until_ms"] is None
        assert _kvota("explain", "--client-id", "app", "--url", url)[0] == 0


def test_promtool_has_nothing_to_say(gateway: GatewayProcess) -> None:
    """Where there is no promtool its parser's twin in Python has read the same text in every other test."""
    if PROMTOOL is None:
        pytest.skip("no promtool on this machine: the metrics' names and the rules are not linted")
    with Producer(gateway, '"}\n') as producer:
        producer.send(1_000)
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=15) as answer:
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
    host, port = gateway.http_url.removeprefix("http://").split(":")
    crowd = [socket.create_connection((host, int(port)), timeout=15) for _ in range(300)]
    for number, one in enumerate(crowd):
        with contextlib.suppress(OSError):
            one.sendall(
                (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03")[number % 2]
            )
    with Producer(gateway) as producer:
        for _ in range(20):
            assert producer.send(100) == 0
        for one in crowd:
            one.close()

        assert ask(gateway.http_url, "/v1/tenants")["connections"] == 1
    assert "Traceback" not in gateway.log


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
    end = time.monotonic() + 10
    while text not in gateway.log and time.monotonic() < end:
        time.sleep(0.05)
    assert text in gateway.log
