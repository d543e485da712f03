"""The example of docs/admin-client.md, as it is written there, on clusters without and with logins."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import kvota.admin
from kvota.admin import AdminClient, Security
from kvota.localkafka import LocalKafka

PAGE = (Path(__file__).parents[2] / "docs" / "admin-client.md").read_text()
Main = Callable[[str, Security], Awaitable[None]]


@pytest.fixture
def main() -> Main:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Main] = {}
    exec(compile(code, "docs/admin-client.md", "exec"), names)
    return names["main"]


async def test_it_runs(kafka: LocalKafka, main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    await main(kafka.bootstrap_servers, Security())

    first, refused, *throttled, quota = capsys.readouterr().out.splitlines()
    assert first == "3 ['orders']"
    assert refused.startswith('no/topic -> topic "no/topic" cannot be created: ')
    assert "invalid_topic_exception (17)" in refused
    assert throttled == []
    assert quota == "{'controller_mutation_rate': 2.0}"


async def test_it_runs_with_a_login(sasl_kafka: LocalKafka, main: Main) -> None:
    await main(sasl_kafka.sasl_bootstrap_servers, Security.scram("alice", "alice-secret"))


def test_every_method_and_name_of_the_tables_is_there() -> None:
    table = PAGE[PAGE.index("| method |") :].partition("\n\n")[0]
    methods = set(re.findall(r"^\| `(\w+)\(", table, re.MULTILINE))
    assert methods == {name for name in vars(AdminClient) if name[0] != "_"} - {
        "of",
        "start",
        "close",
    }

    words = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = set(re.findall(r"`(?:[^`]*\W)?([A-Z][a-z]+[A-Z]\w+)", words))
    assert {"OutcomeUnknownError", "QuotaEntity", "NewTopic"} <= named
    for name in named:
        assert name in kvota.admin.__all__, name
