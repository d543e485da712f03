"""Where a limit stands, and the command that would change it."""

import shlex
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
