"""Quotas in shadow mode beside those in force: what they would do to what passes, and nothing to anybody."""

from tests.unit.metrics.conftest import START_MS, Rows, memo

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.metrics.shadow_quotas import ShadowCounter, ShadowQuotas
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import NO_ANSWER, REJECTED, ChargeMemo
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow

PRODUCE, MUTATION = QuotaType.PRODUCE, QuotaType.CONTROLLER_MUTATION
CREATE_TOPICS = 19


def tried(quota_type: QuotaType = PRODUCE, limit: float = 1000.0, **buckets: BucketSettings) -> tuple[ShadowQuotas, Rows]:  # fmt: skip
    shadow = ShadowQuotas(
        ConfiguredQuotas({QuotaEntity(user="alice"): {quota_type: limit}}),
        {},
        {QuotaType(name): bucket for name, bucket in buckets.items()},
        since_ms=START_MS,
    )
    return shadow, Rows(shadow)  # type: ignore[arg-type]  (whoever takes rows)


def only(shadow: ShadowQuotas) -> ShadowCounter:
    (counter,) = shadow.worst()
    return counter


def mutation(version: int) -> ChargeMemo:
    made = memo(quota_type=MUTATION, limit=None)
    made.api_key, made.api_version = CREATE_TOPICS, version
    return made


def test_the_waits_are_those_that_the_same_quotas_in_force_would_tell() -> None:
    shadow, rows = tried()
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user="alice"): {PRODUCE: 1000.0}})), {}
    )
    charges = [(at_ms, 700 + at_ms % 1300) for at_ms in range(0, 30_000, 400)]

    rows.add(*[(memo(limit=9000.0), at_ms, value) for at_ms, value in charges])

    lane = engine.lane(PRODUCE, 1, "alice", "app", START_MS)
    assert lane is not None
    waits = [lane.charge(float(value), START_MS + at_ms) for at_ms, value in charges]
    found = only(shadow)
    assert 0 < found.held < found.decisions == len(charges)
    assert (found.held, found.longest_ms) == (sum(ms > 0 for ms in waits), max(waits))
    assert (found.limit, found.in_force) == (1000.0, 9000.0)
    assert found.charged == sum(value for _, value in charges)


def test_who_has_no_such_quota_has_no_line() -> None:
    shadow, rows = tried()

    rows.add((memo("bob"), 0, 1_000_000))

    assert shadow.worst() == []


def test_a_mutation_that_would_be_refused_spends_nothing_and_one_that_cannot_be_does() -> None:
    # 11 windows: 110 partitions.
    for version, missing in ((7, 10), (5, 30)):
        shadow, rows = tried(MUTATION, 10)
        rows.add((mutation(version), 0, 120), (mutation(version), 0, 20))
        rows.add((mutation(version), 1, 1))
        found = only(shadow)
        held = 2 if version == 7 else 3
        assert (found.held, found.decisions) == (held, 3)
        assert abs(found.longest_ms - missing * 100) <= 100


def test_what_a_broker_refused_is_given_back() -> None:
    shadow, rows = tried(MUTATION, 10)

    rows.add((mutation(7), 0, 120), (mutation(7), 1, -120), (mutation(7), 2, 1))

    found = only(shadow)
    assert (found.held, found.decisions, found.charged) == (0, 2, 1)


def test_what_a_quota_in_force_has_rejected_comes_again_and_in_shadow_mode_has_passed() -> None:
    shadow, rows = tried()

    rows.add((memo(), 0, 50_000, 10, REJECTED, NO_ANSWER))
    assert shadow.worst() == []

    rows.add((memo(enforced=False), 0, 50_000, 10, REJECTED, 0))
    assert only(shadow).held == 1


def test_under_a_token_bucket_what_would_wait_in_line_is_held() -> None:
    shadow, rows = tried(PRODUCE=BucketSettings(burst_ms=1_000, debt_max_ms=2_000))

    rows.add((memo(), 0, 5_000), (memo(), 1, 100))

    found = only(shadow)
    assert (found.held, found.decisions) == (2, 2)
    assert found.longest_ms >= 2_000


def test_another_limit_in_force_elsewhere_keeps_what_was_seen() -> None:
    shadow, rows = tried()
    rows.add((memo(), 0, 9_000))

    shadow.replace(
        ConfiguredQuotas({QuotaEntity(user="alice"): {PRODUCE: 500.0}}),
        {PRODUCE: QuotaWindow(11, 1000)},
        {},
    )
    rows.add((memo(), 1, 1))

    found = only(shadow)
    assert (found.limit, found.decisions, found.held) == (500.0, 2, 1)


def test_any_number_of_names_takes_a_bounded_number_of_lines() -> None:
    quotas = ConfiguredQuotas(
        {QuotaEntity(user=f"user-{number}"): {PRODUCE: 1.0} for number in range(5)}
    )
    shadow = ShadowQuotas(quotas, {}, {}, since_ms=START_MS)
    shadow.COUNTERS_MAX = 3  # type: ignore[misc]

    Rows(shadow).add(*[(memo(f"user-{number}"), 0, 1_000) for number in range(5)])  # type: ignore[arg-type]

    assert len(shadow.worst()) == 3
    assert shadow.unlisted == 2
