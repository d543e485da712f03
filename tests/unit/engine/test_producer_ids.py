"""The quota on new producer ids: who is known, who is new, who is refused and for how long."""

import math

import pytest

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import (
    KNOWN,
    NEW,
    UNLIMITED_FROM,
    ProducerIdQuotaManagerCache,
    ProducerIdReading,
    ProducerIds,
)
from kvota.testing.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def burst(
    ids: ProducerIds, rate: float, count: int, *, now_ms: int = NOW_MS, first: int = 0
) -> int:
    """How many of so many new ids are admitted at once."""
    answers = [ids.admit("u", rate, first + number, now_ms) for number in range(count)]
    return answers.count(NEW)


def test_a_window_of_ids_passes_at_once_and_not_one_more() -> None:
    ids = ProducerIds()

    assert burst(ids, 100.0, 150) == 100
    assert (ids.admitted, ids.refused) == (100, 50)
    assert ids.admit("u", 100.0, 120, NOW_MS) == 36_000  # one id of 100 an hour


def test_known_ids_cost_nothing_and_pass_while_new_ones_are_refused() -> None:
    ids = ProducerIds()
    burst(ids, 100.0, 150)

    assert [ids.admit("u", 100.0, number, NOW_MS + 1) for number in range(100)] == [KNOWN] * 100
    assert ids.admit("u", 100.0, 149, NOW_MS + 1) > 0


def test_a_refused_id_is_not_known_when_it_comes_again() -> None:
    ids = ProducerIds()
    burst(ids, 1.0, 1)

    assert [ids.admit("u", 1.0, 7, NOW_MS) for _ in range(3)] == [HOUR_MS] * 3


@pytest.mark.parametrize("rate", [1.0, 3.0, 7.0, 100.0, 9_999.0, 0.3, 0.004])
def test_who_waits_as_long_as_told_is_admitted_and_not_a_millisecond_before(rate: float) -> None:
    ids = ProducerIds(Layering(false_positive_rate=1e-9))  # one that is confused costs no token
    now_ms = NOW_MS
    burst(ids, rate, math.ceil(rate))
    for number in range(10_000, 10_020):
        throttle_ms = ids.admit("u", rate, number, now_ms)
        assert throttle_ms >= 1
        if throttle_ms > 1:
            assert ids.admit("u", rate, number, now_ms + throttle_ms - 1) == 1
        now_ms += throttle_ms
        assert ids.admit("u", rate, number, now_ms) == NEW


def test_in_no_window_are_there_more_than_twice_the_rate() -> None:
    ids = ProducerIds()

    admitted = sum(
        ids.admit("u", 100.0, number, NOW_MS + number * 100) == NEW for number in range(36_000)
    )

    assert admitted == pytest.approx(200, abs=3)


