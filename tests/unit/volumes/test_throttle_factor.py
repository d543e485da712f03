"""Validity and fallback: the worked example of proposal 047, and the ends of both durations."""

import pytest

from kvota.volumes import ThrottleFactor, Volume, VolumeCache, volume_cache

MINUTE = 60_000


def test_the_worked_example_of_proposal_047() -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=2 * MINUTE, now_ms=0)
    seen = []
    for minute, observed in ((0, 1.0), (1, None), (2, None), (3, None), (4, 1.0)):
        if observed is None:
            factor.look(minute * MINUTE)
        else:
            factor.observed(observed, minute * MINUTE)
        seen.append(factor.value)

    assert seen == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert factor.fallbacks == 1
    assert not factor.is_fallback


def test_at_its_end_an_observation_is_still_valid() -> None:
    factor = ThrottleFactor(fallback=0.5, validity_ms=1_000, now_ms=0)
    factor.observed(1.0, 10_000)

    assert not factor.look(11_000)
    assert factor.look(11_001)
    assert factor.value == 0.5


def test_without_any_observation_the_fallback_comes_after_the_validity() -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=1_000, now_ms=5_000)

    assert (factor.look(6_000), factor.value) == (False, 1.0)
    assert (factor.look(6_001), factor.value) == (True, 0.0)


def test_the_fallback_is_counted_once_and_never_ends_by_itself() -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=1_000, now_ms=0)

    assert [factor.look(now_ms) for now_ms in (1_001, 2_500, 10**9)] == [True, False, False]
    assert factor.fallbacks == 1


def test_a_fallback_that_changes_nothing_is_counted_all_the_same() -> None:
    factor = ThrottleFactor(fallback=1.0, validity_ms=1_000, now_ms=0)

    assert not factor.look(1_001)
    assert (factor.is_fallback, factor.fallbacks) == (True, 1)


def test_an_equal_factor_is_no_change_and_renews_the_validity() -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=1_000, now_ms=0)

    assert not factor.observed(1.0, 900)
    assert not factor.look(1_900)
    assert factor.observed(0.5, 1_950)


def test_recovery_is_immediate() -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=0, now_ms=0)
    factor.look(1)

    assert factor.observed(0.7, 2)
    assert factor.value == 0.7


def seen(broker: int, available: int = 1) -> Volume:
    return Volume(broker_id=broker, log_dir="/d", total_bytes=10, available_bytes=available)


def test_a_broker_that_is_away_goes_on_to_count_until_the_validity_ends() -> None:
    cache = VolumeCache(validity_ms=1_000)
    cache.observed([seen(1), seen(2)], 0)

    assert {each.broker_id for each in cache.observed([seen(1)], 999)} == {1, 2}
    assert {each.broker_id for each in cache.observed([seen(1)], 1_000)} == {1}  # inclusive
    assert cache.evictions == {(1, "/d"): 0, (2, "/d"): 1}


def test_the_last_look_counts() -> None:
    cache = VolumeCache(validity_ms=1_000)
    cache.observed([seen(1, available=5)], 0)

    assert [each.available_bytes for each in cache.observed([seen(1, available=3)], 10)] == [3]


@pytest.mark.parametrize("validity_ms", [0, -1])
def test_without_a_validity_even_fresh_volumes_are_forgotten(validity_ms: int) -> None:
    assert VolumeCache(validity_ms=validity_ms).observed([seen(1)], 7) == ()


def test_a_look_that_fails_only_forgets() -> None:
    cache = VolumeCache(validity_ms=1_000)
    cache.observed([seen(1)], 0)

    cache.forget(1_000)

    assert len(cache) == 0


def test_a_broker_that_invents_log_directories_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume_cache, "REMEMBERED_MAX", 3)
    cache = VolumeCache(validity_ms=1_000)
    names = [f"/{number}" for number in range(10)]

    found: tuple[Volume, ...] = ()
    for now_ms, name in enumerate(names):
        found = cache.observed(
            [Volume(broker_id=1, log_dir=name, total_bytes=9, available_bytes=1)], now_ms
        )

    assert [each.log_dir for each in found] == names[-3:]
    assert [log_dir for _, log_dir in cache.evictions] == names[-3:]


def test_what_is_seen_again_is_not_the_first_to_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume_cache, "REMEMBERED_MAX", 2)
    cache = VolumeCache(validity_ms=1_000)

    found: tuple[Volume, ...] = ()
    for now_ms, brokers in enumerate(([1], [2], [1], [3])):
        found = cache.observed([seen(broker) for broker in brokers], now_ms)

    assert [each.broker_id for each in found] == [1, 3]
