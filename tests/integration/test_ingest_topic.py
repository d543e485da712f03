"""``kvota ingest`` from the topic that gateways record into, with the login that the options name."""

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.topic_events import forget, recorded

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.record.check import check
from kvota.record.found_events import find_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("spark")]

LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";
"""


def test_a_topic_of_several_gateways_becomes_a_record_once_and_what_is_gone_is_named(
    sasl_kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, into = "ingested", tmp_path / "into"
    servers = sasl_kafka.bootstrap_servers
    (tmp_path / "login.properties").write_text(LOGIN)
    command = [
        *("ingest", "--topic", topic, "--bootstrap-server", sasl_kafka.sasl_bootstrap_servers),
        *("--command-config", str(tmp_path / "login.properties"), "--into", str(into)),
    ]

    def ingested(*more: str) -> dict[str, object]:
        capsys.readouterr()
        assert main([*command, *more, "--output", "json"]) == 0
        told: dict[str, object] = json.loads(capsys.readouterr().out)
        return told

    assert main(command) == 1
    assert f"there is no topic {topic}" in capsys.readouterr().err
    sasl_kafka.create_topic(topic, partitions=2)
    for gateway, rows in (("gw-1", 2_500), ("gw-2", 1_500), ("gw-3", 700)):
        recorded(sasl_kafka, topic, gateway=gateway, rows=rows)
    producer = Producer({"bootstrap.servers": servers, "compression.type": "gzip"})
    producer.produce(topic, b"no block at all " * 10, partition=1)
    producer.flush(30)

    told = ingested()
    assert (told["decisions"], told["repeated_decisions"], told["missing_decisions"]) == (4_700, 0, 0)  # fmt: skip
    (bad,) = told["bad"]  # type: ignore[misc]
    assert (bad["source"], bad["reason"]) == (f"{topic}/1", "a compressed batch")
    assert ingested()["decisions"] == 0

    # A gateway that sends again what it has sent, and more.
    recorded(sasl_kafka, topic, gateway="gw-1", rows=3_000)
    told = ingested()
    assert (told["decisions"], told["repeated_decisions"]) == (500, 2_500)
    assert check(find_events([into])).is_sound
    assert find_events([into]).rows == 5_200

    for gateway in ("gw-1", "gw-2", "gw-3"):
        recorded(sasl_kafka, topic, gateway=gateway, rows=100)
    end = asyncio.run(forget(sasl_kafka, topic))
    assert main(command) == 1
    said = capsys.readouterr().err
    assert f"topic {topic}, partition 0: the blocks from offset " in said
    assert f" to {end - 1} are gone" in said
    assert "remove the checkpoint" in said
    assert ingested("--checkpoint", str(tmp_path / "checkpoint"))["decisions"] == 0
    assert find_events([into]).rows == 5_200
