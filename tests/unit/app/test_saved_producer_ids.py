"""Which producer ids are known outlives a restart, and where it does not, nobody is refused for that."""

import logging
from pathlib import Path

import pytest

from kvota.app.config import GatewayConfig, read_config
from kvota.app.saved_producer_ids import mark_running, open_producer_ids, save_producer_ids
from kvota.engine.producer_ids import KNOWN, NEW
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.session.producer_id_quota import Asker, Judgement, ProducerIdQuota
from kvota.wire.producer_ids import BatchProducer
from kvota.wire.steps import at_once

NOW_MS = 1_700_000_000_000
ALICE = Asker("alice", 1, enforced=True)
QUOTAS = ClientQuotas({QuotaEntity(user="alice"): {PRODUCER_IDS_KEY: 1.0}})


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    path = tmp_path / "gateway.toml"
    path.write_text(
        '[upstream]\nbootstrap_servers = ["kafka-1:9092"]\n'
        '[kafka]\n"producer.id.quota.window.size.seconds" = 1200\n'
    )
    return read_config(path)[0]


def started(config: GatewayConfig, now_ms: int = NOW_MS) -> ProducerIdQuota:
    quota = open_producer_ids(config, QUOTAS, now_ms=now_ms)
    mark_running(config, quota)
    return quota


def judged(quota: ProducerIdQuota, producer_id: int, now_ms: int = NOW_MS) -> Judgement:
    batch = BatchProducer(b"orders", 0, producer_id, 0, 0)
    return at_once(quota.judge(ALICE, [batch], now_ms))


def test_what_was_known_is_known_after_a_restart(config: GatewayConfig) -> None:
    first = started(config)
    assert first.ids.memory.layering == config.gateway.producer_ids.layering
    assert first.ids.hash_key  # a secret, else ids could be chosen that pass uncounted
    assert judged(first, 1000).new == 1
    save_producer_ids(config, first)

    second = started(config)
    assert second.ids.admit("alice", 1.0, 1000, NOW_MS) == KNOWN
    assert judged(second, 2000).refused
    assert not second.learns_until_ms
    assert config.quotas.saved_ids.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_where_it_is_lost_new_ids_are_let_in_for_one_window(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    started(config)
    if not is_killed:
        config.quotas.saved_ids.write_bytes(b"kvota producer ids 1\nnothing")
    with caplog.at_level(logging.WARNING, "kvota.gateway"):
        second = started(config)
    for producer_id in (1, 2, 3):
        assert judged(second, producer_id) == Judgement(0, 0, 0, set(), [], 0)
    window_ms = config.gateway.producer_ids.layering.window_ms
    assert second.ids.admit("alice", 1.0, 3, NOW_MS + window_ms // 2) == KNOWN
    later_ms = NOW_MS + window_ms
    assert judged(second, 7, later_ms).new == 1
    assert judged(second, 8, later_ms).refused
    (said,) = [record.getMessage() for record in caplog.records]
    assert str(config.quotas.saved_ids) in said
    assert "for 1200 s new ones are let in uncounted" in said


def test_nobody_with_a_quota_leaves_no_file(config: GatewayConfig) -> None:
    quota = open_producer_ids(config, ClientQuotas(), now_ms=NOW_MS)
    mark_running(config, quota)
    save_producer_ids(config, quota)
    assert not config.quotas.saved_ids.exists()


def test_a_file_that_cannot_be_written_is_said(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture
) -> None:
    quota = started(config)
    assert quota.ids.admit("alice", 1.0, 1000, NOW_MS) == NEW
    config.quotas.saved_ids.unlink()
    config.quotas.saved_ids.mkdir()
    with caplog.at_level(logging.WARNING, "kvota.gateway"):
        save_producer_ids(config, quota)
    assert "cannot be written" in caplog.text
