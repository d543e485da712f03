"""Quotas that brokers hold become the gateway's: described through it they are the same lines."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import HOST
from tests.integration.kafka_configs.running import ConfigCommands
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked, entries_of, gateway
from tests.integration.test_quota_topic import said, sharing
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

VERSION = "4.3.1"
EVERYTHING = description(strict=False)
BROKERS_QUOTAS = (
    "--entity-type users --entity-name orders --add-config producer_byte_rate=4000000,consumer_byte_rate=8000000",
    "--entity-type users --entity-default --add-config controller_mutation_rate=2.5,request_percentage=33.3",
    "--entity-type clients --entity-name web --add-config producer_byte_rate=1024",
    "--entity-type clients --entity-default --add-config consumer_byte_rate=1000000",
    "--entity-type users --entity-name orders --entity-type clients --entity-default --add-config request_percentage=150",
    "--entity-type users --entity-default --entity-type clients --entity-name web --add-config producer_byte_rate=7",
    "--entity-type ips --entity-name 192.0.2.7 --add-config connection_creation_rate=10",
    "--entity-type ips --entity-default --add-config connection_creation_rate=100",
)
DESCRIPTIONS = (
    "--describe --entity-type users",
    "--describe --entity-type clients",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type ips",
)
VALUES = 10
_KNOWN_S = 60.0


@pytest.fixture(scope="module")
def tool() -> Iterator[ConfigCommands]:
    with ConfigCommands(VERSION) as tool:
        yield tool


@pytest.fixture(scope="module")
def kafka_with_quotas(tool: ConfigCommands) -> Iterator[LocalKafka]:
    """A broker with quotas that kafka-configs.sh has set."""
    with LocalKafka(host=HOST, version=VERSION, java_options=SHORT_LIVED) as kafka:
        for line in BROKERS_QUOTAS:
            ended = tool.run(
                ["--bootstrap-server", "{address}", "--alter", *line.split()],
                kafka.bootstrap_servers,
            )
            assert ended.exit_code == 0, ended
        with RawClient(kafka.nodes[0].address) as direct:
            until_described(direct, EVERYTHING, len(BROKERS_QUOTAS))
        yield kafka


def described_lines(tool: ConfigCommands, bootstrap_servers: str) -> list[str]:
    lines: list[str] = []
    for line in DESCRIPTIONS:
        ended = tool.run(["--bootstrap-server", "{address}", *line.split()], bootstrap_servers)
        assert ended.exit_code == 0, ended
        lines += ended.stdout.splitlines()
    return sorted(lines)


def imported(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """As somebody types it who stands beside gateway.toml."""
    return subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", "gateway", "import-quotas", *options],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def quotas_of(process: GatewayProcess) -> object:
    with RawClient(address(process)) as client:
        return entries_of(asked(client, EVERYTHING), 1)


@pytest.mark.parametrize("source", ["toml", "file", "file of a gateway that runs", "topic"])
def test_the_same_lines_and_nothing_more_when_run_again(
    kafka_with_quotas: LocalKafka, tool: ConfigCommands, tmp_path: Path, source: str
) -> None:
    kafka = kafka_with_quotas
    if source == "topic":
        process = sharing(tmp_path, kafka, "imported")
    else:
        kind = None if source == "toml" else "file"
        process = gateway(tmp_path, kafka.bootstrap_servers, source=kind)
    if "runs" in source:
        with process:
            done = imported(tmp_path, "--yes")
            lines = described_lines(tool, process.bootstrap_servers)
            again = imported(tmp_path, "--yes")
    else:
        done = imported(tmp_path, "--yes")
        with process:
            if source == "topic":
                said(process, "has been read: quotas of 8 entities")
            lines = described_lines(tool, process.bootstrap_servers)
            again = imported(tmp_path, "--yes")

    assert done.returncode == again.returncode == 0, (done, again)
    expected = described_lines(tool, kafka.bootstrap_servers)
    left_out = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert not left_out
    assert done.stdout.count("none -> ") == VALUES, done
    assert "to undo: " in done.stderr
    assert "nothing would change" in again.stderr
    assert lines == expected
    assert len(expected) >= len(BROKERS_QUOTAS) - 1


def test_what_quotas_toml_cannot_say_is_named_and_left_out(
    kafka_with_quotas: LocalKafka, tmp_path: Path
) -> None:
    strange, of_strange = {"user": "strange"}, description(("user", 0, "strange"))
    not_a_number = alteration((strange, {"producer_byte_rate": float("nan")}))
    process = gateway(tmp_path, kafka_with_quotas.bootstrap_servers, source=None)
    with RawClient(kafka_with_quotas.nodes[0].address) as direct:
        try:
            assert altered(asked(direct, not_a_number))[0][1] == 0
            until_described(direct, of_strange, 1)
            done = imported(tmp_path, "--yes")
        finally:
            asked(direct, alteration((strange, {"producer_byte_rate": None})))
            until_described(direct, of_strange, 0)

    assert done.returncode == 0, done
    assert done.stdout.count("none -> ") == VALUES
    (left_out,) = [line for line in done.stderr.splitlines() if "user-principal 'strange'" in line]
    assert left_out.startswith("left out: ")
    assert "producer_byte_rate" in left_out
    with process:
        assert "strange" not in str(quotas_of(process))


def until_described(direct: RawClient, which: bytes, entities: int) -> None:
    """A broker's metadata follows its controller."""
    end = time.monotonic() + _KNOWN_S
    while len(found := described(asked(direct, which))) != entities:
        assert time.monotonic() < end, found
        time.sleep(0.02)


