"""What a changed quota, factor or window touches: the counters meant, and no other."""

import pytest

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import MUST_WAIT, Lane, QuotaEngine, QuotaType, QuotaWindow
from kvota.engine.engine import _KNOWN_CLIENTS_MAX
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.event import Outcome
from kvota.model.quota_entity import DEFAULT, QuotaEntity

P, F, M = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION
NOW_MS = 1_700_000_000_000
A, B = QuotaEntity(user="a"), QuotaEntity(user="b")


def engine(limits: dict[QuotaEntity, dict[QuotaType, float]] | None = None) -> QuotaEngine:
    return QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas(limits)), {})


def lane(
    of: QuotaEngine, user: str, quota_type: QuotaType = P, node_id: int = 1, client_id: str = "c"
) -> Lane:
    found = of.lane(quota_type, node_id, user, client_id, NOW_MS)
    assert found is not None
    return found


def outdated(kept: dict[str, tuple[Lane, int]]) -> list[str]:
    return [name for name, (one, version) in kept.items() if one.version != version]


def keep(**lanes: Lane) -> dict[str, tuple[Lane, int]]:
    return {name: (one, one.version) for name, one in lanes.items()}


def test_another_limit_reaches_the_lanes_that_have_it_and_no_other() -> None:
    quotas = engine({A: {P: 100.0, F: 100.0}, B: {P: 100.0}})
    kept = keep(
        a1=lane(quotas, "a"),
        a2=lane(quotas, "a", node_id=2),
        a_fetch=lane(quotas, "a", F),
        b=lane(quotas, "b"),
        nobody=lane(quotas, "x"),
    )

    quotas.apply([QuotaChange(A, P, 200.0)])

    assert outdated(kept) == ["a1", "a2"]
    assert [one.limit for one, _ in kept.values()] == [200.0, 200.0, 100.0, 100.0, None]
    assert lane(quotas, "a") is kept["a1"][0]


def test_a_change_that_changes_nothing_touches_nobody() -> None:
    quotas = engine({A: {P: 100.0}})
    kept = keep(a=lane(quotas, "a"), x=lane(quotas, "x"))

    quotas.apply([QuotaChange(A, P, 100.0), QuotaChange(B, P, None)])
    quotas.apply([])
    quotas.replace_quotas(quotas.quotas)
    quotas.refresh()

    assert outdated(kept) == []


