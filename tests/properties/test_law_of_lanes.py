"""Whatever happens to a lane of bandwidth, its rows obey the law, and rows that were changed do not."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS, INT32_MAX
from kvota.engine.counting import Counting
from kvota.engine.debt_bucket import MUST_WAIT
from kvota.engine.lane import Lane
from kvota.engine.waiting_line import Turn
from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import OUTCOMES
from kvota.model.event import Outcome
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, TOKENS_SIZE, law_rows

pytestmark = pytest.mark.timeout(180)

_CALM = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=300)
_BEGIN_MS = 1_700_000_000_000
_SLOTS = 12

_LIMITS = st.sampled_from([None, 0.0, 0.5, 1.0, 3.0, 100.0, 7_777.7, 2.5e6, float("inf")])
_FACTORS = st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.0])
_WINDOWS = st.builds(QuotaWindow, st.sampled_from([1, 2, 3, 11]), st.sampled_from([1, 100, 1000]))
_BUCKETS = st.builds(
    BucketSettings,
    burst_ms=st.sampled_from([1, 100, 1_000, 20_000]),
    debt_max_ms=st.sampled_from([0, 50, 15_000]),
)
_VALUES = st.one_of(st.integers(0, 4_000), st.sampled_from([0, 1, 10**6, 10**8, 2**40]))
_CLOCK_MS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 15_000),
    st.integers(-3_000, 0),
    st.sampled_from([1, 999, 1_000, 10_000, 3_600_000, 3_600_001, 10**9]),
)
_OPERATIONS = st.one_of(
    st.tuples(st.just("charge"), _VALUES),
    st.tuples(st.just("charge"), _VALUES),
    st.tuples(st.just("admit"), _VALUES),
    st.tuples(st.just("refuse"), _VALUES),
    st.tuples(st.just("give back"), st.integers(1, 3_000)),
    st.tuples(st.just("wait"), _CLOCK_MS),
    st.tuples(st.just("wait"), _CLOCK_MS),
    st.tuples(st.just("limit"), _LIMITS),
    st.tuples(st.just("factor"), _FACTORS),
    st.tuples(st.just("count"), st.one_of(_WINDOWS, _BUCKETS)),
    st.tuples(st.just("join"), st.none()),
    st.tuples(st.just("leave"), st.none()),
)
_TYPES = st.sampled_from([QuotaType.PRODUCE, QuotaType.FETCH])


@dataclass(frozen=True, slots=True)
class Row:
    now_ms: int
    value: float
    limit: float | None
    samples: int
    sample_ms: int
    algorithm: Algorithm
    throttle_ms: int
    outcome: Outcome


@dataclass
class Recorded:
    """A lane as a session treats it, and the rows of it."""

    quota_type: QuotaType
    counting: QuotaWindow | BucketSettings
    limit: float | None
    factor: float = 1.0
    now_ms: int = _BEGIN_MS
    rows: list[Row] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        counting = self._counting()
        counter = counting.new_counter(self.limit, self.now_ms)
        self.lane = Lane(self.quota_type, 1, {}, counter)
        self._configure()

    def _counting(self) -> Counting:
        if isinstance(self.counting, BucketSettings):
            return Counting(
                self.quota_type,
                Algorithm.TOKEN_BUCKET,
                self.counting.window,
                self.counting.debt_max_ms,
            )
        return Counting(self.quota_type, Algorithm.SAMPLED_RATE, self.counting)

    def _configure(self) -> None:
        self.lane.configure(
            counting=self._counting(), configured_limit=self.limit, factor=self.factor
        )

    def do(self, name: str, what) -> None:
        lane = self.lane
        if name == "wait":
            self.now_ms += what
        elif name in {"limit", "factor", "count"}:
            setattr(self, "counting" if name == "count" else name, what)
            self._configure()
        elif name == "join":
            self.turns.append(lane.join(lambda: None))
        elif name == "leave":
            if self.turns:
                lane.leave(self.turns.pop(0))
        elif name == "refuse":
            if self.quota_type is QuotaType.FETCH:
                self._row(what, lane.refuse(what, self.now_ms), Outcome.REJECTED)
        elif name == "give back":
            lane.admit(-what, self.now_ms)
            self._row(-what, 0, Outcome.ADMITTED)
        else:
            self._charge(what, is_turn=name == "admit" or self.quota_type is QuotaType.FETCH)

    def _charge(self, value: float, *, is_turn: bool) -> None:
        lane = self.lane
        throttle_ms = (lane.admit if is_turn else lane.charge)(value, self.now_ms)
        if throttle_ms == MUST_WAIT:
            self._row(value, lane.reject(value, self.now_ms), Outcome.REJECTED)
            return
        self._row(value, throttle_ms, Outcome.THROTTLED if throttle_ms > 0 else Outcome.ADMITTED)

    def _row(self, value: float, throttle_ms: int, outcome: Outcome) -> None:
        lane = self.lane
        self.rows.append(
            Row(
                self.now_ms,
                value,
                lane.limit,
                lane.samples,
                lane.sample_ms,
                lane.algorithm,
                throttle_ms,
                outcome,
            )
        )


def replayed(
    rows: list[Row], quota_type: QuotaType, cuts: list[int], *, complete: bool = True
) -> list[tuple[int, Outcome, bool]]:
    count = len(rows)

    def all_of(answer: object, dtype: type = np.bool_) -> np.ndarray:
        return np.full(count, answer, dtype)

    def of_rows(name: str, dtype: type) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype)

    first = all_of(False)
    first[:1] = True
    columns = (
        first,
        all_of(complete),
        all_of(False),
        all_of(quota_type is QuotaType.REQUEST),
        np.array([row.algorithm is Algorithm.TOKEN_BUCKET for row in rows], np.bool_),
        all_of(False),
        all_of(quota_type is QuotaType.PRODUCE),
        np.array([row.outcome is Outcome.REJECTED for row in rows], np.bool_),
        of_rows("now_ms", np.int64) * 1000 + 999,
        of_rows("value", np.float64),
        np.array([np.nan if row.limit is None else row.limit for row in rows], np.float64),
        all_of(FACTS[quota_type].floor, np.float64),
        of_rows("samples", np.int64),
        of_rows("sample_ms", np.int64),
    )
    ring, ring_totals = np.zeros((2, _SLOTS), np.int64), np.zeros(_SLOTS)
    state = (np.zeros(STATE_SIZE, np.int64), np.zeros(TOKENS_SIZE), ring[0], ring[1], ring_totals)
    throttle_ms, outcome = np.full(count, -7, np.int32), np.full(count, -7, np.int8)
    judged = np.zeros(count, np.bool_)
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < count), count]):
        law_rows(
            *(column[start:end] for column in columns),
            *state,
            throttle_ms[start:end],
            outcome[start:end],
            judged[start:end],
        )
    outcomes = [OUTCOMES[code] for code in outcome]
    return list(zip(throttle_ms.tolist(), outcomes, judged.tolist(), strict=True))


def as_recorded(rows: list[Row]) -> list[tuple[int, Outcome, bool]]:
    return [(row.throttle_ms, row.outcome, True) for row in rows]


_RECORDED = {
    "quota_type": _TYPES,
    "counting": st.one_of(_BUCKETS, _BUCKETS, _WINDOWS),
    "limit": _LIMITS,
    "operations": st.lists(_OPERATIONS, max_size=60),
}


@_CALM
@given(**_RECORDED, cuts=st.lists(st.integers(0, 60), max_size=5))
def test_the_rows_of_any_lane_obey_the_law_wherever_they_are_cut(
    quota_type, counting, limit, operations, cuts
) -> None:
    recorded = Recorded(quota_type, counting, limit)

    for name, what in operations:
        recorded.do(name, what)

    assert replayed(recorded.rows, quota_type, cuts) == as_recorded(recorded.rows)


@_CALM
@given(**_RECORDED)
def test_without_its_beginning_a_debt_is_judged_after_another_algorithm_only(
    quota_type, counting, limit, operations
) -> None:
    recorded = Recorded(quota_type, counting, limit)
    for name, what in operations:
        recorded.do(name, what)
    rows = recorded.rows
    changes = [
        place
        for place, (one, other) in enumerate(pairwise(rows), 1)
        if one.algorithm is not other.algorithm
    ]
    anew = changes[0] if changes else len(rows)

    found = replayed(rows, quota_type, [], complete=False)

    assert found[anew:] == as_recorded(rows)[anew:]
    if rows and rows[0].algorithm is Algorithm.TOKEN_BUCKET:
        assert not any(judged for *_, judged in found[:anew])


@_CALM
@given(
    **_RECORDED, place=st.integers(0, 59), changed=st.sampled_from(["throttle", "limit", "outcome"])
)
def test_one_changed_throttle_limit_or_outcome_is_found(
    quota_type, counting, limit, operations, place, changed
) -> None:
    recorded = Recorded(quota_type, counting, limit)
    for name, what in operations:
        recorded.do(name, what)
    rows = recorded.rows
    assume(place < len(rows))
    row = rows[place]
    if changed == "throttle":
        row = replace(row, throttle_ms=row.throttle_ms + 1)
    elif changed == "outcome":
        assume(row.outcome is not Outcome.REJECTED)
        was_admitted = row.outcome is Outcome.ADMITTED
        row = replace(row, outcome=Outcome.THROTTLED if was_admitted else Outcome.ADMITTED)
    else:
        # Of a charge that was checked against this very limit.
        assume(row.outcome is Outcome.THROTTLED and row.limit is not None and row.limit >= 2)
        assume(1 < row.throttle_ms < INT32_MAX // 4)
        assume(row.algorithm is Algorithm.SAMPLED_RATE or row.value * 1000 / row.limit >= 2)
        row = replace(row, limit=row.limit / 2)
    bent = [*rows[:place], row, *rows[place + 1 :]]

    assert replayed(bent, quota_type, []) != as_recorded(bent)


def test_a_produce_that_has_to_wait_spends_nothing_and_one_given_back_is_paid() -> None:
    recorded = Recorded(QuotaType.PRODUCE, BucketSettings(burst_ms=1_000, debt_max_ms=2_000), 1e3)
    script = (
        ("charge", 4_000),  # 3 s of debt
        ("charge", 9_000),  # waits: 3 s
        ("wait", 1_000),
        ("charge", 0),  # its turn: 2 s
        ("give back", 500),
        ("charge", 0),  # 1.5 s
        ("factor", 0.0),
        ("charge", 7_000),
        ("admit", 7_000),  # no debt: it would never be paid
        ("factor", 1.0),
        ("charge", 0),
    )
    for name, what in script:
        recorded.do(name, what)

    rows = recorded.rows

    assert [(row.throttle_ms, row.outcome.value) for row in rows] == [
        (3_000, "throttled"),
        (3_000, "rejected"),
        (2_000, "throttled"),
        (0, "admitted"),
        (1_500, "throttled"),
        (BLOCKED_THROTTLE_MS, "rejected"),
        (BLOCKED_THROTTLE_MS, "throttled"),
        (1_500, "throttled"),
    ]
    assert replayed(rows, QuotaType.PRODUCE, [3]) == as_recorded(rows)