def test_nothing_is_changed_without_a_yes(kafka_with_quotas: LocalKafka, tmp_path: Path) -> None:
    process = gateway(tmp_path, kafka_with_quotas.bootstrap_servers)
    done = imported(tmp_path)
    with process:
        found = quotas_of(process)

    assert done.returncode == 1
    assert "+ user-principal 'orders' producer_byte_rate none -> 4000000\n" in done.stdout
    assert "nothing was changed" in done.stderr
    assert found == (0, "", [])


@pytest.mark.parametrize("source", ["file", "topic"])
def test_replacing_and_undoing_it(
    kafka_with_quotas: LocalKafka, tmp_path: Path, source: str
) -> None:
    own = alteration(
        ({"user": "orders"}, {"producer_byte_rate": 5.0}),
        ({"user": "own"}, {"request_percentage": 50.0}),
    )
    if source == "topic":
        process = sharing(tmp_path, kafka_with_quotas, "replaced")
    else:
        process = gateway(tmp_path, kafka_with_quotas.bootstrap_servers)
    with process, RawClient(address(process)) as client:
        if source == "topic":
            said(process, "has been read: quotas of 0 entities")
        assert {code for _, code, _ in altered(asked(client, own))} == {0}
        before = quotas_of(process)
        done = imported(tmp_path, "--yes", "--replace")
        (undo,) = [line for line in done.stderr.splitlines() if "to undo: " in line]
        lines = done.stdout.splitlines()
        undone = imported(tmp_path, *undo.partition("import-quotas ")[2].split(), "--yes")
        while quotas_of(process) != before:  # what comes from a topic comes a little later
            assert undone.returncode == 0, undone

    assert done.returncode == undone.returncode == 0, (done, undone)
    assert "~ user-principal 'orders' producer_byte_rate 5 -> 4000000" in lines
    assert "- user-principal 'own' request_percentage 50 -> none" in lines


def test_who_may_not_see_them_is_told_which_right_is_missing(
    acl_kafka: LocalKafka, tmp_path: Path
) -> None:
    gateway(tmp_path, acl_kafka.sasl_bootstrap_servers)
    login = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '  username="{0}" password="{0}-secret";\n'
    )
    for name in ("alice", "operator"):
        (tmp_path / f"{name}.properties").write_text(login.format(name))
    (tmp_path / "gateway.toml").write_text((tmp_path / "gateway.toml").read_text())

    refused = imported(tmp_path, "--command-config", "alice.properties")
    done = imported(tmp_path, "--command-config", "operator.properties")

    assert refused.returncode == 2
    assert "DESCRIBE_CONFIGS" in refused.stderr
    assert "kafka-configs.sh --bootstrap-server" in refused.stderr
    assert "secret" not in refused.stderr + refused.stdout
    assert done.returncode == 0, done
