"""Thousands of new client ids a second: what is kept of them, and how much is done at once."""

import pytest

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, PlaceKey, QuotaEngine, QuotaType, QuotaWindow, packed
from kvota.engine.counters import CROWD, CROWD_CHARS
from kvota.engine.engine import PURGE_STEP
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.tags import tags_text

P, FETCH = QuotaType.PRODUCE, QuotaType.FETCH
NOW_MS = 1_700_000_000_000
PER_SECOND = 4_000
BUCKET = {P: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}


def engine_of(
    limit: float,
    buckets: dict[QuotaType, BucketSettings] | None = None,
    window: QuotaWindow = QuotaWindow(),  # noqa: B008  (never changed)
) -> QuotaEngine:
    quotas = ConfiguredQuotas({QuotaEntity(client_id=DEFAULT): {P: limit}})
    return QuotaEngine(DefaultQuotaCallback(quotas), {P: window}, buckets or {})


def lane_of(engine: QuotaEngine, client_id: str, now_ms: int) -> Lane:
    lane = engine.lane(P, 1, "u", client_id, now_ms)
    assert lane is not None
    return lane


def flood(engine: QuotaEngine, seconds: int, *, name: str = "{}", value: int = 100) -> int:
    """New client ids for so long; returns when it was over."""
    for number in range(seconds * PER_SECOND):
        now_ms = NOW_MS + number * 1000 // PER_SECOND
        lane_of(engine, name.format(number), now_ms).charge(value, now_ms)
    return NOW_MS + seconds * 1000


def in_full(engine: QuotaEngine) -> int:
    return sum(1 for _ in engine._counters.of_type(P))