def test_a_crash_loop_that_always_has_another_id_gets_few_in_uncounted() -> None:
    ids = ProducerIds(hash_key=7)
    tries, rate = 36_000, 100.0
    answers = [
        ids.admit("u", rate, 1_000 + number, NOW_MS + number * HOUR_MS // tries)
        for number in range(tries)
    ]

    assert answers.count(NEW) <= 2 * rate
    assert answers.count(KNOWN) < rate / 5  # of 1 in 100, as Bloom filters are often made: 230


def test_users_do_not_share_ids_or_tokens() -> None:
    ids = ProducerIds()

    assert [ids.admit(user, 1.0, 7, NOW_MS) for user in ("a", "b", "a", "b")] == [NEW, NEW, 0, 0]


@pytest.mark.parametrize("producer_id", [-1, -2, -(2**63)])
def test_a_batch_without_an_id_costs_nothing(producer_id: int) -> None:
    ids = ProducerIds()

    assert ids.admit("u", 0.0, producer_id, NOW_MS) == KNOWN
    assert ids.learn("u", 0.0, producer_id, NOW_MS) is True
    assert len(ids) == 0


def test_the_largest_id_is_one_as_any_other() -> None:
    ids = ProducerIds()

    assert [ids.admit("u", 5.0, 2**63 - 1, NOW_MS) for _ in range(2)] == [NEW, KNOWN]


@pytest.mark.parametrize("rate", [0.0, 0.003])
def test_a_rate_that_is_none_refuses_all_new_ids(rate: float) -> None:
    ids = ProducerIds()
    ids.learn("u", 10.0, 1, NOW_MS)

    assert ids.admit("u", rate, 1, NOW_MS) == KNOWN
    assert ids.admit("u", rate, 2, NOW_MS) == BLOCKED_THROTTLE_MS
    reading = ids.reading("u", NOW_MS)
    assert reading is not None
    assert (reading.tokens, reading.throttle_ms) == (0.0, BLOCKED_THROTTLE_MS)


@pytest.mark.parametrize("rate", [None, float(UNLIMITED_FROM), 2.0**63, math.inf])
def test_without_a_quota_nothing_is_kept(rate: float | None) -> None:
    ids = ProducerIds()
    burst(ids, 5.0, 9)

    assert ids.admit("u", rate, 77, NOW_MS) == KNOWN
    assert (len(ids), ids.memory.used_bytes) == (0, 0)


@pytest.mark.parametrize("rate", [-1.0, math.nan, -math.inf])
def test_a_rate_that_is_no_number_of_ids_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="not 0 or more new producer ids"):
        ProducerIds().admit("u", rate, 1, NOW_MS)


def test_another_rate_counts_at_once_and_known_ids_stay_known() -> None:
    ids = ProducerIds()
    burst(ids, 10.0, 10)

    assert ids.admit("u", 10.0, 99, NOW_MS + 1) > 0
    assert ids.admit("u", 10_000.0, 3, NOW_MS + 1) == KNOWN
    assert ids.admit("u", 10_000.0, 99, NOW_MS + 400) == NEW  # a token takes 0.36 s now
    assert ids.admit("u", 10.0, 100, NOW_MS + 400) > 0


def test_idle_users_are_forgotten_and_those_in_use_are_not() -> None:
    ids = ProducerIds()
    for number in range(100):
        ids.admit(f"idle-{number}", 5.0, number, NOW_MS)
    ids.admit("busy", 5.0, 1, NOW_MS)
    ids.admit("busy", 5.0, 1, NOW_MS + HOUR_MS - 1)
    now_ms = NOW_MS + HOUR_MS

    gone = [ids.sweep(now_ms, at_most=40) for _ in range(3)]

    assert (gone, list(ids.users)) == ([40, 40, 20], ["busy"])
    assert ids.memory.used_bytes == sum(layer.size_bytes for layer in ids.users["busy"].layers)


def test_who_owes_is_kept_until_a_new_user_would_be_treated_the_same() -> None:
    """With a rate below 1 a token takes more than a window: to forget it would be to give it back."""
    ids = ProducerIds()
    burst(ids, 0.25, 1)

    assert ids.sweep(NOW_MS + 2 * HOUR_MS, at_most=10) == 0
    assert ids.admit("u", 0.25, 9, NOW_MS + 2 * HOUR_MS) == 2 * HOUR_MS
    assert ids.sweep(NOW_MS + 4 * HOUR_MS, at_most=10) == 1


def test_a_sweep_gives_back_the_memory_of_layers_that_expired() -> None:
    ids = ProducerIds()
    burst(ids, 0.25, 1)
    assert ids.memory.used_bytes > 0

    ids.sweep(NOW_MS + HOUR_MS, at_most=1)

    assert (len(ids), ids.memory.used_bytes) == (1, 0)


def test_who_finds_no_place_passes_uncounted_until_an_idle_user_is_gone() -> None:
    ids = ProducerIds(users_max=2)
    ids.admit("a", 1.0, 1, NOW_MS)
    ids.admit("b", 1.0, 1, NOW_MS + 1)

    assert [ids.admit("c", 1.0, number, NOW_MS + 2) for number in range(3)] == [KNOWN] * 3
    assert (len(ids), ids.untracked) == (2, 3)
    assert ids.admit("c", 1.0, 1, NOW_MS + HOUR_MS) == NEW
    assert list(ids.users) == ["b", "c"]


