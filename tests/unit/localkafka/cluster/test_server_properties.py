from pathlib import Path

import pytest

from kvota.localkafka.cluster.listeners import Listener, check_listeners, listeners_of
from kvota.localkafka.cluster.ports import NodePorts
from kvota.localkafka.cluster.server_properties import (
    check_users,
    format_properties,
    server_properties,
)
from kvota.model.errors import UsageError

NODES = [
    NodePorts(
        node_id=i,
        controller=2000 + i,
        listeners={"PLAINTEXT": 1000 + i, "SASL": 3000 + i, "SSL": 4000 + i, "SASL_SSL": 5000 + i},
    )
    for i in (1, 2, 3)
]


def test_a_node_listens_and_advertises_on_the_host_it_is_given() -> None:
    settings = server_properties(
        NODES[1],
        NODES,
        host="127.0.0.2",
        data=Path("/data"),
        listeners=listeners_of(users=True, tls=None),
        users={"a": "b"},
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
        NODES[0],
        NODES[:1],
        host="127.0.0.1",
        data=Path("/data"),
        listeners=listeners_of(users=False, tls=None),
        users={},
    )

    assert "SASL://" not in settings["listeners"]
    assert not [key for key in settings if key.startswith("sasl.")]
    assert settings["offsets.topic.replication.factor"] == "1"


def test_bearer_tokens_are_taken_beside_passwords_or_alone() -> None:
    listeners = listeners_of(users=True, tls=None)

    def mechanisms(users: dict[str, str]) -> str:
        settings = server_properties(
            NODES[0],
            NODES[:1],
            host="127.0.0.1",
            data=Path("/data"),
            listeners=listeners,
            users=users,
            oauth=True,
        )
        assert "OAuthBearer" in settings["listener.name.sasl.oauthbearer.sasl.jaas.config"]
        return settings["sasl.enabled.mechanisms"]

    assert mechanisms({"a": "b"}) == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    assert mechanisms({}) == "OAUTHBEARER"


def test_odd_names_and_secrets_are_quoted_for_jaas_and_escaped_for_java() -> None:
    settings = server_properties(
        NODES[0],
        NODES,
        host="127.0.0.1",
        data=Path("/data"),
        listeners=listeners_of(users=True, tls=None),
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


def test_each_listener_has_its_own_settings_and_those_with_logins_have_users() -> None:
    further = Listener(name="Other", protocol="SSL", settings={"ssl.client.auth": "required"})
    ports = {"PLAINTEXT": 1, "SASL": 2, "SSL": 3, "SASL_SSL": 4, "Other": 5}
    node = NodePorts(node_id=1, controller=6, listeners=ports)

    settings = server_properties(
        node,
        [node],
        host="127.0.0.1",
        data=Path("/data"),
        listeners=[*listeners_of(users=True, tls="none"), further],
        users={"a": "b"},
    )

    assert settings["advertised.listeners"] == (
        "PLAINTEXT://127.0.0.1:1,SASL://127.0.0.1:2,SSL://127.0.0.1:3,SASL_SSL://127.0.0.1:4,Other://127.0.0.1:5"
    )
    assert settings["listener.security.protocol.map"] == (
        "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,Other:SSL,CONTROLLER:PLAINTEXT"
    )
    assert settings["listener.name.other.ssl.client.auth"] == "required"
    jaas = [key for key in settings if key.endswith("plain.sasl.jaas.config")]
    assert jaas == [f"listener.name.{name}.plain.sasl.jaas.config" for name in ("sasl", "sasl_ssl")]


@pytest.mark.parametrize("name", ["", "ssl", "CONTROLLER"])
def test_a_listener_needs_a_name_of_its_own(name: str) -> None:
    listeners = [*listeners_of(users=False, tls="none"), Listener(name=name, protocol="SSL")]

    with pytest.raises(UsageError, match="cannot be had"):
        check_listeners(listeners, "none")


def test_how_clients_are_asked_for_certificates_is_checked() -> None:
    with pytest.raises(UsageError, match="none, requested, required"):
        check_listeners([], "maybe")  # type: ignore[arg-type]
