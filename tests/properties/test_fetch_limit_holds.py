"""What ``token_bucket`` promises for FETCH, proven on the gateway's own engine and connections.

Per counter, in every interval: sum of delivered value / limit in force <= elapsed + burst + debt_max + one
answer, in seconds; however many connections there are, and whatever they ignore. Fetch sessions stay
whole: nothing is missed, nothing is read twice, and no broker is asked with a wrong epoch.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.closed_loops import excess_s
from tests.properties.fetching_loops import Appetite, Scenario, World, has_a_row_each
from tests.properties.looped import Change

from kvota.engine import AnswerRoom, Lane, Verdict
from kvota.engine.debt_bucket import DebtBucket
from kvota.model.bucket_settings import BucketSettings
from kvota.session import fetch_requests
from kvota.session.fetch_room import empty_answer

pytestmark = pytest.mark.timeout(180)

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
_SEEDS_PER_TEST = 15
_LIMIT = 20_000.0


def judge(scenario: Scenario) -> World:
    world = World(scenario).run()
    if scenario.bucket is not None:
        assert excess_s(world) == 0.0, scenario  # type: ignore[arg-type]
    assert has_a_row_each(world), scenario
    assert world.told.wrong_epochs == 0, scenario
    return world


# ------------------------------------------------------------------ worlds from a seed


def drawn(seed: int) -> Scenario:
    """Adversarial crowds under a limit that changes, on a clock that steps."""
    rng = Random(seed)
    limit = rng.choice((2_000.0, 20_000.0, 200_000.0))
    seconds = rng.choice((60.0, 200.0))
    return Scenario(
        seed=seed,
        limit=limit,
        bucket=rng.choice(
            (
                None,
                BucketSettings(),
                BucketSettings(),
                BucketSettings(burst_ms=100, debt_max_ms=0),
                BucketSettings(burst_ms=5_000, debt_max_ms=2_000),
            )
        ),
        seconds=seconds,
        late_s=rng.choice((0.002, 0.05, 2.0)),
        crowds=tuple(_appetite(rng, limit) for _ in range(rng.randrange(1, 4))),
        changes=tuple(_change(rng, limit, seconds) for _ in range(rng.choice((0, 0, 3, 8)))),
        events_max=4_000,
    )


def _appetite(rng: Random, limit: float) -> Appetite:
    low = min(max(10 ** rng.uniform(-3, 1.5), 60 / limit), 1_000_000 / limit)
    high = min(low * rng.choice((1.0, 3.0, 100.0)), 1_000_000 / limit)
    think_s = rng.choice((0.001, 0.05, 1.0, 20.0))
    depth = rng.choice((1, 1, 1, 10, 100))
    return Appetite(
        connections=rng.choice((1, 2, 5, 20, 50, 200)),
        client_id=rng.choice(("app", "app", "app", "other")),
        answer_s=(low, high),
        batch_s=rng.choice((0.001, 0.1, 20.0)),
        think_s=(think_s / 10, think_s),
        depth=depth,
        honours=rng.random() < 0.3,
        reconnects=depth == 1 and rng.random() < 0.2,
        together_s=rng.choice((None, None, 1.0, 20.0)),
        patience_s=rng.choice((None, None, 5.0, 30.0)),
    )


def _change(rng: Random, limit: float, seconds: float) -> Change:
    what, value = rng.choice(
        (
            ("limit", limit * rng.choice((0.1, 0.5, 3.0, 10.0))),
            ("limit", limit),
            ("no quota", 0.0),
            ("factor", rng.choice((0.0, 0.3, 1.0, 1.0, 5.0))),
            ("algorithm", rng.choice((0.0, 1.0, 1.0))),
            ("enforce", rng.choice((0.0, 1.0, 1.0))),
            ("clock", rng.choice((-3_600.0, -5.0, -0.02, 0.02, 5.0, 3_600.0))),
        )
    )
    return Change(rng.uniform(0.0, seconds), what, value)


@pytest.mark.parametrize("first_seed", range(0, 8 * _SEEDS_PER_TEST, _SEEDS_PER_TEST))
def test_the_bound_holds_in_worlds_from_a_seed(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + _SEEDS_PER_TEST):
        judge(drawn(seed))


@_CALM
@given(seed=st.integers(0, 2**63))
def test_the_bound_holds_in_worlds_nobody_has_drawn_before(seed: int) -> None:
    judge(drawn(seed))


# ------------------------------------------------------------------ what is left is used, and fairly

_WORST = (
    Appetite(connections=1, depth=100),
    Appetite(connections=20, depth=10),
    Appetite(connections=20, reconnects=True),
    Appetite(connections=200, together_s=10.0, answer_s=(1.0, 1.0), batch_s=1.0),
)


@pytest.mark.parametrize("bucket", [BucketSettings(), None])
@pytest.mark.parametrize("crowd", _WORST)
def test_who_ignores_all_it_is_told_gets_no_more_than_the_limit(
    crowd: Appetite, bucket: BucketSettings | None
) -> None:
    scenario = Scenario(crowds=(crowd,), bucket=bucket, limit=_LIMIT)

    world = judge(scenario)

    values = [value for values in world.told.delivered.values() for value in values]
    allowed_s = scenario.seconds + (16 if bucket else 11)
    assert sum(values) / _LIMIT <= allowed_s + max(values) / _LIMIT


@pytest.mark.parametrize("bucket", [BucketSettings(), None])
@pytest.mark.parametrize("honours", [False, True])
@pytest.mark.parametrize(
    ("connections", "answer_s"), [(1, 0.45), (10, 0.45), (50, 0.45), (50, 0.1)]
)
def test_consumers_that_always_have_more_to_read_get_their_limit_and_no_more(
    connections: int, answer_s: float, honours: bool, bucket: BucketSettings | None
) -> None:
    crowd = Appetite(
        connections=connections, answer_s=(answer_s, answer_s), honours=honours, batch_s=0.05
    )
    scenario = Scenario(crowds=(crowd,), bucket=bucket, limit=_LIMIT)

    world = judge(scenario)

    late = [
        sum(value for at_us, value in read if at_us > 22_000_000)
        for read in world.told.read.values()
    ]
    x_limit = sum(late) / (scenario.seconds - 22) / _LIMIT
    assert 0.9 <= x_limit <= 1.05
    assert min(late) > 0


@pytest.mark.parametrize("bucket", [BucketSettings(), None])
@pytest.mark.parametrize("connections", [1, 5])
def test_consumers_whose_batches_are_larger_than_the_room_do_not_stall(
    connections: int, bucket: BucketSettings | None
) -> None:
    crowd = Appetite(connections=connections, answer_s=(30.0, 30.0), batch_s=30.0)
    scenario = Scenario(crowds=(crowd,), bucket=bucket, limit=_LIMIT, seconds=1_000.0)

    world = judge(scenario)

    read = [sum(value for _, value in read) for read in world.told.read.values()]
    assert 0.85 <= sum(read) / _LIMIT / 1_000 <= 1.07


# ------------------------------------------------------------------ the judges can say no


def _deliver_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def judges(_: AnswerRoom, lane: Lane, value: int, now_ms: int) -> Verdict:
        throttle_ms = lane.admit(value, now_ms)
        return Verdict(throttle_ms, throttle_ms)

    monkeypatch.setattr(AnswerRoom, "judge", judges)


def _charge_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DebtBucket, "admit", lambda *_: 0)


def _look_at_no_debt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "turn_in_ms", lambda *_: 0)


def _charge_half(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = DebtBucket.admit
    monkeypatch.setattr(
        DebtBucket, "admit", lambda bucket, value, now_ms: admit(bucket, value / 2, now_ms)
    )


@pytest.mark.parametrize(
    "break_it", [_deliver_everything, _charge_nothing, _look_at_no_debt, _charge_half]
)
def test_a_broken_gate_is_seen_to_break_the_bound(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    crowd = Appetite(
        connections=60, answer_s=(1.0, 1.0), batch_s=1.0, together_s=10.0, reconnects=True
    )

    world = World(Scenario(crowds=(crowd,), limit=_LIMIT)).run()

    assert excess_s(world) > 0.1  # type: ignore[arg-type]


def test_a_swallowed_request_is_seen_to_break_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_requests, "is_incremental", lambda *_: False)
    monkeypatch.setattr(
        fetch_requests,
        "empty_answer",
        lambda correlation, _version, _throttle_ms: (
            # In a session, so that its client goes on in it.
            empty_answer(correlation, 12, 1, session_id=1)
        ),
    )
    crowd = Appetite(connections=1, answer_s=(20.0, 20.0), batch_s=20.0)

    world = World(Scenario(crowds=(crowd,), limit=_LIMIT)).run()

    assert world.told.wrong_epochs > 0