def test_what_is_known_is_bounded_whoever_sends_how_many_ids() -> None:
    ids = ProducerIds(filter_bytes_max=20_000)
    for number in range(100_000):
        ids.learn("u", None, number * 1_000, NOW_MS)

    assert ids.memory.used_bytes < 40_000
    assert ids.memory.overfilled > 0


def test_a_clock_set_back_by_a_year_refuses_nobody_for_a_year() -> None:
    ids = ProducerIds()
    burst(ids, 100.0, 101)
    year_ago_ms = NOW_MS - 365 * 24 * HOUR_MS

    assert ids.admit("u", 100.0, 5, year_ago_ms) == KNOWN
    assert ids.admit("u", 100.0, 500, year_ago_ms) == 36_000
    assert ids.admit("u", 100.0, 500, year_ago_ms + 36_000) == NEW


def test_what_is_learnt_costs_no_token() -> None:
    ids = ProducerIds()

    assert [ids.learn("u", 5.0, number % 8, NOW_MS) for number in range(16)] == [False] * 8 + [
        True
    ] * 8
    assert burst(ids, 5.0, 20, first=100) == 5
    assert ids.admit("u", 5.0, 3, NOW_MS) == KNOWN


def test_a_reading_tells_what_there_is_and_moves_nothing() -> None:
    ids = ProducerIds()
    for number in range(3):
        ids.learn("u", 10.0, number, NOW_MS)
    burst(ids, 10.0, 4, first=100)

    expected = ProducerIdReading(
        rate=10.0,
        distinct_ids=7,
        # Ten whole samples of the window, and what of the running one is over.
        new_per_s=4000 / (HOUR_MS + NOW_MS % (HOUR_MS // 10)),
        new_ids=4,
        tokens=6.0,
        throttle_ms=0,
    )
    assert [ids.reading("u", NOW_MS) for _ in range(2)] == [expected] * 2
    burst(ids, 10.0, 20, first=1_000)
    spent = ids.reading("u", NOW_MS)
    assert spent is not None
    assert (spent.new_ids, spent.throttle_ms) == (10, HOUR_MS // 10)
    later = ids.reading("u", NOW_MS + HOUR_MS)
    assert later is not None
    assert later == ProducerIdReading(10.0, 0, later.new_per_s, 0, 10.0, 0)
    assert ids.reading("nobody", NOW_MS) is None


def test_the_hash_key_decides_which_ids_are_confused() -> None:
    def confused(key: int) -> list[int]:
        ids = ProducerIds(Layering(layers=1, false_positive_rate=0.5), hash_key=key)
        for number in range(16):
            ids.learn("u", 16.0, number, NOW_MS)
        return [n for n in range(100, 400) if ids.admit("u", 0.0, n, NOW_MS) == KNOWN]

    assert confused(1) == confused(1) != confused(2)


def test_kip_936s_class_tells_what_a_principal_was_seen_with_in_the_last_window() -> None:
    clock = ManualClock()
    cache = ProducerIdQuotaManagerCache(0.01, 3600, 4, clock=clock)

    assert [cache.track("alice", 2, number) for number in (1, 2, 3, 1)] == [False] * 3 + [True]
    assert cache.track("bob", 2, 1) is False
    clock.advance(2_700_000)
    assert cache.track("alice", 2, 1) is True  # it is renewed
    clock.advance(2_700_000)
    assert [cache.track("alice", 2, number) for number in (1, 2)] == [True, False]
    assert cache.cleanup() == 1  # bob
    clock.advance(3_600_000)
    assert cache.cleanup() == 1


@pytest.mark.parametrize(
    ("false_positive_rate", "window_s", "layers"), [(0.0, 1, 1), (0.1, 0, 1), (0.1, 1, 0)]
)
def test_kip_936s_class_refuses_settings_that_cannot_be(
    false_positive_rate: float, window_s: int, layers: int
) -> None:
    with pytest.raises(ValueError, match="is not 1"):
        ProducerIdQuotaManagerCache(false_positive_rate, window_s, layers, clock=ManualClock())
