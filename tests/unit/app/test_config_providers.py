"""Values that stand elsewhere: what a reference becomes, and what is said where it cannot be followed."""

from pathlib import Path

import pytest

from kvota.app.config import read_config
from kvota.app.config_providers import with_references

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="kvota" password="${file:login.properties:password}";'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "login.properties").write_text("# ours\nuser=kvota\npassword = a=b \\\n  c\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_bytes("gehe\u00efm\n".encode())
    return tmp_path


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("nothing of that kind: $HOME {x} $5", "nothing of that kind: $HOME {x} $5"),
        ("${env:A}", "the ${env:B} of it"),
        ("<${env:A}|${env:B}>", "<the ${env:B} of it|>"),
        ("${file:login.properties:user}", "kvota"),
        ("${dir:secrets:password}", "gehe\u00efm"),
        (JAAS, JAAS.replace("${file:login.properties:password}", "a=b c")),
    ],
)
def test_a_reference_becomes_what_stands_there(folder: Path, text: str, becomes: str) -> None:
    environment = {"A": "the ${env:B} of it", "B": ""}

    assert with_references(text, folder, environment) == becomes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:NONE}", "the environment has no variable NONE"),
        ("${vault:a:b}", "no reference that is known here. Write one of ${env:NAME}"),
        ("${file:login.properties}", "no reference that is known here"),
        ("${file:login.properties:pass}", "login.properties has no property pass"),
        ("${file:nowhere:password}", "nowhere cannot be read: No such file"),
        ("${file:secrets/password:user}", "secrets/password: property 1: no value"),
        ("${dir:secrets:../login.properties}", "not the name of a file in that folder"),
        ("${dir:large:file}", "more than 65536 bytes"),
        ("${dir:binary:file}", "no text in UTF-8"),
    ],
)
def test_where_it_cannot_be_followed_it_is_said_without_a_secret(
    folder: Path, text: str, said: str
) -> None:
    for name, content in (("large", b"x" * 65_537), ("binary", b"\xff\xfe")):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(content)

    with pytest.raises(ValueError, match="\\$") as caught:
        with_references(text, folder, {})

    assert said in str(caught.value)
    assert "gehe" not in str(caught.value)
    assert "a=b" not in str(caught.value)


def test_any_text_of_the_file_may_stand_elsewhere_a_password_above_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "gateway.toml"
    key = "client.quota.callback.static.kafka.admin.sasl.jaas.config"
    monkeypatch.setenv("KVOTA_POD", "kvota-7")
    path.write_text(
        "[gateway]\nname = '${env:KVOTA_POD}'\nadvertised_host = '${env:KVOTA_POD}.kvota.svc'\n"
        f"[upstream]\nbootstrap_servers = ['${{env:KVOTA_POD}}:9092']\n[kafka]\n'{key}' = '{JAAS}'\n"
    )

    config, faults = read_config(path)

    assert faults == []
    assert config.name == "kvota-7"
    assert config.gateway.advertised.host == "kvota-7.kvota.svc"
    assert config.gateway.upstream == (("kvota-7", 9092),)
    assert 'password="a=b c"' in config.kafka.volumes.admin["sasl.jaas.config"]
