"""Mutation quotas: KIP-599's example, and the scenarios of Kafka's three quota classes' tests."""

import pytest

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Decision, QuotaEngine, QuotaType, QuotaWindow
from kvota.engine.mutations import MutationQuota
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.event import Outcome
from kvota.model.quota_entity import QuotaEntity

_M = QuotaType.CONTROLLER_MUTATION
_NOW_MS = 1_700_000_000_000
_USER = QuotaEntity(user="u")


def _engine(limit: float, *, samples: int = 10) -> QuotaEngine:
    return QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({_USER: {_M: limit}})),
        {_M: QuotaWindow(samples, 1000)},
    )


def _quota(engine: QuotaEngine, *, strict: bool, now_ms: int = _NOW_MS) -> MutationQuota:
    return engine.mutations("u", "c", strict=strict, now_ms=now_ms)


def _admitted(limit: float | None) -> Decision:
    return Decision(Outcome.ADMITTED, 0, limit)


# KIP-599: 5 partitions/s with a window of 100 x 1 s are 500 tokens; topics have 80 partitions.
def test_the_kips_seven_topics_are_admitted_and_the_eighth_waits_twelve_seconds() -> None:
    quota = _quota(_engine(5.0, samples=100), strict=True)

    seven = [quota.charge(80, _NOW_MS) for _ in range(7)]
    waited = quota.throttle_ms(_NOW_MS)
    eighth = quota.charge(80, _NOW_MS)

    assert seven == [_admitted(5.0)] * 7
    assert waited == 0
    assert eighth == Decision(Outcome.REJECTED, 12_000, 5.0)


def test_the_kips_next_request_is_the_one_that_pays() -> None:
    engine = _engine(5.0, samples=100)
    first = _quota(engine, strict=True)
    for _ in range(7):
        first.charge(80, _NOW_MS)

    # As on a real broker: 74 ms later 11,926 ms are left.
    second = _quota(engine, strict=True).charge(80, _NOW_MS + 74)

    assert second == Decision(Outcome.REJECTED, 11_926, 5.0)


def test_the_kips_burst_in_an_old_version_is_admitted_and_throttled() -> None:
    quota = _quota(_engine(5.0, samples=100), strict=False)

    decisions = [quota.charge(80, _NOW_MS) for _ in range(7)]

    assert decisions == [_admitted(5.0)] * 6 + [Decision(Outcome.THROTTLED, 12_000, 5.0)]
    assert quota.throttle_ms(_NOW_MS + 212) == 11_788


# StrictControllerMutationQuotaTest, PermissiveControllerMutationQuotaTest: 10/s, burst 100.
def test_a_strict_quota_rejects_in_debt_and_keeps_the_debt() -> None:
    quota = _quota(_engine(10.0), strict=True)

    outcomes = [quota.charge(90, _NOW_MS) for _ in range(3)]

    assert outcomes == [_admitted(10.0), _admitted(10.0), Decision(Outcome.REJECTED, 8000, 10.0)]
    assert quota.throttle_ms(_NOW_MS) == 8000
    assert quota.throttle_ms(_NOW_MS + 5000) == 3000
    assert quota.throttle_ms(_NOW_MS + 9000) == 0


def test_a_permissive_quota_takes_all() -> None:
    quota = _quota(_engine(10.0), strict=False)

    throttles_ms = [quota.charge(90, _NOW_MS).throttle_ms for _ in range(3)]

    assert throttles_ms == [0, 8000, 17_000]
    assert quota.throttle_ms(_NOW_MS + 5000) == 12_000


# ControllerMutationQuotaManagerTest.
def test_a_spike_is_admitted_and_the_next_one_waits() -> None:
    engine = _engine(10.0)
    now_ms = _NOW_MS
    for _ in range(10):
        assert _quota(engine, strict=True).charge(10, now_ms) == _admitted(10.0)
        now_ms += 1000

    spikes = [_quota(engine, strict=True).charge(110, now_ms) for _ in range(2)]
    after_the_wait = _quota(engine, strict=True).charge(110, now_ms + 1000)

    assert spikes == [_admitted(10.0), Decision(Outcome.REJECTED, 1000, 10.0)]
    assert after_the_wait == _admitted(10.0)


