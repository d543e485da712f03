"""Where a limit stands, and the command that would change it."""

import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from kvota.app.limit_sources import LimitSources
from kvota.app.quota_settings import QuotaSettings, QuotaSourceKind
from kvota.callbacks import DefaultQuotaCallback
from kvota.metrics.counter_key import CounterKey
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.quota_admins import QuotaAdmins
from kvota.wire.error_code import ErrorCode

PRODUCE = QuotaType.PRODUCE
ALICE, ANY = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT)
RELOAD = "kvota gateway reload -c /etc/kvota/gateway.toml"
TEXT = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n[[quota]]\nuser_default = true\nproducer_byte_rate = 6\n'
QUOTAS = ConfiguredQuotas({ALICE: {PRODUCE: 5}, ANY: {PRODUCE: 6}})


def sources(folder: Path, kind: QuotaSourceKind = QuotaSourceKind.TOML) -> LimitSources:
    file = folder / f"quotas.{'toml' if kind is QuotaSourceKind.TOML else 'json'}"
    file.write_text(TEXT)
    settings = QuotaSettings(
        enforces_connection_rates=True,
        source=kind,
        file=file,
        topic="kvota-quotas",
        callback_classes=(),
        admins=QuotaAdmins(),
        enforced=frozenset(),
        buckets={},
        refuses_ids_with=ErrorCode.NOT_ENOUGH_REPLICAS,
        saved_ids=folder / "producer-ids.saved",
    )
    return LimitSources(
        DefaultQuotaCallback(QUOTAS), settings, QUOTAS, bootstrap="gw:9192", reload=RELOAD
    )


def test_a_limit_stands_at_a_line(tmp_path: Path) -> None:
    known = sources(tmp_path)

    assert known.of_entity(ALICE) == f"{tmp_path}/quotas.toml:1"
    assert known.of_counter(CounterKey(PRODUCE, "client-id=,user=bob", 1)).endswith(":4")
    assert known.of_counter(CounterKey(QuotaType.FETCH, "client-id=,user=bob", 1)) == ""


def test_what_gateways_share_stands_in_a_topic(tmp_path: Path) -> None:
    assert sources(tmp_path, QuotaSourceKind.TOPIC).of_entity(ALICE) == "topic kvota-quotas"


def test_what_kafkas_tools_have_set_stands_in_a_file_without_lines(tmp_path: Path) -> None:
    known = sources(tmp_path, QuotaSourceKind.FILE)

    assert known.of_entity(ALICE) == f"{tmp_path}/quotas.json"


def test_people_edit_their_file(tmp_path: Path) -> None:
    known = sources(tmp_path)

    assert known.to_change(ALICE, "producer_byte_rate", is_configured=True) == (
        f"edit producer_byte_rate at {tmp_path}/quotas.toml:1, then {RELOAD}"
    )
    assert known.to_change(QuotaEntity(user="bob"), "producer_byte_rate", is_configured=False) == (
        f'add to {tmp_path}/quotas.toml: [[quota]] user = "bob" producer_byte_rate = …, then {RELOAD}'
    )


@pytest.mark.parametrize(
    ("entity", "options"),
    [
        (ALICE, ["--entity-type", "users", "--entity-name", "alice"]),
        (ANY, ["--entity-type", "users", "--entity-default"]),
        (
            QuotaEntity(user="a b; rm", client_id=DEFAULT),
            [
                *["--entity-type", "users", "--entity-name", "a b; rm"],
                *["--entity-type", "clients", "--entity-default"],
            ],
        ),
        (QuotaEntity(client_id="c"), ["--entity-type", "clients", "--entity-name", "c"]),
    ],
)
def test_kafkas_tool_is_called_for_its_own_file(
    tmp_path: Path, entity: QuotaEntity, options: list[str]
) -> None:
    command = sources(tmp_path, QuotaSourceKind.FILE).to_change(
        entity, "producer_byte_rate", is_configured=True
    )

    assert shlex.split(command) == [
        *["kafka-configs.sh", "--bootstrap-server", "gw:9192", "--alter"],
        *options,
        *["--add-config", "producer_byte_rate=NUMBER"],
    ]


HOSTILE = ['"}\n', "a\\b'c\"", "\t\x7f\u2028", "日本 é", "$(rm -rf /)`x`"]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_to_add_to_the_file_is_one_line_of_toml_that_names_the_same(
    tmp_path: Path, name: str
) -> None:
    entity = QuotaEntity(user=name, client_id=name)
    advice = sources(tmp_path).to_change(entity, "producer_byte_rate", is_configured=False)
    table = advice.partition("[[quota]] ")[2].rpartition(" producer_byte_rate")[0]
    user, _, client_id = table.partition(" client_id = ")

    assert advice.isprintable()
    assert tomllib.loads(f"{user}\nclient_id = {client_id}") == {"user": name, "client_id": name}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_command_names_the_same_in_a_shell(tmp_path: Path, name: str) -> None:
    known = sources(tmp_path, QuotaSourceKind.FILE)
    command = known.to_change(QuotaEntity(user=name), "producer_byte_rate", is_configured=False)
    words = command.partition("--entity-name ")[2].partition(" --add-config")[0]
    printed = subprocess.run(
        ["bash", "-c", f"printf %s {words}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )

    assert command.isprintable()
    assert printed.stdout.decode() == name
