"""A cluster by the properties of Kafka's own clients."""

import base64
import json
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
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": JAAS + 'username="id" password="aG1hYw==" tokenauth="true";',
            },
            Security.delegation_token("id", "aG1hYw=="),
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": JAAS + "\n username=alice\n password='p'\n tokenauth=false\n;",
            },
            Security.scram("alice", "p"),
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


@pytest.mark.parametrize(
    ("mechanism", "config", "said"),
    [
        (
            "PLAIN",
            "x required username='u' password='se-cret' tokenauth='true';",
            '"tokenauth" is not',
        ),
        (
            "SCRAM-SHA-256",
            "x required username='u' password='se-cret' passwort='se-cret';",
            'the option "passwort" is not known here; known are username, password, tokenauth',
        ),
        (
            "SCRAM-SHA-256",
            "x required username='u' password='p' tokenauth='se-cret';",
            "tokenauth is",
        ),
        ("PLAIN", "username='u' password='se-cret';", "cannot be read. Write e.g."),
        ("PLAIN", "x required username='u' password='se-cret' x", "cannot be read"),
        ("PLAIN", 'x required username="u" password="se"-cret";', "cannot be read"),
        ("PLAIN", "x required username='u' password='se-cret'; y required;", "cannot be read"),
        ("PLAIN", "x required username='u' password=5;", "cannot be read"),
        ("PLAIN", "x required username='u';", "no user name and password"),
        (
            "OAUTHBEARER",
            "x required unsecuredLoginStringClaim_sub='u' scope='se-cret';",
            '"scope" is',
        ),
        ("GSSAPI", "x required;", 'sasl.mechanism: "GSSAPI" cannot be spoken'),
    ],
)
def test_what_a_jaas_line_says_and_is_not_done_is_refused_by_name(
    mechanism: str, config: str, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        security_of(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": config,
            }
        )

    assert said in str(refused.value)
    assert "cret" not in str(refused.value)


def test_a_delegation_token_logs_in_by_scram_alone() -> None:
    with pytest.raises(UsageError, match="a delegation token logs in by SCRAM-SHA-256 or SCRAM-"):
        Security.delegation_token("id", "aG1hYw==", mechanism="PLAIN")


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


# ------------------------------------------------------------------ bearer tokens

BEARER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def test_a_bearer_token_is_read_anew_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("first.token.\n")
    url = {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}
    security = security_of(BEARER | url)

    assert security.fresh_token() == "first.token."
    path.write_text("second.token.")
    assert security.fresh_token() == "second.token."
    assert "second" not in repr(security)
    path.unlink()
    with pytest.raises(UsageError, match=r"the bearer token cannot be read: .*: No such file"):
        security.fresh_token()


@pytest.mark.parametrize(
    "token", ["", "two words", "se\x01cret", "secret\n.", "sécret", "x" * 300_000]
)
def test_what_is_no_bearer_token_is_not_sent_and_not_shown(tmp_path: Path, token: str) -> None:
    path = tmp_path / "file"
    path.write_text(token)
    url = {"sasl.oauthbearer.token.endpoint.url": f"file://localhost{path}"}

    with pytest.raises(UsageError, match=r"no bearer token|is none") as refused:
        security_of(BEARER | url).fresh_token()
    assert "cret" not in str(refused.value)


def test_an_unsecured_token_has_the_claims_of_the_jaas_line() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    line = f'{module} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginStringClaim_team="a b";'

    token = security_of(BEARER | {"sasl.jaas.config": line}).fresh_token()

    body = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert (claims["sub"], claims["team"]) == ("alice", "a b")
    assert claims["exp"] - claims["iat"] == 3600


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({}, "no bearer token can be had"),
        ({"sasl.jaas.config": "x required;"}, "no bearer token can be had"),
        ({"sasl.jaas.config": 'x required username="u" password="p";'}, 'the option "username" is'),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///run/token",
                "sasl.jaas.config": 'x required clientId="kvota";',
            },
            'the option "clientId" is not known here; known are none',
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}, "fresh in a file"),
        ({"sasl.oauthbearer.token.endpoint.url": "file://elsewhere/token"}, "fresh in a file"),
    ],
)
def test_where_no_token_can_be_had_from_it_is_said(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        security_of(BEARER | properties)
