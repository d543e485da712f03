"""``kvota configs`` beside ``kafka-configs.sh``: the same lines and exit codes, on a broker and on a gateway."""

import io
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from tests.integration.conftest import HOST
from tests.integration.kafka_configs.command_lines import (
    command_lines,
    lines_of_arguments,
    lines_on_a_number,
)
from tests.integration.kafka_configs.running import ConfigCommands, Ended
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import gateway
from tests.integration.test_kafka_configs import LIKE, in_any_order, known_everywhere

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

# A broker's settings follow its controller.
_KNOWN_S = 60.0
Known = tuple[str, int, bool]
Table = Sequence[Sequence[str]]


def run(words: Sequence[str], servers: str) -> Ended:
    """Run ``kvota configs``; ``{address}`` is replaced, and again in what it has written."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(["configs", *(word.replace("{address}", servers) for word in words)])
        except SystemExit as ended:
            code = int(str(ended.code))
    return Ended(code, out.getvalue().replace(servers, "{address}"), err.getvalue())


def known_of(ended: Ended) -> Known:
    """What stands on stdout, the exit code, and whether something is said about it."""
    return in_any_order(ended).stdout, ended.exit_code, bool(ended.stderr)


@pytest.fixture(scope="module")
def kafkas() -> Iterator[tuple[LocalKafka, LocalKafka]]:
    """One for each tool."""
    both = tuple(LocalKafka(host=HOST, java_options=SHORT_LIVED) for _ in range(2))
    with ThreadPoolExecutor() as threads:
        list(threads.map(LocalKafka.start, both))
    yield both[0], both[1]
    for kafka in both:
        kafka.stop()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    config_file = tmp_path_factory.mktemp("configs") / "quotas.properties"
    config_file.write_text("producer_byte_rate=1024\nrequest_percentage=2000000\n")
    on_a_number = [
        [part.replace("{setting}", LIKE) for part in line] for line in lines_on_a_number()
    ]
    return [*command_lines(str(config_file)), *lines_of_arguments(), *on_a_number]


@pytest.mark.timeout(600)
def test_same_lines_and_same_exit_codes(
    kafkas: tuple[LocalKafka, LocalKafka], table: Table, tmp_path: Path
) -> None:
    theirs, ours = kafkas
    with (
        gateway(tmp_path, ours.bootstrap_servers) as process,
        ConfigCommands("4.3.1") as tool,
        RawClient(theirs.nodes[0].address) as one,
        RawClient(ours.nodes[0].address) as other,
    ):
        for kafka in kafkas:
            words = ["create", "orders", "--bootstrap-server", kafka.bootstrap_servers]
            assert main(["topics", *words]) == 0
        for line in table:
            expected, said = side_by_side(tool, line, kafkas)
            end = time.monotonic() + _KNOWN_S
            while "--describe" in line and said != expected:
                assert time.monotonic() < end, (line, expected, said)
                expected, said = side_by_side(tool, line, kafkas)
            assert said == expected, line
            known_everywhere(one, other)
            if is_of_quotas(line):  # those are the gateway's, not the broker's behind it
                assert known_of(run(line, process.bootstrap_servers)) == expected, line
    assert len(table) > 150


def side_by_side(
    tool: ConfigCommands, line: Sequence[str], kafkas: tuple[LocalKafka, LocalKafka]
) -> tuple[Known, Known]:
    """What Kafka's tool and ours make of a line, each on its own cluster, at the same time."""
    theirs, ours = kafkas
    with ThreadPoolExecutor() as threads:
        told = threads.submit(tool.run, line, theirs.bootstrap_servers)
        said = run(line, ours.bootstrap_servers)
    return known_of(told.result()), known_of(said)


def is_of_quotas(line: Sequence[str]) -> bool:
    """Whether what it does stays in a gateway, and does not depend on what the broker behind it has."""
    text = " ".join(line)
    others = ("SCRAM", "scrammed", "broker", "topic", "--user a")
    return not any(word in text for word in others) and text[-5:] != "users"


def test_programs_are_told_the_same(kafkas: tuple[LocalKafka, LocalKafka]) -> None:
    servers = kafkas[1].bootstrap_servers

    def told(words: str) -> dict[str, object]:
        ended = run([*words.split(), "--output", "json", "--bootstrap-server", servers], servers)
        assert ended.exit_code == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found.pop("schema") == 1
        return dict(found)

    altered = told("--alter --user json --client-defaults --add-config consumer_byte_rate=5")
    assert altered == {
        "altered": [
            {"entity_type": "users", "entity_name": "json"},
            {"entity_type": "clients", "entity_name": None},
        ]
    }
    asked = "--describe --user json --client-defaults"
    end = time.monotonic() + _KNOWN_S
    while not told(asked):
        assert time.monotonic() < end
    entity = {"user": "json", "client_id": None}
    assert told(asked) == {"quotas": [{"entity": entity, "values": {"consumer_byte_rate": 5.0}}]}

    told("--alter --user json --add-config SCRAM-SHA-512=[password=secret]")
    end = time.monotonic() + _KNOWN_S
    while not (found := told("--describe --user json")):
        assert time.monotonic() < end
    credentials = [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    assert found == {"scram_credentials": [{"user": "json", "credentials": credentials}]}

    # Nothing is left for the tests that come after this one.
    told("--alter --user json --delete-config SCRAM-SHA-512")
    told("--alter --user json --client-defaults --delete-config consumer_byte_rate")
    end = time.monotonic() + _KNOWN_S
    while told(asked) or told("--describe --user json"):
        assert time.monotonic() < end

    (settings,) = told("--describe --broker 1 --all")["settings"]  # type: ignore[misc]
    assert settings["entity_name"] == "1"
    assert {"name", "value", "source", "is_sensitive", "synonyms"} == set(settings["configs"][0])
    assert told("--describe --broker 99") == {
        "absent": [{"entity_type": "brokers", "entity_name": "99"}]
    }


def test_a_key_that_the_broker_does_not_know_is_said_with_the_nearest(
    kafkas: tuple[LocalKafka, LocalKafka],
) -> None:
    words = "--bootstrap-server {address} --alter --user orders --add-config produce_byte_rate=1"
    ended = run(words.split(), kafkas[1].bootstrap_servers)

    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "invalid_request (42): Invalid configuration key produce_byte_rate" in ended.stderr
    assert 'did you mean "producer_byte_rate"?' in ended.stderr


def test_a_password_is_in_no_text() -> None:
    for value in ("secret", "[iterations=x,password=secret]", "[iterations=9,password=secret]"):
        words = ["--bootstrap-server", "127.0.0.1:9", "--alter", "--user", "a", "--add-config"]
        ended = run([*words, f"SCRAM-SHA-256={value},secret"], "")
        assert ended.exit_code == 1
        assert "secret" not in ended.stdout + ended.stderr
