"""The example of docs/client.md, as it is written there, on clusters without and with logins."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.test_client import servers

import kvota.client
from kvota.admin import AdminClient
from kvota.client import Security
from kvota.localkafka import LocalKafka

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


@pytest.fixture
def main() -> Callable[[list[str], Security], Awaitable[None]]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Callable[[list[str], Security], Awaitable[None]]] = {}
    exec(compile(code, "docs/client.md", "exec"), names)
    return names["main"]


async def test_it_runs_on_three_brokers(
    kafka3: LocalKafka,
    main: Callable[[list[str], Security], Awaitable[None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    await main(servers(kafka3), Security())

    first, *brokers, last = capsys.readouterr().out.splitlines()
    assert first == "[1, 2, 3] 3"
    assert [line[0] for line in brokers] == ["1", "2", "3"]
    assert re.fullmatch(r"[0-9a-f-]{36} \[[123], [123], [123]\] \('127\.0\.0\.2', \d+\)", last)


async def test_it_runs_with_a_login(
    sasl_kafka: LocalKafka, main: Callable[[list[str], Security], Awaitable[None]]
) -> None:
    where = sasl_kafka.sasl_bootstrap_servers.split(",")
    security = Security.scram("alice", "alice-secret")

    await main(where, security)

    async with AdminClient(where, security=security) as admin:
        (await admin.delete_topics(["orders"])).all()  # another page makes one of this name


def test_every_name_of_the_table_is_there() -> None:
    table = PAGE[PAGE.index("| name | |") :].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Za-z]+)[.(`]", table)) & set(re.findall(r"\b[A-Z]\w+", table))

    assert {"Cluster", "ClusterLooks", "Security", "ClientLimits", "BrokerConnection"} <= named
    for name in named:
        assert name in kvota.client.__all__, name