def test_one_more_entity_of_the_only_kind_touches_its_own_counter() -> None:
    quotas = engine({A: {P: 100.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"), x=lane(quotas, "x"))

    quotas.apply([QuotaChange(B, P, 5.0)])

    assert outdated(kept) == ["b"]
    assert (lane(quotas, "b").limit, lane(quotas, "b")) == (5.0, kept["b"][0])


def test_where_clients_may_have_moved_all_lanes_of_the_type_have_to_be_asked_for_again() -> None:
    quotas = engine({A: {P: 100.0, F: 100.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"), fetch=lane(quotas, "a", F))

    quotas.apply([QuotaChange(QuotaEntity(client_id="c"), P, 7.0)])

    assert outdated(kept) == ["a", "b"]
    assert lane(quotas, "a") is kept["a"][0]
    assert lane(quotas, "b").tags == "client-id=c,user="
    assert lane(quotas, "b").limit == 7.0


def test_the_first_quota_of_a_type_is_seen_by_those_who_only_observed() -> None:
    quotas = engine({A: {F: 100.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"))
    assert [one.samples for one, _ in kept.values()] == [0, 0]

    quotas.apply([QuotaChange(A, P, 10.0)])

    assert outdated(kept) == ["a", "b"]
    assert (lane(quotas, "a").limit, lane(quotas, "a").samples) == (10.0, 11)
    assert (lane(quotas, "b").limit, lane(quotas, "b").samples) == (None, 11)


def test_with_the_last_quota_of_a_type_its_lanes_are_over() -> None:
    quotas = engine({A: {P: 10.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"))

    quotas.apply([QuotaChange(A, P, None)])

    assert outdated(kept) == ["a", "b"]
    assert [lane(quotas, user).samples for user in "ab"] == [0, 0]


def test_those_who_observe_are_told_even_when_they_were_forgotten_as_too_many() -> None:
    quotas = engine()
    first = lane(quotas, "u", client_id="first")
    version = first.version

    for number in range(_KNOWN_CLIENTS_MAX):
        lane(quotas, "u", client_id=f"{number}")

    # Later changes would not reach it any more, so it has to be asked for again now.
    assert first.version != version


def test_a_lane_that_counts_survives_that_its_client_is_forgotten() -> None:
    quotas = engine({A: {P: 100.0}})
    kept = keep(a=lane(quotas, "a"))

    for number in range(_KNOWN_CLIENTS_MAX):
        lane(quotas, "u", client_id=f"{number}")

    assert outdated(kept) == []
    assert lane(quotas, "a") is kept["a"][0]
    quotas.apply([QuotaChange(A, P, 7.0)])
    assert outdated(kept) == ["a"]


def test_all_quotas_can_be_replaced_at_once() -> None:
    quotas = engine({A: {P: 100.0, M: 1.0}, B: {P: 50.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"), x=lane(quotas, "x"))
    after = ConfiguredQuotas({B: {P: 60.0}, QuotaEntity(user="x"): {P: 1.0}})

    quotas.replace_quotas(after)

    assert outdated(kept) == ["a", "b", "x"]
    assert [one.limit for one, _ in kept.values()] == [None, 60.0, 1.0]
    assert quotas.quotas == after
    assert quotas.mutations("a", "c", strict=True, now_ms=NOW_MS).samples == 0


def test_ten_thousand_changes_are_one_batch() -> None:
    entities = [QuotaEntity(user=f"user-{number}") for number in range(10_000)]
    quotas = engine({entity: {P: 1000.0} for entity in entities})
    kept = [lane(quotas, str(entity.user)) for entity in entities]
    before = [one.version for one in kept]

    quotas.apply([QuotaChange(entity, P, 6000.0) for entity in entities])

    assert {one.limit for one in kept} == {6000.0}
    assert all(lane(quotas, str(entity.user)) is one for entity, one in zip(entities, kept))  # noqa: B905
    assert [one.version - version for one, version in zip(kept, before)] == [1] * len(kept)  # noqa: B905


# ------------------------------------------------------------------ one counter alone


def test_a_limit_can_be_set_for_one_counter() -> None:
    quotas = engine({QuotaEntity(user=DEFAULT): {P: 100.0}})
    kept = keep(a1=lane(quotas, "a"), a2=lane(quotas, "a", node_id=2), b=lane(quotas, "b"))

    quotas.set_limit(P, 30.0, tags=kept["a1"][0].tags, node_id=2)
    assert outdated(kept) == ["a2"]
    quotas.set_limit(P, 30.0, tags=kept["a1"][0].tags)

    assert outdated(kept) == ["a1", "a2"]
    assert [one.limit for one, _ in kept.values()] == [30.0, 30.0, 100.0]


@pytest.mark.parametrize(
    ("scope", "touched"),
    [
        ({}, ["a1", "a2", "b1"]),
        ({"node_id": 2}, ["a2"]),
        ({"tags": "client-id=,user=a"}, ["a1", "a2"]),
        ({"tags": "client-id=,user=a", "node_id": 1}, ["a1"]),
        ({"tags": "client-id=,user=nobody"}, []),
    ],
)
def test_a_factor_touches_the_counters_meant(scope: dict[str, object], touched: list[str]) -> None:
    quotas = engine({QuotaEntity(user=DEFAULT): {P: 100.0, F: 100.0}})
    kept = keep(
        a1=lane(quotas, "a"),
        a2=lane(quotas, "a", node_id=2),
        b1=lane(quotas, "b"),
        fetch=lane(quotas, "a", F),
    )

    quotas.set_factor(P, 0.5, **scope)  # type: ignore[arg-type]

    assert outdated(kept) == touched
    assert {one.limit for name, (one, _) in kept.items() if name in touched} <= {50.0}
    assert {one.limit for name, (one, _) in kept.items() if name not in touched} <= {100.0}


def test_a_factor_holds_for_counters_made_later_and_after_a_changed_limit() -> None:
    quotas = engine({QuotaEntity(user=DEFAULT): {P: 100.0}})
    quotas.set_factor(P, 0.5)

    later = lane(quotas, "later")
    quotas.apply([QuotaChange(QuotaEntity(user=DEFAULT), P, 60.0)])

    assert (later.configured_limit, later.factor, later.limit) == (60.0, 0.5, 30.0)


def test_factors_of_a_type_a_broker_and_a_counter_are_multiplied() -> None:
    quotas = engine({QuotaEntity(user=DEFAULT): {P: 800.0}})
    one = lane(quotas, "a", node_id=3)

    quotas.set_factor(P, 0.5)
    quotas.set_factor(P, 0.5, node_id=3)
    quotas.set_factor(P, 0.25, node_id=3, tags=one.tags)
    all_three = one.limit
    quotas.set_factor(P, 1.0, node_id=3)

    assert (all_three, one.limit) == (50.0, 100.0)
    quotas.set_factor(P, 1.0)
    quotas.set_factor(P, 1.0, node_id=3, tags=one.tags)
    assert (one.limit, one.factor) == (800.0, 1.0)


def test_a_factor_of_0_blocks_a_type_and_1_frees_it() -> None:
    quotas = engine({A: {P: 100.0}})
    one = lane(quotas, "a")

    quotas.set_factor(P, 0.0)
    blocked = [one.charge(1, NOW_MS), lane(quotas, "x").charge(1, NOW_MS)]
    quotas.set_factor(P, 1.0)

    assert blocked == [MUST_WAIT, MUST_WAIT]  # who has no limit, too
    assert [one.charge(1, NOW_MS), lane(quotas, "x").charge(1, NOW_MS)] == [0, 0]


@pytest.mark.parametrize("factor", [-0.1, float("nan"), float("inf")])
def test_what_is_no_factor_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="of PRODUCE: a finite number from 0 on"):
        engine().set_factor(P, factor)


def test_other_windows_reach_the_types_that_have_them() -> None:
    quotas = engine({A: {P: 100.0, F: 100.0}})
    kept = keep(produce=lane(quotas, "a"), fetch=lane(quotas, "a", F))

    quotas.replace_countings({P: QuotaWindow(3, 500)})

    assert outdated(kept) == ["produce"]
    assert (kept["produce"][0].samples, kept["produce"][0].window_bytes) == (3, 100)


# ------------------------------------------------------------------ mutations


def test_under_a_blocked_limit_a_strict_mutation_is_rejected_and_not_recorded() -> None:
    quotas = engine({A: {M: 10.0}})
    quotas.set_factor(M, 0.0)
    request = quotas.mutations("a", "c", strict=True, now_ms=NOW_MS)

    blocked = [request.charge(5, NOW_MS), request.charge(0, NOW_MS)]
    left_ms = request.throttle_ms(NOW_MS + 1_000)
    quotas.set_factor(M, 1.0)

    assert {(one.outcome, one.throttle_ms, one.limit) for one in blocked} == {
        (Outcome.REJECTED, 30_000, 0.0)
    }
    assert left_ms == 29_000
    assert quotas.lane(M, -1, "a", "c", NOW_MS).allowance(NOW_MS) == 110  # type: ignore[union-attr]


def test_under_a_blocked_limit_a_permissive_mutation_is_executed_and_throttled() -> None:
    quotas = engine({A: {M: 0.0}})
    request = quotas.mutations("a", "c", strict=False, now_ms=NOW_MS)

    blocked = request.charge(150, NOW_MS)
    quotas.apply([QuotaChange(A, M, 10.0)])

    assert (blocked.outcome, blocked.throttle_ms) == (Outcome.THROTTLED, 30_000)
    assert request.throttle_ms(NOW_MS) == 30_000
    # Recorded as a debt of 150, and paid at 10 per second from then on.
    assert request.charge(0, NOW_MS).throttle_ms == 15_000


def test_a_mutation_and_a_lane_have_one_counter_for_the_whole_cluster() -> None:
    quotas = engine({A: {M: 10.0}})

    quotas.mutations("a", "c", strict=True, now_ms=NOW_MS).charge(60, NOW_MS)

    lanes = {lane(quotas, "a", M, node_id) for node_id in (1, 2, -1)}
    assert [(one.node_id, one.allowance(NOW_MS)) for one in lanes] == [(-1, 50)]


# ------------------------------------------------------------------ who waits, and what is forgotten


def test_those_who_wait_for_a_counter_are_woken_by_its_changes_alone() -> None:
    quotas = engine({A: {P: 100.0}, B: {P: 100.0}})
    woken: list[str] = []
    lane(quotas, "a").waiting_line().join(lambda: woken.append("a"))
    lane(quotas, "b").waiting_line().join(lambda: woken.append("b"))

    quotas.apply([QuotaChange(B, P, 200.0)])
    quotas.set_limit(P, 300.0, tags=lane(quotas, "b").tags)
    only_b = list(woken)
    quotas.set_factor(P, 0.5)
    quotas.apply([QuotaChange(QuotaEntity(client_id="c"), P, 1.0)])

    assert only_b == ["b", "b"]
    assert woken[2:] == ["a", "b", "a", "b"]


def test_whoever_is_woken_may_ask_the_engine_at_once() -> None:
    quotas = engine({A: {P: 100.0}, B: {P: 100.0}})
    found: list[float | None] = []
    for number in range(50):
        one = lane(quotas, f"user-{number}")
        one.waiting_line().join(
            lambda number=number: found.append(lane(quotas, f"new-{number}").limit)
        )  # type: ignore[misc]

    quotas.apply([QuotaChange(QuotaEntity(user=DEFAULT), P, 7.0)])

    assert found == [7.0] * 50


def test_a_forgotten_lane_has_to_be_asked_for_again() -> None:
    quotas = engine({A: {P: 100.0}, B: {P: 100.0}})
    kept = keep(a=lane(quotas, "a"), b=lane(quotas, "b"))
    woken: list[str] = []
    kept["a"][0].waiting_line().join(lambda: woken.append("a"))
    kept["b"][0].charge(1, NOW_MS + 10)

    forgotten = [quotas.purge_expired(NOW_MS + 3_600_000 + more_ms) for more_ms in (0, 1)]

    assert forgotten == [0, 1]
    assert (outdated(kept), woken) == (["a"], ["a"])
    assert lane(quotas, "a") is not kept["a"][0]
    assert lane(quotas, "b") is kept["b"][0]
