"""A real broker that advertises the gateway's own address makes nobody dial himself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.raw_client import RawClient

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.testing.frames import HEARTBEAT, METADATA, request

NODE_ID = 1
# Connections that have ended are still to be closed.
_CLOSED_S = 60.0
_HOSTS = {"as it is told": "127.0.0.1", "by a name": "127.1"}


@pytest.fixture(params=_HOSTS.values(), ids=_HOSTS.keys())
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    first_port = free_port_range(4)
    own = f"PLAINTEXT://{request.param}:{first_port + 1 + NODE_ID}"
    kafka = LocalKafka(properties={"advertised.listeners": own}, java_options=SHORT_LIVED)
    with kafka:
        assert kafka.nodes[0].node_id == NODE_ID
        config = gateway_toml(
            upstream=kafka.bootstrap_servers, first_port=first_port, node_ids="0-2"
        )
        with GatewayProcess(tmp_path, config=config, quotas="") as process:
            yield process


def files_of(gateway: GatewayProcess) -> int:
    return len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))


def test_it_is_refused_and_said_once(gateway: GatewayProcess) -> None:
    bootstrap = int(gateway.bootstrap_servers.split(":")[1])
    before = files_of(gateway)
    for _ in range(10):
        for port, asked in (
            (bootstrap, request(METADATA, 12, topics=())),
            (bootstrap + 1 + NODE_ID, request(HEARTBEAT, 4)),
        ):
            with RawClient(("127.0.0.1", port)) as client:
                client.send(asked)
                try:
                    client.frame()
                except ConnectionError:
                    continue

    end = time.monotonic() + _CLOSED_S
    while files_of(gateway) > before + 4:  # whoever dials himself goes on doing it
        assert time.monotonic() < end, (before, files_of(gateway))
        time.sleep(0.05)
    time.sleep(0.5)  # nor does it begin again
    assert files_of(gateway) <= before + 4
    lines = [line for line in gateway.log.splitlines() if "Set advertised.listeners" in line]
    assert len(lines) == 1
    assert f":{bootstrap + 1 + NODE_ID}" in lines[0]
    assert len(gateway.log) < 20_000
