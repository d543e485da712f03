"""A quota callback of one's own that sleeps for 90 s, under real clients: it disturbs nobody."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.integration.bandwidth_frames import produce_frame, produce_result
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked, gateway
from tests.integration.test_quota_topic import said

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka

TOPIC = "written-under-one-that-sleeps"
CLASS = "sleeping_quotas.Sleeping"
MODULE = """
import time
from kvota.callbacks import ClientQuotaCallback

class Sleeping(ClientQuotaCallback):
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"team": client_id}
    def quota_limit(self, quota_type, tags):
        if tags["team"].startswith("new"):
            print("sleeps", flush=True)
            time.sleep(90)
            print("woke", flush=True)
        return 1_000.0 if tags["team"] == "slow" else 1e9
    def update_quota(self, quota_type, entity, limit):
        pass
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False
"""


@dataclass
class Traffic:
    """Of one librdkafka producer: what became of its records, and what it has noticed."""

    delivered: int = 0
    failed: list[str] = field(default_factory=list)

    def report(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(str(error))

    def notice(self, error: KafkaError) -> None:
        self.failed.append(str(error))


@contextmanager
def producing(process: GatewayProcess, client_id: str) -> Iterator[Traffic]:
    """While it is entered; what was sent is delivered behind it."""
    traffic, ended = Traffic(), threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "client.id": client_id,
            "linger.ms": 0,
            "error_cb": traffic.notice,
        }
    )

    def run() -> None:
        while not ended.is_set():
            producer.produce(TOPIC, bytes(100), on_delivery=traffic.report)
            producer.poll(0.01)
        if producer.flush(60):
            traffic.failed.append("not all of it was delivered")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield traffic
    finally:
        ended.set()
        thread.join(70)


def throttled_ms(process: GatewayProcess, kafka: LocalKafka, client_id: str) -> int:
    host, port = address(process)
    frame = produce_frame(TOPIC, value_bytes=50_000, client_id=client_id)
    with RawClient((host, port + 1 + kafka.nodes[0].node_id)) as client:
        code, throttle_ms = produce_result(asked(client, frame)[4:], TOPIC)
    assert code == 0
    return throttle_ms


def until(traffic: Traffic, count: int, process: GatewayProcess) -> None:
    """So many more records are delivered, while the callback sleeps."""
    wanted = traffic.delivered + count
    while traffic.delivered < wanted:
        assert "woke" not in process.log, traffic
        time.sleep(0.01)


def test_others_and_known_clients_go_on(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic(TOPIC)
    (tmp_path / "sleeping_quotas.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    more = f'\n[kafka]\n"client.quota.callback.class" = "{CLASS}"\n'
    # Who has no answer of the callback's yet counts by this.
    quotas = '[[quota]]\nclient_id = "new-slow"\nproducer_byte_rate = 1000\n'
    process = gateway(
        tmp_path,
        kafka.bootstrap_servers,
        source=None,
        more=more,
        quotas=quotas,
        enforce=("PRODUCE",),
    )
    with process, producing(process, "known") as known:
        until(known, 1, process)
        assert throttled_ms(process, kafka, "slow") > 10_000
        assert "sleeps" not in process.log
        with producing(process, "new") as new, producing(process, "other") as other:
            for traffic in (new, other, known):
                until(traffic, 20, process)
            said(process, "sleeps")
            # The last good answer stays, and without one Kafka's own rules count.
            assert throttled_ms(process, kafka, "slow") > 10_000
            assert throttled_ms(process, kafka, "new-slow") > 10_000
            until(known, 20, process)
            said(process, "has not come back from quota_limit for")
        log = process.log

    assert "woke" not in log
    assert known.failed == new.failed == other.failed == []
    assert "Traceback" not in log
