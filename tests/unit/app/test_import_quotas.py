"""Quotas from elsewhere: what would change, and what cannot be taken over."""

from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvota.app.config import load_files
from kvota.app.import_quotas import Import, carry_out, described_quotas, file_quotas, planned
from kvota.client import Security, Tls
from kvota.client.security import NO_LOGIN
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.store.document_file import lock_quota_file
from kvota.store.quota_document import QuotaDocument

ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob", DEFAULT)
BEFORE = ClientQuotas({ALICE: {"producer_byte_rate": 5.0}, BOB: {"request_percentage": 20.0}})
FOUND = ClientQuotas({ALICE: {"producer_byte_rate": 7.0, "request_percentage": 30.0}})


def config_of(folder: Path, source: str) -> Any:
    (folder / "gateway.toml").write_text(
        '[gateway]\nbootstrap_port = 9192\nnode_port_base = 9193\nnode_ids = "0"\n'
        f'[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n[quotas]\nsource = "{source}"\n'
    )
    (folder / "quotas.toml").write_text("")
    config, _ = load_files(folder / "gateway.toml")
    return config


def entry(entity: dict[str, str | None], values: dict[str, float]) -> SimpleNamespace:
    """As DescribeClientQuotas answers."""
    parts = [SimpleNamespace(entity_type=part, entity_name=name) for part, name in entity.items()]
    listed = [SimpleNamespace(key=key, value=value) for key, value in values.items()]
    return SimpleNamespace(entity=parts, values=listed)


@pytest.mark.parametrize("replaces", [False, True])
def test_what_is_not_there_stays_unless_all_is_replaced(tmp_path: Path, replaces: bool) -> None:
    plan = planned(config_of(tmp_path, "file"), BEFORE, FOUND, replaces=replaces)

    removed = [KeyChange(BOB, "request_percentage", None)]
    assert sorted(plan.changes, key=str) == sorted(
        [
            KeyChange(ALICE, "producer_byte_rate", 7.0),
            KeyChange(ALICE, "request_percentage", 30.0),
            *(removed if replaces else []),
        ],
        key=str,
    )
    assert not plan.left_out


def test_a_file_that_people_write_takes_request_percentage(tmp_path: Path) -> None:
    plan = planned(config_of(tmp_path, "toml"), ClientQuotas(), FOUND, replaces=False)

    assert sorted(plan.changes, key=str) == [
        KeyChange(ALICE, "producer_byte_rate", 7.0),
        KeyChange(ALICE, "request_percentage", 30.0),
    ]
    assert not plan.left_out


def test_what_a_broker_holds_and_a_gateway_cannot_is_named() -> None:
    quotas, left_out = described_quotas(
        [
            entry({"user": "alice"}, {"producer_byte_rate": 7.0, "of_a_newer_kafka": 1.0}),
            entry({"group": "g"}, {"producer_byte_rate": 1.0}),
            # As clusters with ZooKeeper could have it.
            entry({"user": "bob", "client-id": None}, {"consumer_byte_rate": 0.0}),
        ]
    )

    assert quotas == ClientQuotas({ALICE: {"producer_byte_rate": 7.0}})
    newer, unknown, zero = (each.sentence for each in left_out)
    assert newer.startswith("user-principal 'alice': of_a_newer_kafka = 1: ")
    assert "group" in unknown
    assert zero.startswith("user-principal 'bob', the default client-id: consumer_byte_rate = 0: ")


def test_what_is_left_out_is_not_removed_either(tmp_path: Path) -> None:
    before = ClientQuotas({BOB: {"consumer_byte_rate": 3.0, "request_percentage": 20.0}})
    found, left_out = described_quotas(
        [entry({"user": "bob", "client-id": None}, {"consumer_byte_rate": 0.0})]
    )

    config = config_of(tmp_path, "file")
    plan = planned(config, before, found, left_out=left_out, replaces=True)

    assert plan.changes == [KeyChange(BOB, "request_percentage", None)]


def test_what_quotas_toml_cannot_say_is_not_removed_from_it(tmp_path: Path) -> None:
    found = ClientQuotas({ALICE: {"producer_byte_rate": nan}})

    plan = planned(config_of(tmp_path, "toml"), BEFORE, found, replaces=True)

    assert plan.changes == [KeyChange(BOB, "request_percentage", None)]


