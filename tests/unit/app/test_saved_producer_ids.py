"""Which producer ids are known outlives a restart, and where it does not, nobody is refused for that."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kvota.app.config import GatewayConfig, read_config
from kvota.app.saved_producer_ids import mark_running, open_producer_ids, save_producer_ids
from kvota.engine.producer_ids import KNOWN, NEW, ProducerIds
from kvota.engine.saved_producer_ids import to_bytes
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.session.id_decisions import Asker, Decisions
from kvota.session.producer_id_quota import Judgement, ProducerIdQuota
from kvota.wire.producer_ids import BatchProducer
from kvota.wire.steps import at_once

NOW_MS = 1_700_000_000_000
ALICE = Asker("alice", 1, enforced=True, awaits_answer=True)
QUOTAS = ClientQuotas({QuotaEntity(user="alice"): {PRODUCER_IDS_KEY: 1.0}})


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    path = tmp_path / "gateway.toml"
    path.write_text(
        '[upstream]\nbootstrap_servers = ["kafka-1:9092"]\n'
        '[kafka]\n"producer.id.quota.window.size.seconds" = 1200\n'
    )
    return read_config(path)[0]


class Judged(NamedTuple):
    judgement: Judgement
    new: list[int]


def started(config: GatewayConfig, now_ms: int = NOW_MS) -> ProducerIdQuota:
    quota = open_producer_ids(config, QUOTAS, now_ms=now_ms)
    mark_running(config, quota, at_once_beside)
    return quota


def at_once_beside(call: Callable[[], None]) -> None:
    call()


def judged(
    quota: ProducerIdQuota,
    producer_id: int,
    now_ms: int = NOW_MS,
    *,
    base_sequence: int = 0,
    asker: Asker = ALICE,
) -> Judged:
    batch = BatchProducer(b"orders", 0, producer_id, 0, base_sequence)
    noted: list[Decisions] = []
    judgement = at_once(quota.judge(asker, [batch], lambda: now_ms * 1000, noted.append))
    return Judged(judgement, [one for decisions in noted for one in decisions.new])


def test_what_was_known_is_known_after_a_restart(config: GatewayConfig) -> None:
    first = started(config)
    assert first.ids.memory.layering == config.gateway.producer_ids.layering
    assert first.ids.hash_key  # a secret, else ids could be chosen that pass uncounted
    assert judged(first, 1000).new == [1000]
    save_producer_ids(config, first)

    second = started(config)
    assert second.ids.admit("alice", 1.0, 1000, NOW_MS) == KNOWN
    assert judged(second, 2000).judgement.refused
    assert not second.ids.learns_until_ms
    assert config.quotas.saved_ids.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_where_it_is_lost_new_ids_are_let_in_for_one_window(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    started(config)
    if not is_killed:
        config.quotas.saved_ids.write_bytes(b"kvota producer ids 2\nnothing")
    with caplog.at_level(logging.WARNING, "kvota.gateway"):
        second = started(config)
    for producer_id in (1, 2, 3):
        assert judged(second, producer_id) == Judged(Judgement(set(), [], 0), [])
    window_ms = config.gateway.producer_ids.layering.window_ms
    assert second.ids.admit("alice", 1.0, 3, NOW_MS + window_ms // 2) == KNOWN
    later_ms = NOW_MS + window_ms
    assert judged(second, 7, later_ms).new == [7]
    assert judged(second, 8, later_ms).judgement.refused
    (said,) = [record.getMessage() for record in caplog.records]
    assert str(config.quotas.saved_ids) in said
    assert "for 1200 s new ones are let in uncounted" in said


@pytest.mark.parametrize("is_reload", [True, False])
def test_who_is_killed_after_its_first_quota_came_lets_the_next_one_learn(
    config: GatewayConfig, *, is_reload: bool
) -> None:
    save_producer_ids(config, started(config))
    config.quotas.saved_ids.write_bytes(to_bytes(ProducerIds()))  # of an earlier run
    quota = open_producer_ids(config, ClientQuotas(), now_ms=NOW_MS)
    mark_running(config, quota, at_once_beside)
    assert not open_producer_ids(config, QUOTAS, now_ms=NOW_MS).ids.learns_until_ms
    if is_reload:
        quota.replace(QUOTAS)
    else:
        quota.change([KeyChange(QuotaEntity(user="alice"), PRODUCER_IDS_KEY, 1.0)])
    # It is killed.
    window_ms = config.gateway.producer_ids.layering.window_ms
    assert (
        open_producer_ids(config, QUOTAS, now_ms=NOW_MS).ids.learns_until_ms == NOW_MS + window_ms
    )


def test_who_restarts_while_ids_are_learned_goes_on_learning(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture
) -> None:
    started(config)  # and killed
    second = started(config)
    until_ms = second.ids.learns_until_ms
    save_producer_ids(config, second)
    caplog.clear()

    third = started(config, NOW_MS + 60_000)

    assert third.ids.learns_until_ms == until_ms > NOW_MS
    assert "for 1140 s more new ones are let in uncounted" in caplog.text
    for producer_id in (1, 2, 3):
        assert judged(third, producer_id, NOW_MS + 60_000).new == []
    save_producer_ids(config, third)
    # No longer than a window, where the clock has gone back.
    early_ms = NOW_MS - 10 * 3_600_000
    window_ms = config.gateway.producer_ids.layering.window_ms
    assert started(config, early_ms).ids.learns_until_ms == early_ms + window_ms


def test_a_first_rate_that_comes_with_a_restart_makes_no_running_producer_new(
    config: GatewayConfig,
) -> None:
    bob = ALICE._replace(user="bob")
    of_bob = {QuotaEntity(user="bob"): {PRODUCER_IDS_KEY: 1.0}}
    first = open_producer_ids(config, ClientQuotas(of_bob), now_ms=NOW_MS)
    assert judged(first, 1000, asker=bob).new == [1000]
    save_producer_ids(config, first)

    both = ClientQuotas(of_bob | QUOTAS.entries())
    quota = open_producer_ids(config, both, now_ms=NOW_MS)

    for producer_id in (1, 2, 3):  # have been running
        assert judged(quota, producer_id, base_sequence=5) == Judged(Judgement(set(), [], 0), [])
    assert judged(quota, 4).new == [4]  # begins, and costs the token
    assert judged(quota, 5).judgement.refused
    # Whoever had a rate before is counted, whatever its batches say.
    window_ms = config.gateway.producer_ids.layering.window_ms
    later_ms = NOW_MS + window_ms
    save_producer_ids(config, quota)
    again = open_producer_ids(config, both, now_ms=later_ms)
    for asker in (ALICE, bob):
        assert judged(again, 6, later_ms, base_sequence=5, asker=asker).new == [6]
        refused = judged(again, 7, later_ms, base_sequence=5, asker=asker).judgement.refused
        assert refused, asker


@pytest.mark.parametrize("entity", [QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT)])
def test_a_restart_within_the_window_of_a_first_rate_ends_it_not_and_makes_it_no_longer(
    config: GatewayConfig, entity: QuotaEntity
) -> None:
    quotas = ClientQuotas({entity: {PRODUCER_IDS_KEY: 1.0}})
    window_ms = config.gateway.producer_ids.layering.window_ms
    save_producer_ids(config, open_producer_ids(config, quotas, now_ms=NOW_MS))
    half_ms, end_ms = NOW_MS + window_ms // 2, NOW_MS + window_ms + 1

    quota = open_producer_ids(config, quotas, now_ms=half_ms)

    for producer_id in (1, 2, 3):
        assert not judged(quota, producer_id, half_ms, base_sequence=5).new
    assert judged(quota, 4, end_ms, base_sequence=5).new == [4]
    assert judged(quota, 5, end_ms, base_sequence=5).judgement.refused


def test_gateways_in_one_folder_have_files_of_their_own(config: GatewayConfig) -> None:
    other = config.path.with_name("other.toml")
    other.write_text(config.path.read_text())
    assert config.quotas.saved_ids == config.path.with_name("gateway.producer-ids")
    assert read_config(other)[0].quotas.saved_ids == other.with_name("other.producer-ids")


def test_nobody_with_a_quota_leaves_no_file(config: GatewayConfig) -> None:
    quota = open_producer_ids(config, ClientQuotas(), now_ms=NOW_MS)
    mark_running(config, quota, at_once_beside)
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
