"""``kvota ingest`` from the topic that gateways record into, with the login that the options name."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer
from tests.integration.topic_events import forget, recorded

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.record.check import check
from kvota.record.found_events import find_events
from kvota.record.ingested import read_progress

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("spark")]

# Spark starts twice, on a machine that may have other work.
SEEN_S = 300.0
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
    assert producer.flush(60) == 0

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


class Following:
    """``kvota ingest --follow`` in a process of its own, with no kernel compiled, and a JVM that can be told from others."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._mark = f"spark.kvota.mark={folder}"
        self._log = folder / "log"
        self._kernels = folder / "kernels"
        with self._log.open("w") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kvota.app.cli.main", *command, "--follow", "--every", "200ms"),
                    *("--master", "local[2]", "--memory", "700m", "--conf", self._mark),
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=os.environ | {"NUMBA_CACHE_DIR": str(self._kernels)},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until_rows(self, into: Path, rows: int) -> None:
        end = time.monotonic() + SEEN_S
        while read_progress(into).rows != rows:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code, and what it prints."""
        (jvm,) = self._jvms()
        assert "-Xmx700m" in jvm
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=120)
        assert self._jvms() == []
        compiled = [path for path in self._kernels.rglob("*") if path.is_file()]
        assert compiled == [], "no kernel is used"
        return self.process.returncode, out

    @property
    def said(self) -> str:
        return self._log.read_text()

    def _jvms(self) -> list[str]:
        listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)  # fmt: skip
        lines = listed.stdout.splitlines()
        return [line for line in lines if self._mark in line and "java" in line.split()[0]]


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    """A node that may go away: those of others are not to."""
    with LocalKafka(host="127.0.0.1", java_options=SHORT_LIVED) as kafka:
        yield kafka


def test_it_follows_a_topic_past_a_broker_that_was_away_and_says_at_the_end_what_it_was(
    own_kafka: LocalKafka, tmp_path: Path
) -> None:
    topic, into = "followed", tmp_path / "into"
    servers = own_kafka.bootstrap_servers
    own_kafka.create_topic(topic, partitions=2)
    recorded(own_kafka, topic, gateway="gw-1", rows=1_500, lost=100)
    command = ("ingest", "--topic", topic, "--bootstrap-server", servers, "--into", str(into))
    with Following(tmp_path, *command) as following:
        following.until_rows(into, 1_500)
        recorded(own_kafka, topic, gateway="gw-2", rows=700)
        following.until_rows(into, 2_200)
        own_kafka.stop_node(1)
        own_kafka.start_node(1)
        recorded(own_kafka, topic, gateway="gw-3", rows=300, lost=7)
        following.until_rows(into, 2_500)
        code, out = following.end(signal.SIGINT)

    assert (code, following.said.splitlines()[-1]) == (130, "interrupted")
    assert "Traceback" not in following.said
    first, *gaps = out.splitlines()
    assert first.startswith(f"{into}: 2,500 decisions taken in ")
    assert first.endswith("; 0 had been taken before; 107 missing so far")
    assert gaps == [
        "gateway gw-1, run run: 100 decisions missing, seq 0 to 99",
        "gateway gw-3, run run: 7 decisions missing, seq 0 to 6",
    ]
    with Following(tmp_path, *command, "--output", "json") as following:
        recorded(own_kafka, topic, gateway="gw-1", rows=120)
        following.until_rows(into, 2_600)
        code, out = following.end(signal.SIGTERM)
    told = json.loads(out)
    assert code == 0
    assert "Traceback" not in following.said
    assert "interrupted" not in following.said
    assert (told["decisions"], told["repeated_decisions"], told["missing_decisions"]) == (100, 20, 7)  # fmt: skip
    assert check(find_events([into])).missing == 0