def test_without_any_mutation_quota_it_is_unbounded() -> None:
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({_USER: {QuotaType.PRODUCE: 1.0}})), {}
    )

    quota = _quota(engine, strict=True)

    assert [quota.charge(1e300, _NOW_MS) for _ in range(2)] == [_admitted(None)] * 2
    assert (quota.samples, quota.sample_ms, quota.limit) == (0, 0, None)
    assert quota.tags == "client-id=c,user="
    assert quota.throttle_ms(_NOW_MS) == 0
    quota.give_back(5, _NOW_MS)


def test_a_client_without_a_limit_is_recorded_and_never_throttled() -> None:
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user="x"): {_M: 1.0}})),
        {_M: QuotaWindow(10, 1000)},
    )

    quota = _quota(engine, strict=True)

    assert [quota.charge(1_000_000, _NOW_MS) for _ in range(3)] == [_admitted(None)] * 3
    assert (quota.samples, quota.sample_ms, quota.limit) == (10, 1000, None)
    assert quota.tags == "client-id=,user=u"


def test_a_throttle_that_rounds_to_nothing_still_rejects() -> None:
    quota = _quota(_engine(1e6), strict=True)
    quota.charge(1e7 + 1, _NOW_MS)

    rejected = quota.charge(0, _NOW_MS)

    assert rejected == Decision(Outcome.REJECTED, 0, 1e6)
    assert quota.throttle_ms(_NOW_MS) == 0


def test_what_is_given_back_can_be_spent_again() -> None:
    engine = _engine(10.0)
    quota = _quota(engine, strict=True)
    quota.charge(150, _NOW_MS)

    quota.give_back(60, _NOW_MS)

    assert quota.charge(1, _NOW_MS) == _admitted(10.0)


def test_a_success_does_not_reset_the_throttle_of_the_request() -> None:
    quota = _quota(_engine(10.0), strict=True)
    quota.charge(101, _NOW_MS)
    quota.charge(1, _NOW_MS)

    later = quota.charge(1, _NOW_MS + 100)

    assert later == _admitted(10.0)
    assert quota.throttle_ms(_NOW_MS) == 100


def test_a_new_limit_reaches_a_request_under_way() -> None:
    engine = _engine(10.0)
    quota = _quota(engine, strict=True)
    quota.charge(180, _NOW_MS)

    engine.apply([QuotaChange(_USER, _M, 20.0)])

    assert quota.charge(1, _NOW_MS) == Decision(Outcome.REJECTED, 4000, 20.0)
    assert quota.limit == 20.0


@pytest.mark.parametrize(("idle_ms", "outcome"), [(3_600_000, "rejected"), (3_600_001, "admitted")])
def test_a_debt_is_forgotten_when_nothing_was_recorded_for_over_an_hour(
    idle_ms: int, outcome: str
) -> None:
    engine = _engine(0.001)
    _quota(engine, strict=True).charge(1000, _NOW_MS)
    # A rejection is no record, so it does not keep the counter alive.
    _quota(engine, strict=True).charge(1, _NOW_MS + 1_800_000)

    decision = _quota(engine, strict=True).charge(1, _NOW_MS + idle_ms)

    assert decision.outcome == outcome


def test_another_window_starts_a_bucket_anew() -> None:
    engine = _engine(10.0)
    _quota(engine, strict=True).charge(500, _NOW_MS)

    engine.replace_countings({_M: QuotaWindow(5, 1000)})
    quota = _quota(engine, strict=False)

    assert quota.charge(51, _NOW_MS) == Decision(Outcome.THROTTLED, 100, 10.0)
    assert quota.samples == 5


def test_a_window_changed_and_changed_back_keeps_the_bucket() -> None:
    engine = _engine(10.0)
    _quota(engine, strict=True).charge(180, _NOW_MS)

    engine.replace_countings({_M: QuotaWindow(5, 1000)})
    engine.replace_countings({_M: QuotaWindow(10, 1000)})

    assert _quota(engine, strict=True).charge(1, _NOW_MS).throttle_ms == 8000
