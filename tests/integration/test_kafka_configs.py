"""kafka-configs.sh, unmodified: each command line once against a broker, once against a gateway."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.integration.conftest import HOST
from tests.integration.kafka_configs.command_lines import (
    ADD,
    DELETE,
    alter,
    command_lines,
    describe,
    lines_of_rights,
    lines_of_the_gateway,
    lines_on_a_number,
)
from tests.integration.kafka_configs.running import ConfigCommands, Ended
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked, entries_of, gateway
from tests.unit.quota_api.written import alteration, altered, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import KAFKA_VERSION
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.broker_settings import WINDOW_DEFAULTS

# A broker's metadata follows its controller.
_KNOWN_S = 60.0
# Of all brokers, a number from 1 on, dynamic.
LIKE, LIKE_DEFAULT = "background.threads", 10


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_same_text_and_same_exit_code(tmp_path: Path, version: str) -> None:
    config_file = tmp_path / "quotas.properties"
    config_file.write_text("producer_byte_rate=1024\nrequest_percentage=2000000\n")
    with (
        LocalKafka(host=HOST, version=version, java_options=SHORT_LIVED) as straight_kafka,
        LocalKafka(host=HOST, version=version, java_options=SHORT_LIVED) as kafka,
        gateway(tmp_path, kafka.bootstrap_servers) as process,
        ConfigCommands(version) as tool,
        RawClient(straight_kafka.nodes[0].address) as direct,
        RawClient(address(process)) as client,
    ):
        for line in command_lines(str(config_file)):
            until_the_same(
                line,
                partial(tool.run, line, process.bootstrap_servers),
                partial(tool.run, line, straight_kafka.bootstrap_servers),
            )
            known_everywhere(direct, client)
        for line in lines_on_a_number():
            # A broker takes these from its file only: a setting of its own that is like them is the measure.
            told = on_setting(tool, line, process.bootstrap_servers, "quota.window.num")
            end = time.monotonic() + _KNOWN_S
            while told != on_setting(tool, line, straight_kafka.bootstrap_servers, LIKE):
                assert time.monotonic() < end, (line, told)
        for line, words in lines_of_the_gateway():
            told = tool.run(line, process.bootstrap_servers)
            end = time.monotonic() + _KNOWN_S
            while "--describe" in line and words not in told.stdout:  # the broker's part may lag
                assert time.monotonic() < end, (line, told)
                told = tool.run(line, process.bootstrap_servers)
            assert words in told.stdout + told.stderr, line
            assert told.exit_code == (not told.stdout), line
        describes_the_same_broker(tool, kafka, process.bootstrap_servers)


@pytest.fixture(scope="module")
def tool() -> Iterator[ConfigCommands]:
    with ConfigCommands(KAFKA_VERSION) as tool:
        yield tool


@pytest.fixture
def before_rights(acl_kafka: LocalKafka, tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path, acl_kafka.sasl_bootstrap_servers) as process:
        yield process


@pytest.mark.timeout(400)
@pytest.mark.parametrize("user", ["operator", "auditor", "alice", "stranger"])
def test_same_text_and_same_exit_code_whatever_rights_one_has(
    acl_kafka: LocalKafka,
    before_rights: GatewayProcess,
    tool: ConfigCommands,
    tmp_path: Path,
    user: str,
) -> None:
    """Who has them all, who may only see, who has none, and who cannot log in."""
    login = tmp_path / "login.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f"username='{user}' password='{user}-secret';\n"
    )
    addresses = before_rights.bootstrap_servers, acl_kafka.sasl_bootstrap_servers
    lines = [(*line, "--command-config", str(login)) for line in lines_of_rights()]
    codes = []
    for line in lines if user != "stranger" else lines[4:5]:
        through, direct = (partial(tool.run, line, each) for each in addresses)
        codes.append(until_the_same(line, through, direct, again=True).exit_code)
    assert codes.count(0) == {"operator": 16, "auditor": 5}.get(user, 0), codes
    altered_by = before_rights.log.count("altered by")
    assert altered_by == (8 if user == "operator" else 0)


IDS = "producer_ids_rate"


@pytest.mark.parametrize("is_code", [True, False])
def test_a_quota_on_new_producer_ids_is_shown_and_outlives_other_alterations(
    quota_kafka: LocalKafka, tool: ConfigCommands, tmp_path: Path, *, is_code: bool
) -> None:
    """Kafka's tool knows no such key: it shows what is there, and neither sets nor deletes it."""
    written = (
        f'[[quota]]\nuser = "batch"\n{IDS} = 100\nproducer_byte_rate = 1000\n' if is_code else ""
    )
    source = None if is_code else "file"
    upstream = quota_kafka.bootstrap_servers
    with (
        gateway(tmp_path, upstream, source=source, quotas=written) as process,
        RawClient(address(process)) as client,
    ):
        servers = process.bootstrap_servers
        if not is_code:
            values = {IDS: 100.0, "producer_byte_rate": 1000.0}
            told = altered(asked(client, alteration(({"user": "batch"}, values))))
            assert [code for _, code, _ in told] == [0]
        shown = tool.run(describe("--user batch"), servers)
        assert shown.exit_code == 0, shown
        assert f"{IDS}=100.0" in shown.stdout
        assert f"{IDS}=100.0" in tool.run(describe("--entity-type users"), servers).stdout

        for line in (f"--user batch {ADD} {IDS}=5", f"--user batch {DELETE} {IDS}"):
            refused = tool.run(alter(line), servers)
            assert (refused.exit_code, refused.stdout) == (1, ""), refused
        if not is_code:
            removed = tool.run(alter(f"--user batch {DELETE} producer_byte_rate"), servers)
            assert removed.exit_code == 0, removed
        left = tool.run(describe("--user batch"), servers).stdout
        assert f"{IDS}=100.0" in left
        assert ("producer_byte_rate" in left) == is_code


