"""What is said of a user's next new producer id is what becomes of it."""

from copy import deepcopy

import pytest

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.engine.refused_batches import Batch
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.session.id_explanation import explain_ids
from kvota.session.producer_id_quota import ProducerIdQuota

NOW_MS, WINDOW_MS = 1_700_000_000_000, 60_000
ALICE, EVERYBODY = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT)
UNSEEN = 987_654_321


def quota_of(entity: QuotaEntity, rate: float | None) -> ProducerIdQuota:
    quota = ProducerIdQuota(ProducerIds(Layering(window_ms=WINDOW_MS)))
    change(quota, entity, rate)
    return quota


def change(quota: ProducerIdQuota, entity: QuotaEntity, rate: float | None) -> None:
    quota.change([KeyChange(entity, PRODUCER_IDS_KEY, rate)])


def produced(quota: ProducerIdQuota, count: int, now_ms: int = NOW_MS) -> None:
    for producer_id in range(count):
        quota.ids.admit("alice", quota.rate("alice"), producer_id, now_ms)


@pytest.mark.parametrize("entity", [ALICE, EVERYBODY])
@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.3, 1.0, 2.0, 5.0, 1e9, 2.0**40, None])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 20])
@pytest.mark.parametrize("later_ms", [0, 11_999, 12_000, 12_001, WINDOW_MS, -5_000])
def test_it_says_what_becomes_of_the_next_new_id(
    entity: QuotaEntity, rate: float | None, count: int, later_ms: int
) -> None:
    quota = quota_of(entity, rate)
    produced(quota, count)
    now_ms = NOW_MS + later_ms

    said = explain_ids(quota, "alice", now_ms, enforced=True).reading

    next_ids = deepcopy(quota.ids)
    answer = next_ids.admit("alice", quota.rate("alice"), UNSEEN, now_ms)
    assert said.throttle_ms == max(0, answer)


@pytest.mark.parametrize("before", [0.3, 3.0, 100.0])
@pytest.mark.parametrize("after", [0.0, 0.3, 3.0, 100.0])
def test_another_rate_counts_before_its_user_has_produced_again(
    before: float, after: float
) -> None:
    quota = quota_of(ALICE, before)
    produced(quota, 10)
    change(quota, ALICE, after)

    said = explain_ids(quota, "alice", NOW_MS + 500, enforced=True).reading

    assert said.rate == after
    answer = deepcopy(quota.ids).admit("alice", after, UNSEEN, NOW_MS + 500)
    assert said.throttle_ms == max(0, answer)


def test_looking_moves_nothing() -> None:
    looked_at, alone = quota_of(ALICE, 3.0), quota_of(ALICE, 3.0)
    for quota in (looked_at, alone):
        produced(quota, 4)
    for user in ("alice", "unheard of"):
        explain_ids(looked_at, user, NOW_MS + 30_000, enforced=True)

    assert looked_at.ids.users.keys() == {"alice"}
    for producer_id in range(10):
        answers = [
            quota.ids.admit("alice", 3.0, producer_id, NOW_MS + 20_000)
            for quota in (looked_at, alone)
        ]
        assert answers[0] == answers[1]


def test_what_is_seen_and_what_is_kept_back() -> None:
    quota = quota_of(EVERYBODY, 3.0)
    produced(quota, 5)
    quota.refused_batches.refuse("alice", Batch((4, b"orders", 0), 0, 0), 1, NOW_MS)

    said = explain_ids(quota, "alice", NOW_MS, enforced=False)

    assert said.decided_by == EVERYBODY
    assert said.window_ms == WINDOW_MS
    assert (said.reading.distinct_ids, said.reading.new_ids) == (3, 3)
    assert said.refused_partitions == 1
    assert explain_ids(quota, "bob", NOW_MS, enforced=True).refused_partitions == 0


def test_where_nobody_has_one_nothing_is_there_to_explain() -> None:
    said = explain_ids(ProducerIdQuota(), "alice", NOW_MS, enforced=True)
    assert not said.exists
    assert said.decided_by is None
    assert (said.reading.rate, said.reading.throttle_ms) == (None, 0)


def test_while_ids_are_learned_every_one_passes() -> None:
    quota = quota_of(ALICE, 1.0)
    produced(quota, 3)
    quota.ids.learns_until_ms = NOW_MS + 5_000
    assert explain_ids(quota, "alice", NOW_MS, enforced=True).reading.throttle_ms == 0
    said = explain_ids(quota, "alice", NOW_MS + 5_000, enforced=True)
    assert said.reading.throttle_ms > 0
    assert said.learns_until_ms == 0
