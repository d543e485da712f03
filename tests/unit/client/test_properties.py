"""A cluster by the properties of Kafka's own clients."""

from pathlib import Path

import pytest

from kvota.client import Security
from kvota.client.properties import cluster_of, read_properties, security_of
from kvota.model.errors import UsageError

SERVERS = {"bootstrap.servers": "kafka-1:9092, kafka-2:9092"}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required "


@pytest.mark.parametrize(
    ("properties", "security"),
    [
        ({}, Security()),
        ({"security.protocol": "PLAINTEXT"}, Security()),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": JAAS + 'username="alice" password="a\\"b c";',
            },
            Security.scram("alice", 'a"b c', mechanism="SCRAM-SHA-256"),
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "x required password='p' username='u';",
            },
            Security.plain("u", "p"),
        ),
    ],
)
def test_how_it_logs_in(properties: dict[str, str], security: Security) -> None:
    assert security_of(properties) == security
    assert cluster_of({**SERVERS, **properties})


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"bootstrap.server": "k:1"}, "bootstrap.server is not a property"),
        ({"bootstrap.servers": " , "}, "no server to begin with"),
        ({"bootstrap.servers": "kafka"}, "is not host:port"),
        ({**SERVERS, "security.protocol": "TLS"}, '"TLS" cannot be spoken'),
        ({**SERVERS, "security.protocol": "SASL_PLAINTEXT"}, 'sasl.mechanism: "" cannot be spoken'),
        ({**SERVERS, "request.timeout.ms": "0"}, "request.timeout.ms"),
        ({**SERVERS, "request.timeout.ms": "5s"}, "request.timeout.ms"),
    ],
)
def test_what_cannot_be_used_is_named(properties: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        cluster_of(properties)

    assert said in str(refused.value)


def test_a_jaas_line_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        cluster_of(
            {
                **SERVERS,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "x required password=secret-word",
            }
        )

    assert "secret-word" not in str(refused.value)


def test_a_file_of_properties(tmp_path: Path) -> None:
    path = tmp_path / "admin.properties"
    path.write_text(
        "# comment\n! another\n\nsecurity.protocol = SASL_PLAINTEXT\n"
        'sasl.jaas.config=x required \\\n    username="u" \\\n    password="a=b";\nempty=\n'
    )

    assert read_properties(path) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.jaas.config": 'x required username="u" password="a=b";',
        "empty": "",
    }


def test_a_file_that_has_no_properties(tmp_path: Path) -> None:
    path = tmp_path / "admin.properties"
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_properties(path)
    path.write_text("a=1\nthe-secret\n")
    with pytest.raises(UsageError, match="property 2: no value") as raised:
        read_properties(path)
    assert "the-secret" not in str(raised.value)
