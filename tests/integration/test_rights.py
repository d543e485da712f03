"""Who may not: the gateway's answer is the broker's, code and words, in every version, and nothing has changed."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.integration.test_client_quotas import gateway

from kvota.app.gateway_process import GatewayProcess
from kvota.client import BrokerConnection, Security
from kvota.localkafka import LocalKafka
from kvota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)

BROKER, NODE = 4, "1"
# The gateway's, and one of a broker's own that is like it: a broker takes the first from its file only.
NUM, LIKE = "quota.window.num", "num.io.threads"
THREADS = "background.threads"


def quotas(*names: str) -> list[dict[str, Any]]:
    """Alterations that are right, each of one user."""
    operation = {"key": "producer_byte_rate", "value": 5e8, "remove": False}
    return [
        {"entity": [{"entity_type": "user", "entity_name": name}], "ops": [operation]}
        for name in names
    ]


WRONG = [{"entity": [{"entity_type": "foo", "entity_name": "a"}], "ops": []}]


def settings(
    key: int, resource: str, *values: tuple[str, str], validate_only: bool
) -> dict[str, Any]:
    """Settings of all brokers (""), or of one."""
    configs: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values]
    if key == INCREMENTAL_ALTER_CONFIGS:
        configs = [{**each, "config_operation": 0} for each in configs]
    rows = [{"resource_type": BROKER, "resource_name": resource, "configs": configs}]
    return {"resources": rows, "validate_only": validate_only}


def described(version: int, resource: str, *keys: str) -> dict[str, Any]:
    wanted = {
        "resource_type": BROKER,
        "resource_name": resource,
        "configuration_keys": list(keys) or None,
    }
    more = {"include_documentation": False} if version >= 3 else {}
    return {"resources": [wanted], "include_synonyms": True, **more}


ALTER = (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)


def as_at_broker(content: dict[str, Any]) -> dict[str, Any]:
    """The same alteration, of settings that a broker lets be altered."""
    ((resource,), only) = content["resources"], content["validate_only"]
    configs = [
        {**each, "name": LIKE if each["name"] == NUM else each["name"]}
        for each in resource["configs"]
    ]
    return {"resources": [{**resource, "configs": configs}], "validate_only": only}


# What is asked: key, version, content.
Question = tuple[int, int, dict[str, Any]]
REFUSED: list[Question] = [
    *(
        (ALTER_CLIENT_QUOTAS, version, {"entries": entries, "validate_only": only})
        for version in (0, 1)
        for only in (True, False)
        for entries in (quotas("a"), quotas("a", "b", "a"), WRONG, [*quotas("a"), *WRONG], [])
    ),
    *(
        (DESCRIBE_CLIENT_QUOTAS, version, {"components": components, "strict": strict})
        for version in (0, 1)
        for strict in (True, False)
        for components in (
            [],
            [{"entity_type": "user", "match_type": 2, "match": None}],
            [{"entity_type": "foo", "match_type": 0, "match": "a"}],
        )
    ),
    *(
        (key, version, settings(key, resource, *values, validate_only=only))
        for key, versions in ((ALTER_CONFIGS, (0, 1, 2)), (INCREMENTAL_ALTER_CONFIGS, (0, 1)))
        for version in versions
        for only in (True, False)
        for resource in ("", NODE)
        for values in (((NUM, "5"),), ((THREADS, "9"),), ((NUM, "5"), (THREADS, "9")))
    ),
    *(
        (DESCRIBE_CONFIGS, version, described(version, resource, *keys))
        for version in (1, 2, 3, 4)
        for resource in ("", NODE)
        for keys in ((), (NUM,), (THREADS,), (NUM, THREADS))
    ),
]  # fmt: skip


def comparable(answer: Any) -> str:
    """But for throttle times, and what belongs together in any order."""
    for name in ("entries", "responses", "results"):
        rows = getattr(answer, name, None)
        if rows is not None:
            top = (getattr(answer, "error_code", None), getattr(answer, "error_message", None))
            return repr((top, sorted(map(repr, rows))))
    return repr((answer.error_code, answer.error_message, None))


@pytest.fixture(scope="module")
def process(
    acl_kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("rights")
    # Who is on the list may not, where there is an authorizer.
    listed = '\n[quotas.admins]\nusers = ["alice"]\nhosts = ["127.0.0.1"]\n'
    with gateway(folder, acl_kafka.sasl_bootstrap_servers, more=listed) as process:
        yield process


async def opened(stack: AsyncExitStack, server: str, user: str) -> BrokerConnection:
    host, _, port = server.partition(":")
    security = Security.scram(user, f"{user}-secret")
    connection = await BrokerConnection.open((host, int(port)), security=security)
    stack.push_async_callback(connection.close)
    return connection


async def in_force(operator: BrokerConnection) -> list[str]:
    """All quotas and settings, as one who may sees them."""
    questions: list[Question] = [
        (DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
        *((DESCRIBE_CONFIGS, 4, described(4, resource)) for resource in ("", NODE)),
    ]
    answers = [await operator.ask(key, asked, version=version) for key, version, asked in questions]
    assert {int(row.error_code) for row in (answers[0], *answers[1].results)} == {0}
    return [comparable(answer) for answer in answers]


@pytest.mark.parametrize("user", ["alice", "bob"])
async def test_a_user_without_the_right_is_told_what_a_broker_tells_and_nothing_changes(
    acl_kafka: LocalKafka, process: GatewayProcess, user: str
) -> None:
    servers = process.bootstrap_servers, acl_kafka.sasl_bootstrap_servers
    async with AsyncExitStack() as stack:
        through, straight = [await opened(stack, server, user) for server in servers]
        operators = [await opened(stack, server, "operator") for server in servers]
        before = [await in_force(operator) for operator in operators]
        answers = set()
        for key, version, content in REFUSED:
            like = as_at_broker(content) if key in ALTER else content
            told = comparable(await through.ask(key, content, version=version))
            measure = comparable(await straight.ask(key, like, version=version))
            assert told == measure, (key, version, content)
            answers.add(measure)
        assert [await in_force(operator) for operator in operators] == before
    assert len(answers) > 4  # refused in several words
    assert "altered by" not in process.log
    assert not (process.folder / "quotas.json").exists()
    assert " ERROR " not in process.log