@pytest.mark.parametrize(
    ("name", "in_full_max"),
    [("{}", CROWD + PER_SECOND // 4), ("{:01000d}", CROWD_CHARS // 1_000 + PER_SECOND // 4)],
)
def test_few_counters_of_a_flood_are_there_in_full(name: str, in_full_max: int) -> None:
    engine = engine_of(1e6)

    now_ms = flood(engine, 3, name=name)

    assert in_full(engine) <= in_full_max + 10
    assert len(engine._counters) == 3 * PER_SECOND  # no window is over, none is forgotten
    assert lane_of(engine, name.format(1), now_ms).peek(now_ms) == 0


def test_a_flood_that_goes_on_keeps_no_more_than_its_windows() -> None:
    engine = engine_of(1e6, window=QuotaWindow(2, 1000))

    flood(engine, 6)

    assert len(engine._counters) < 1.5 * 2 * PER_SECOND + CROWD


def test_a_step_of_a_purge_looks_at_so_many() -> None:
    engine = engine_of(1e6)
    now_ms = flood(engine, 2) + 11_000
    before = len(engine._counters)

    assert engine.purge_some(now_ms)

    assert before - len(engine._counters) == 2 * PURGE_STEP  # in full, and put away
    steps = 1
    while engine.purge_some(now_ms):
        steps += 1
    assert len(engine._counters) <= CROWD
    assert steps < 2 * before // PURGE_STEP


@pytest.mark.parametrize("buckets", [{}, BUCKET])
def test_what_is_put_away_is_charged_on(buckets: dict[QuotaType, BucketSettings]) -> None:
    engine = engine_of(1_000.0, buckets)
    mine = lane_of(engine, "mine", NOW_MS)
    told = mine.charge(30_000, NOW_MS)
    version = mine.version

    now_ms = flood(engine, 2)

    assert mine.is_forgotten
    assert mine.version != version  # whoever keeps it asks again
    again = lane_of(engine, "mine", now_ms)
    assert (again.tags, again.limit) == (mine.tags, 1_000.0)
    assert 0 < again.peek(now_ms) == mine.peek(now_ms) <= told
    assert engine.recall(mine, now_ms) is again


def test_one_that_is_charged_all_the_time_stays() -> None:
    engine = engine_of(1e6)
    mine = lane_of(engine, "mine", NOW_MS)

    for number in range(2 * PER_SECOND):
        now_ms = NOW_MS + number * 1000 // PER_SECOND
        mine.charge(1, now_ms)
        lane_of(engine, f"{number}", now_ms).charge(1, now_ms)

    assert not mine.is_forgotten


def test_one_in_whose_line_somebody_waits_stays() -> None:
    engine = engine_of(1_000.0, BUCKET)
    mine = lane_of(engine, "mine", NOW_MS)
    mine.charge(100_000, NOW_MS)
    turn = mine.join(lambda: None)

    flood(engine, 1)

    assert not mine.is_forgotten
    mine.leave(turn)
    flood(engine, 2)
    assert mine.is_forgotten


def test_one_in_whose_line_a_place_is_kept_stays() -> None:
    engine = engine_of(1_000.0, BUCKET)
    mine = lane_of(engine, "mine", NOW_MS)
    mine.charge(100_000, NOW_MS)
    key = PlaceKey("192.0.2.1", "u", b"mine")
    mine.give_up(mine.join(lambda: None, key, NOW_MS), key, NOW_MS)

    flood(engine, 2)

    assert not mine.is_forgotten


def test_quotas_changed_meanwhile_are_in_force_when_it_is_back() -> None:
    engine = engine_of(1_000.0)
    mine = lane_of(engine, "mine", NOW_MS)
    mine.charge(30_000, NOW_MS)
    now_ms = flood(engine, 2)

    engine.apply([QuotaChange(QuotaEntity(client_id=DEFAULT), P, 10_000.0)])
    engine.set_factor(P, 0.5)

    assert lane_of(engine, "mine", now_ms).limit == 5_000.0


def test_a_limit_set_meanwhile_is_in_force_when_it_is_back() -> None:
    engine = engine_of(1_000.0)
    mine = lane_of(engine, "mine", NOW_MS)
    now_ms = flood(engine, 2)
    assert mine.is_forgotten

    engine.set_limit(P, 7.0, tags=tags_text(mine.tag_values))

    assert lane_of(engine, "mine", now_ms).limit == 7.0


def test_debts_behind_more_names_than_are_kept_are_lost_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "PACKED_MAX", 1_000)
    engine = engine_of(1.0, BUCKET)

    flood(engine, 2)

    assert len(engine._counters) <= CROWD + PER_SECOND // 4 + 1_010
    assert engine.counters_lost >= 2 * PER_SECOND - CROWD - PER_SECOND // 4 - 1_010


# ------------------------------------------------------------------ an answer larger than its window


def fetch_lane(engine: QuotaEngine, client_id: str, now_ms: int) -> Lane:
    lane = engine.lane(FETCH, 1, "u", client_id, now_ms)
    assert lane is not None
    return lane


def flood_of_fetches(engine: QuotaEngine, count: int, now_ms: int, *, value: int = 100) -> int:
    """So many new client ids within two seconds, each with one answer; returns when it was over."""
    for number in range(count):
        at_ms = now_ms + number * 2_000 // count
        lane = fetch_lane(engine, f"{now_ms}-{number}", at_ms)
        lane.answer_room().judge(lane, value, at_ms)
    return now_ms + 2_000


def one_that_owes() -> tuple[QuotaEngine, Lane]:
    """A counter of 1,000 bytes/s that was delivered 1 MB: it owes 1,000 s, of which a window has the smallest part."""
    quotas = ConfiguredQuotas({QuotaEntity(client_id=DEFAULT): {FETCH: 1_000.0}})
    engine = QuotaEngine(DefaultQuotaCallback(quotas), {})
    mine = fetch_lane(engine, "mine", NOW_MS)
    assert mine.answer_room().judge(mine, 1_000_000, NOW_MS).is_delivered
    return engine, mine


@pytest.mark.parametrize("value", [100, 1_000_000], ids=["beside others", "where all owe"])
def test_what_is_owed_for_a_large_answer_is_put_away_with_its_counter(value: int) -> None:
    engine, mine = one_that_owes()
    unpaid_ms = mine.answer_room().unpaid_ms(mine, NOW_MS)

    now_ms = flood_of_fetches(engine, 25_000, NOW_MS, value=value)

    assert mine.is_forgotten
    again = fetch_lane(engine, "mine", now_ms)
    assert again.answer_room().unpaid_ms(again, now_ms) == unpaid_ms - 2_000
    assert not again.answer_room().judge(again, 1_000_000, now_ms).is_delivered


def test_what_is_owed_is_forgotten_when_it_is_paid_and_not_before() -> None:
    engine, mine = one_that_owes()
    paid_ms = NOW_MS + mine.answer_room().unpaid_ms(mine, NOW_MS)
    flood_of_fetches(engine, 25_000, NOW_MS)
    assert mine.is_forgotten

    for at_ms, is_kept in ((paid_ms - 1, True), (paid_ms, False)):
        engine.purge_expired(at_ms)
        assert engine._counters.is_put_away(FETCH, mine.tags, 1) is is_kept


def test_another_limit_leaves_what_is_owed() -> None:
    engine, _ = one_that_owes()
    flood_of_fetches(engine, 25_000, NOW_MS)
    now_ms = NOW_MS + 2_000

    engine.replace_quotas(ConfiguredQuotas({QuotaEntity(client_id=DEFAULT): {FETCH: 2_000.0}}))

    again = fetch_lane(engine, "mine", now_ms)
    assert again.limit == 2_000.0
    assert again.answer_room().unpaid_ms(again, now_ms) == pytest.approx(500_000, abs=20_000)
