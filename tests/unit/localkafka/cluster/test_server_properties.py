from pathlib import Path

import pytest

from kvota.localkafka.cluster.ports import NodePorts
from kvota.localkafka.cluster.server_properties import (
    check_users,
    format_properties,
    server_properties,
)
from kvota.model.errors import UsageError

NODES = [
    NodePorts(node_id=i, plain=1000 + i, controller=2000 + i, sasl=3000 + i) for i in (1, 2, 3)
]


def test_a_node_listens_and_advertises_on_the_host_it_is_given() -> None:
    settings = server_properties(
        NODES[1], NODES, host="127.0.0.2", data=Path("/data"), users={"a": "b"}
    )

    assert settings["listeners"] == (
        "PLAINTEXT://127.0.0.2:1002,SASL://127.0.0.2:3002,CONTROLLER://127.0.0.2:2002"
    )
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.2:1002,SASL://127.0.0.2:3002"
    assert settings["controller.quorum.voters"] == (
        "1@127.0.0.2:2001,2@127.0.0.2:2002,3@127.0.0.2:2003"
    )
    assert settings["offsets.topic.replication.factor"] == "3"


def test_without_users_there_is_no_sasl() -> None:
    settings = server_properties(
        NODES[0], NODES[:1], host="127.0.0.1", data=Path("/data"), users={}
    )

    assert "SASL://" not in settings["listeners"]
    assert not [key for key in settings if key.startswith("sasl.")]
    assert settings["offsets.topic.replication.factor"] == "1"


def test_odd_names_and_secrets_are_quoted_for_jaas_and_escaped_for_java() -> None:
    settings = server_properties(
        NODES[0],
        NODES,
        host="127.0.0.1",
        data=Path("/data"),
        users={"jörg b": 'a"b\\c', "😀": ";"},
    )

    (line,) = [line for line in format_properties(settings).splitlines() if "sasl.plain" in line]

    assert line == (
        "listener.name.sasl.plain.sasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'"user_j\u00f6rg b"="a\\"b\\\\c" "user_\ud83d\ude00"=";";'
    )


@pytest.mark.parametrize("users", [{"": "x"}, {"a": ""}, {"a\nb": "x"}, {"a": "x\0"}])
def test_users_that_no_file_could_hold_are_refused(users: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="is empty or has a control character"):
        check_users(users)
