"""The gateway's own look at a cluster that goes away and comes back: what it knew stays, is marked, and is said once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.test_gateway_http import metrics_of

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

TOPIC = "outage_topic"
# Says what it is told, as a callback of somebody's own may.
MODULE = f"""
from kvota.callbacks import PartitionShareQuotaCallback

class Telling(PartitionShareQuotaCallback):
    def update_cluster_metadata(self, cluster):
        changed = super().update_cluster_metadata(cluster)
        topic = cluster.topics.get("{TOPIC}")
        state = "stale" if cluster.is_stale else "fresh"
        print("TOLD", state, topic and list(topic.leaders), len(cluster.brokers), flush=True)
        return changed
"""
SAID = (
    "cluster: topics and leaders cannot be looked at: ",
    "; what was known last stays in force",
    "cluster: what is known of topics and leaders is old by now, and stays in force",
    "cluster: topics and leaders can be looked at again",
)
_LOOK_S, _SEEN_S = 0.05, 60.0


def until(is_so: Callable[[], object], process: GatewayProcess) -> None:
    end = time.monotonic() + _SEEN_S
    while not is_so():
        assert time.monotonic() < end, process.log[-3_000:]
        time.sleep(_LOOK_S)


def told(process: GatewayProcess) -> list[str]:
    """What the callback was told, in its order."""
    return [line for line in process.log.splitlines() if line.startswith("TOLD ")]


def stale(process: GatewayProcess) -> float:
    return metrics_of(process)["kvota_cluster_stale", ()]


def test_what_was_known_stays_and_is_marked_until_the_broker_is_back(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outage_quotas.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    kafka.create_topic(TOPIC, partitions=2)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        http_port=0,
        kafka={
            "client.quota.callback.class": "outage_quotas.Telling",
            "client.quota.callback.share.separator": "_",
        },
    )
    with GatewayProcess(tmp_path, config=config, quotas="") as process:
        until(lambda: "TOLD fresh [1, 1] 1" in told(process), process)
        assert stale(process) == 0
        before = len(told(process))

        kafka.kill(1)
        try:
            until(lambda: all(process.log.count(words) for words in SAID[:-1]), process)
            until(lambda: "TOLD stale [1, 1] 1" in told(process)[before:], process)
            until(lambda: stale(process) == 1, process)
            # A topic of another test may have changed before.
            assert set(told(process)[before:-1]) <= {"TOLD fresh [1, 1] 1"}
            assert told(process)[-1] == "TOLD stale [1, 1] 1"
            assert [process.log.count(words) for words in SAID] == [1, 1, 1, 0]
        finally:
            kafka.start_node(1)

        until(lambda: process.log.count(SAID[-1]), process)
        until(lambda: told(process)[-1] == "TOLD fresh [1, 1] 1", process)
        until(lambda: stale(process) == 0, process)
        assert [process.log.count(words) for words in SAID] == [1, 1, 1, 1]
        assert " ERROR " not in process.log