def on_setting(tool: ConfigCommands, line: Sequence[str], address: str, name: str) -> Ended:
    """What a line on this setting ends with, whatever its name and its default."""
    ended = tool.run([part.replace("{setting}", name) for part in line], address)
    default = WINDOW_DEFAULTS.get(name, LIKE_DEFAULT)

    def comparable(text: str) -> str:
        return text.replace(f"DEFAULT_CONFIG:{name}={default}", "default").replace(name, "setting")

    return in_any_order(Ended(ended.exit_code, *map(comparable, (ended.stdout, ended.stderr))))


def describes_the_same_broker(tool: ConfigCommands, kafka: LocalKafka, gateway: str) -> None:
    """All settings, of which none is the gateway's own now, are the broker's but for addresses."""
    line = describe("--all --entity-type brokers --entity-name 1")
    hidden = {"listeners", "advertised.listeners", "controller.quorum.voters"}
    end = time.monotonic() + _KNOWN_S
    while True:  # what was altered last may become known between the two
        told, straight = (
            set(tool.run(line, address).stdout.splitlines())
            for address in (gateway, kafka.bootstrap_servers)
        )
        names = {text.strip().partition("=")[0] for text in straight - told}
        if names == hidden:
            break
        assert time.monotonic() < end, names
    assert len(told) == len(straight) > 200


def until_the_same(
    line: Sequence[str],
    told: Callable[[], Ended],
    straight: Callable[[], Ended],
    *,
    again: bool = False,
) -> Ended:
    """How a line has ended at the gateway, when it ends so at the broker, too.

    What either broker describes follows its controller, so both are asked again. An alteration is carried out once at
    the gateway; ``again``: at the broker as often as that takes.
    """
    through, direct = in_any_order(told()), in_any_order(straight())
    end = time.monotonic() + _KNOWN_S
    while through != direct and (again or "--describe" in line):
        assert time.monotonic() < end, (line, through, direct)
        if "--describe" in line:
            through = in_any_order(told())
        direct = in_any_order(straight())
    assert through == direct, line
    return through


def in_any_order(ended: Ended) -> Ended:
    """A broker describes entities in no order."""
    lines = sorted(ended.stdout.splitlines()) if ended.exit_code == 0 else [ended.stdout]
    return Ended(ended.exit_code, "\n".join(lines), ended.stderr)


def known_everywhere(direct: RawClient, client: RawClient) -> None:
    """The next line sees on the broker what this one has altered."""
    everything = description(strict=False)
    end = time.monotonic() + _KNOWN_S
    while entries_of(asked(direct, everything), 1) != entries_of(asked(client, everything), 1):
        assert time.monotonic() < end
        time.sleep(0.02)
