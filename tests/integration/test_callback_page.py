"""The quota callback of docs/quota-callbacks.md, as it is written there, in a gateway before a real broker."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.integration.test_partition_share import produce_request

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.client import BrokerConnection, Security
from kvota.localkafka import LocalKafka
from kvota.wire.apis import PRODUCE

PAGE = (Path(__file__).parents[2] / "docs" / "quota-callbacks.md").read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# What the page says to write below [kafka], and who shares a counter then.
SETTING = re.search(r'`("client.quota.callback.class") = "(team_quotas.*?)"`', PAGE)
SHARING = re.search(r"all of `(\S+)` and `(\S+)` share one million", PAGE)
TOPIC = "of-teams"
LOWERED = '[[quota]]\nuser = "orders"\nproducer_byte_rate = 1000\n'
TOLD_S = 60.0
# Over the lowered limit by itself, whatever was counted before, and far from what all share.
OVER_BYTES = 50_000


@pytest.fixture
def before(
    sasl_kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[GatewayProcess, str]:
    """A gateway, not started, and its gateway.toml."""
    (tmp_path / "team_quotas.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    assert SETTING is not None
    config = gateway_toml(
        upstream=sasl_kafka.sasl_bootstrap_servers,
        node_ids="0-1",
        enforce={"PRODUCE": True},
        kafka={SETTING[1].strip('"'): SETTING[2]},
    )
    process = GatewayProcess(tmp_path, config=config, quotas="")
    return process, config


async def test_it_counts_whole_teams_until_the_team_has_a_quota_of_its_own(
    sasl_kafka: LocalKafka, before: tuple[GatewayProcess, str]
) -> None:
    sasl_kafka.create_topic(TOPIC)
    process, config = before
    assert SHARING is not None
    web, batch = SHARING.groups()

    async def throttled_ms(user: str, value_bytes: int) -> float:
        """Of one Produce, on a connection of its own."""
        host, _, port = process.bootstrap_servers.partition(":")
        connection = await BrokerConnection.open(
            (host, int(port) + 2), security=Security.scram(user, f"{user}-secret")
        )
        answer = await connection.ask(PRODUCE, produce_request(TOPIC, value_bytes), version=9)
        await connection.close()
        ((written,),) = (response.partition_responses for response in answer.responses)
        assert int(written.error_code) == 0
        return float(answer.throttle_time.total_seconds() * 1e3)

    with process:
        # A million bytes a second: of Kafka's window of ten seconds it is no tenth.
        for user in (web, batch):
            assert await throttled_ms(user, 400_000) == 0

        process.reload(LOWERED, config)
        async with asyncio.timeout(TOLD_S):  # it is told beside the traffic
            while not await throttled_ms(web, OVER_BYTES):  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.05)
        assert await throttled_ms(batch, OVER_BYTES) > 10_000
        assert await throttled_ms("alice", 100) == 0
