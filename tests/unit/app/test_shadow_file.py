"""The file that a gateway tries in shadow mode: what it wants, what it is told by, and what is refused."""

from pathlib import Path

import pytest

from kvota.app.config import load_files
from kvota.app.shadow_file import load_shadow
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import ConfigurationError, UsageError
from kvota.model.quota_entity import QuotaEntity

ALICE, BOB = QuotaEntity(user="alice"), QuotaEntity(user="bob")
RATE = "producer_byte_rate"
ONE = """
quotas:
  - user: alice
    producer_byte_rate: 1MB/s
    request_percentage: none
  - client_id: web
    consumer_byte_rate: 2MB/s
"""
SAME = """
# in another order, in other units
quotas:
  - client_id: web
    consumer_byte_rate: 2000000
  - user: alice
    request_percentage: none
    producer_byte_rate: 1000KB/s
"""
GATEWAY = '[upstream]\nbootstrap_servers = ["kafka-1:9092"]\n[quotas]\nshadow = "next.yaml"\n'


def written(folder: Path, text: str, name: str = "next.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_same_wishes_are_known_again(tmp_path: Path) -> None:
    one = load_shadow(written(tmp_path, ONE))

    assert load_shadow(written(tmp_path, SAME)).digest == one.digest
    for other in ("1MB/s", "2MB/s"), ("alice", "bob"), ("request_percentage: none\n", "\n"):
        assert load_shadow(written(tmp_path, ONE.replace(*other))).digest != one.digest


def test_what_it_does_not_mention_stays(tmp_path: Path) -> None:
    in_force = ClientQuotas().with_changes(
        [
            KeyChange(ALICE, RATE, 5.0),
            KeyChange(ALICE, "request_percentage", 50.0),
            KeyChange(BOB, RATE, 7.0),
        ]
    )

    quotas = load_shadow(written(tmp_path, ONE)).quotas(in_force)

    assert quotas.value(ALICE, RATE) == 1_000_000
    assert quotas.value(ALICE, "request_percentage") is None
    assert quotas.value(BOB, RATE) == 7
    assert quotas.value(QuotaEntity(client_id="web"), "consumer_byte_rate") == 2_000_000


def gateway(folder: Path, text: str = GATEWAY) -> Path:
    written(folder, "", "quotas.toml")
    return written(folder, text, "gateway.toml")


def test_a_gateway_reads_it_with_its_files(tmp_path: Path) -> None:
    written(tmp_path, ONE)

    config, _ = load_files(gateway(tmp_path))

    assert config.shadow is not None
    assert config.shadow.path == tmp_path / "next.yaml"
    without, _ = load_files(gateway(tmp_path, GATEWAY.replace('shadow = "next.yaml"', "")))
    assert without.shadow is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quotas:\n  - user: alice\n    producer_byte_rate: 5 parsecs\n", "next.yaml:3:"),
        ("quotas: [", "next.yaml:2:"),
        ("a: &x [*x]\nquotas: []\n", "next.yaml:1:"),
    ],
)
def test_its_faults_are_named_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    written(tmp_path, text)

    with pytest.raises(ConfigurationError, match=said):
        load_files(gateway(tmp_path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"next\.yaml"):
        load_files(gateway(tmp_path))


def test_what_undoes_a_change_is_not_tried(tmp_path: Path) -> None:
    undo = 'quotas: []\nundo:\n  made_at: "2026-01-01T00:00:00Z"\n  command: apply\n'
    written(tmp_path, undo)

    with pytest.raises(UsageError, match="undoes a change"):
        load_files(gateway(tmp_path))


def test_beside_a_quota_callback_nothing_can_be_tried(tmp_path: Path) -> None:
    written(tmp_path, ONE)
    callback = '[kafka]\n"client.quota.callback.class" = "kvota.callbacks.StaticQuotaCallback"\n"client.quota.callback.static.produce" = "1000000"\n'

    with pytest.raises(UsageError, match="here a quota callback decides"):
        load_files(gateway(tmp_path, GATEWAY + callback))
