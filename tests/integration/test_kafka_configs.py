"""kafka-configs.sh, unmodified: each command line once against a broker, once against a gateway."""

import time
from pathlib import Path

import pytest
from tests.integration.conftest import HOST
from tests.integration.kafka_configs.command_lines import command_lines
from tests.integration.kafka_configs.running import ConfigCommands, Ended
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked, entries_of, gateway
from tests.unit.quota_api.written import description

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

# A broker's metadata follows its controller.
_KNOWN_S = 10.0


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
            told = tool.run(line, process.bootstrap_servers)
            straight = tool.run(line, straight_kafka.bootstrap_servers)
            assert in_any_order(told) == in_any_order(straight), line
            known_everywhere(direct, client)


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