# ------------------------------------------------------------------ carrying it out


PLAN = Import(before=BEFORE, changes=[KeyChange(ALICE, "producer_byte_rate", 7.0)])


def carried_out(config: Any, plan: Import = PLAN, *, login: Path | None = None) -> list[str]:
    return list(carry_out(config, plan, NO_LOGIN, login=login))


def test_what_there_was_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path, "file")
    file = tmp_path / "quotas.json"
    documents = [QuotaDocument(BEFORE).content()]
    file.write_bytes(documents[0])

    first, _ = carried_out(config)
    documents.append(file.read_bytes())
    again = Import(before=BEFORE, changes=[KeyChange(ALICE, "producer_byte_rate", 8.0)])
    login = tmp_path / "my admin.properties"
    second, _ = carried_out(config, again, login=login)

    kept = [tmp_path / f"quotas.json.before-import{number}" for number in ("", "-2")]
    assert [copy.read_bytes() for copy in kept] == documents
    assert first.endswith(f"-c {config.path} --from {kept[0]} --replace")
    assert second.endswith(f"--from {kept[1]} --replace --command-config '{login}'")


def test_what_was_altered_since_the_plan_was_made_stays(tmp_path: Path) -> None:
    config = config_of(tmp_path, "file")
    file = tmp_path / "quotas.json"
    now = BEFORE.with_changes([KeyChange(BOB, "request_percentage", 99.0)])
    file.write_bytes(QuotaDocument(now).content())

    carried_out(config)

    assert file_quotas(file) == now.with_changes(PLAN.changes)
    for name in ("quotas.json.previous", "quotas.json.before-import"):
        assert file_quotas(tmp_path / name) == now


def test_a_password_never_goes_readably_where_it_was_meant_to_be_encrypted(tmp_path: Path) -> None:
    config = config_of(tmp_path, "file")
    security = Security.plain("alice", "alice-secret", tls=Tls())
    lock = lock_quota_file(config.quotas.file)  # a gateway runs
    assert lock is not None

    with lock, pytest.raises(UsageError, match="send the password there readably") as refused:
        list(carry_out(config, PLAN, security))

    assert "alice-secret" not in str(refused.value)
    assert not (tmp_path / "quotas.json.before-import").exists()


def test_what_people_have_written_since_stays(tmp_path: Path) -> None:
    config = config_of(tmp_path, "toml")
    file = tmp_path / "quotas.toml"
    file.write_text('[[quota]]\nuser = "carol"\nproducer_byte_rate = "9B/s"\n')
    written = file.read_bytes()

    first, _ = carried_out(config)

    assert file_quotas(file) == ClientQuotas(
        {
            QuotaEntity("carol"): {"producer_byte_rate": 9.0},
            ALICE: {"producer_byte_rate": 7.0},
        }
    )
    assert (tmp_path / "quotas.toml.before-import").read_bytes() == written
    assert first == f"to undo: mv {file}.before-import {file}"


def test_a_document_that_was_damaged_since_is_not_written_over(tmp_path: Path) -> None:
    config = config_of(tmp_path, "file")
    (tmp_path / "quotas.json").write_bytes(b"{")

    with pytest.raises(UsageError, match="it is no whole JSON document"):
        carried_out(config)

    assert (tmp_path / "quotas.json").read_bytes() == b"{"


def test_the_quotas_of_a_file(tmp_path: Path) -> None:
    toml, document = tmp_path / "quotas.toml", tmp_path / "quotas.json"
    toml.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = "7B/s"\n')
    document.write_bytes(QuotaDocument(BEFORE).content())

    assert file_quotas(toml) == ClientQuotas({ALICE: {"producer_byte_rate": 7.0}})
    assert file_quotas(document) == BEFORE


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.json", None, "there is no such file"),
        ("quotas.json", b"{", "it is no whole JSON document"),
        ("quotas.toml", b"[[quota]]\n", "quotas.toml"),
    ],
)
def test_a_file_that_has_none(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(UsageError, match=words):
        file_quotas(tmp_path / name)
