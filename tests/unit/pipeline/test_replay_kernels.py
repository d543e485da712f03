"""The compiled grids against the engine's own classes, candidate by candidate."""

import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.oracle.grid_run import CounterRun, Grid

from kvota.engine import QuotaWindow, SampledRate, TokenBucket
from kvota.engine.arithmetic import (
    BLOCKED_THROTTLE_MS,
    debt_throttle,
    java_round,
    rate_window_ms,
    sample_complete,
)
from kvota.engine.debt_bucket import DebtBucket
from kvota.pipeline.kernels.apart_kernel import LANES
from kvota.pipeline.kernels.closed_kernels import whole_ms

QUOTAS = (40.0, 150.0, 400.0, 1_000.0, 5_000.0)
WINDOW = QuotaWindow(5, 400)
START_MS = 1_900_000_000_000
MODES = ("open", "backlog", "think")
# What counts: a sampled rate, the token bucket of mutations, that of bandwidth: of a Fetch, which nobody
# keeps back, or of a Produce.
KINDS = ("rate", "bucket", "fetch debt", "produce debt")
DEBT_MAX_MS = 700


@dataclass
class Rows:
    ms: list[int]
    values: list[float]
    strict: list[bool]

    def columns(
        self,
        kind: str,
        *,
        limit: float = float("nan"),
        complete: bool = True,
        floor: float = 1.0,
        debt_max_ms: float = DEBT_MAX_MS,
    ) -> dict[str, np.ndarray]:
        count = len(self.ms)
        return {
            "ts_us": np.array(self.ms, np.int64) * 1000,
            "value": np.array(self.values, np.float64),
            "limit": np.full(count, limit),
            "samples": np.full(count, WINDOW.samples, np.int64),
            "sample_ms": np.full(count, WINDOW.sample_ms, np.int64),
            "floor": np.full(count, floor),
            "strict": np.array(self.strict, np.bool_),
            "bucket": np.full(count, kind == "bucket"),
            "debt": np.full(count, kind.endswith("debt")),
            "debt_max_ms": np.full(count, debt_max_ms if kind == "produce debt" else np.inf),
            "complete": np.full(count, complete),
        }


def traffic(seed: int, *, count: int = 400, strict: float = 0.5) -> Rows:
    rng = random.Random(seed)
    rows = Rows([], [], [])
    now_ms = START_MS
    for _ in range(count):
        dice = rng.random()
        now_ms += rng.randrange(3_000) if dice < 0.05 else rng.randrange(120) - 5
        now_ms += 3_700_000 if dice > 0.995 else 0
        rows.ms.append(now_ms)
        rows.values.append(float(rng.randrange(200) if rng.random() < 0.97 else -rng.randrange(50)))
        rows.strict.append(rng.random() < strict)
    return rows


def run(
    rows: Rows,
    mode: str,
    kind: str,
    *,
    cuts: tuple[int, ...] = (),
    quotas: tuple[float, ...] = QUOTAS,
) -> dict[str, list[float]]:
    counter = CounterRun(1, Grid(quotas=quotas, mode=mode))
    columns = rows.columns(kind)
    edges = [0, *cuts, len(rows.ms)]
    for start, end in pairwise(edges):
        counter.feed({name: column[start:end] for name, column in columns.items()})
    return {name: column.tolist() for name, column in counter.result().items()}


def _left_of(rate: SampledRate, value: int, now_ms: int) -> int:
    """How much of a value would be taken out of the sample that is not over, nothing behind that."""
    rate._settle()
    forget_after_ms = rate._forget_after_ms
    is_forgotten = forget_after_ms is not None and now_ms - rate._last_ms > forget_after_ms
    if is_forgotten or sample_complete(rate._starts[rate._current], now_ms, rate._sample_ms):
        return 0
    return max(0, min(value, int(rate._values[rate._current])))


@dataclass
class Expected:
    """One candidate, by the engine's classes and the words of the modes."""

    quota: float
    mode: str
    kind: str
    over: int = 0
    rejected: int = 0
    throttle_ms_sum: float = 0.0
    worst_ms: float = 0.0
    value_within: float = 0.0
    delay_ms_sum: float = 0.0
    delay_ms_max: float = 0.0
    free_ms: int = 0
    last_ms: int | None = None
    bucket: TokenBucket = field(init=False)
    rate: SampledRate = field(init=False)
    debt: DebtBucket | None = None

    def __post_init__(self) -> None:
        self.anew()

    def anew(self) -> None:
        self.bucket = TokenBucket(WINDOW, self.quota)
        self.rate = SampledRate(WINDOW, self.quota)

    def request(self, now_ms: int, value: float, *, strict: bool) -> None:
        sent_ms = max(now_ms, self.free_ms) if self.mode == "backlog" else now_ms
        sent_ms += self.free_ms if self.mode == "think" else 0
        if self.last_ms is not None and sent_ms - self.last_ms > 3_600_000:
            self.anew()
        admitted_ms = sent_ms
        if self.kind.endswith("debt"):
            admitted_ms, throttle = self._owe(sent_ms, value)
        elif self.kind == "bucket" and strict and value >= 0:
            admitted_ms, throttle = self._strict(sent_ms, value)
        elif self.kind == "bucket":
            self.bucket.record(value, sent_ms)
            tokens = self.bucket.measure(sent_ms)
            throttle = -tokens / self.quota * 1000 if tokens < 0 and value >= 0 else 0.0
            self.last_ms = sent_ms
        elif value < 0 and self.mode != "open":
            throttle = 0.0
            self._give_back(-value, sent_ms)
        else:
            self.rate.record(value, sent_ms)
            self.last_ms = sent_ms
            throttle = self._rate_throttle(sent_ms) if value >= 0 else 0.0
        if self.mode != "open":
            throttle = java_round(throttle)
            self.free_ms = (sent_ms if self.mode == "backlog" else self.free_ms) + throttle
        if value >= 0:
            self.note(throttle, value, admitted_ms - now_ms)

    def _give_back(self, value: float, sent_ms: int) -> None:
        """No more than is in the sample that is not over yet."""
        given = _left_of(self.rate, int(value), sent_ms) if self.rate._starts else 0
        if given:
            self.rate.record(-given, sent_ms)
            self.last_ms = sent_ms

    def _strict(self, sent_ms: int, value: float) -> tuple[int, float]:
        admitted_ms = sent_ms
        while (tokens := self.bucket.measure(admitted_ms)) < 0:
            self.rejected += 1
            if self.mode == "open":
                self.last_ms = sent_ms
                return sent_ms, -tokens / self.quota * 1000
            admitted_ms += max(1, java_round(-tokens / self.quota * 1000))
        self.bucket.record(value, admitted_ms)
        self.last_ms = admitted_ms
        return admitted_ms, float(admitted_ms - sent_ms)

    def _owe(self, sent_ms: int, value: float) -> tuple[int, float]:
        debt = self.debt
        if debt is None:
            window = QuotaWindow(1, WINDOW.samples * WINDOW.sample_ms)
            debt = self.debt = DebtBucket(
                window, self.quota, debt_max_ms=DEBT_MAX_MS, born_ms=sent_ms
            )
        admitted_ms = sent_ms
        must_wait = self.kind == "produce debt" and value >= 0 and debt.turn_in_ms(sent_ms) > 0
        self.rejected += must_wait
        if must_wait and self.mode == "open":
            debt.reject(sent_ms)
            return sent_ms, debt._debt_ms
        if must_wait:
            debt.reject(sent_ms)
            admitted_ms += debt.turn_in_ms(sent_ms)
        debt.admit(value, admitted_ms)
        if value < 0:
            return admitted_ms, 0.0
        if self.mode == "open":
            return admitted_ms, max(0.0, debt._debt_ms)
        return admitted_ms, admitted_ms - sent_ms + debt.peek(admitted_ms)

    def _rate_throttle(self, now_ms: int) -> float:
        rate = self.rate.measure(now_ms)
        oldest_ms = min(self.rate._starts)
        window_ms = rate_window_ms(oldest_ms, now_ms, WINDOW.samples, WINDOW.sample_ms)
        return max(0.0, rate - self.quota) / self.quota * window_ms

    def note(self, throttle: float, value: float, delay_ms: float) -> None:
        self.over += throttle > 0
        self.throttle_ms_sum += throttle
        self.worst_ms = max(self.worst_ms, throttle)
        self.value_within += 0.0 if throttle > 0 else value
        self.delay_ms_sum += delay_ms
        self.delay_ms_max = max(self.delay_ms_max, delay_ms)


def expected(rows: Rows, quota: float, mode: str, kind: str) -> Expected:
    one = Expected(quota, mode, kind)
    for now_ms, value, strict in zip(rows.ms, rows.values, rows.strict, strict=True):
        one.request(now_ms, value, strict=strict)
    return one


def check_with_engine(rows: Rows, mode: str, kind: str, quotas: tuple[float, ...]) -> None:
    result = run(rows, mode, kind, quotas=quotas)

    by_engine = [expected(rows, quota, mode, kind) for quota in quotas]
    assert result["over"] == [one.over for one in by_engine]
    assert result["rejected"] == [one.rejected for one in by_engine]
    for name in ("throttle_ms_sum", "worst_ms", "value_within", "delay_ms_sum", "delay_ms_max"):
        assert result[name] == pytest.approx([getattr(one, name) for one in by_engine], rel=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_each_candidate_fares_as_with_the_engine(seed: int, mode: str, kind: str) -> None:
    check_with_engine(traffic(seed), mode, kind, QUOTAS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 8, LANES, LANES + 1, 2 * LANES + 5])
def test_so_does_each_of_many(count: int, mode: str, kind: str) -> None:
    # The least quota has the longest waits; an order by size would hide lanes that are mixed up.
    quotas = np.geomspace(30.0, 6_000.0, count)
    np.random.default_rng(count).shuffle(quotas)

    check_with_engine(traffic(7, count=150), mode, kind, tuple(quotas.tolist()))


@pytest.mark.parametrize("mode", MODES)
def test_a_value_that_is_no_number_is_no_time_either(mode: str) -> None:
    # A limit of 0 that is none below its floor (REQUEST), while a sample has a value that is no number.
    rows = Rows([START_MS + 40 * n for n in range(40)], [50.0] * 40, [False] * 40)
    columns = rows.columns("rate", floor=0.0)
    columns["limit"] = np.where((np.arange(40) // 9) % 3 == 2, 0.0, 5.0)
    columns["value"][17] = np.nan
    counter = CounterRun(1, Grid(quotas=(0.5, 1.0, 2.0), relative=True, mode=mode))

    counter.feed(columns)

    result = counter.result()
    names = ("throttle_ms_sum", "worst_ms", "delay_ms_sum", "delay_ms_max", "span_ms")
    if mode != "open":
        assert all(np.isfinite(result[name]).all() for name in names)
    assert (result["span_ms"] > 0).all()


@given(st.floats(allow_nan=False))
@example(0.0)
@example(-0.0)
@example(5e-324)
@example(0.25)
@example(2147483646.0)
@example(2147483646.000001)
@example(2147483647.0)
@example(float("inf"))
def test_whole_ms_is_the_throttle_of_the_engine(debt_ms: float) -> None:
    assert whole_ms(debt_ms) == debt_throttle(debt_ms)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_result_depends_on_where_the_rows_are_cut(mode: str, kind: str) -> None:
    rows = traffic(11)

    assert run(rows, mode, kind, cuts=(1, 2, 50, 51, 333)) == run(rows, mode, kind)


@pytest.mark.parametrize("kind", ["rate", "bucket", "fetch debt"])
def test_a_larger_quota_never_throttles_more_in_the_open_loop(kind: str) -> None:
    rows = traffic(12, strict=0.0)

    over = run(rows, "open", kind)["over"]

    assert over == sorted(over, reverse=True)
    assert over[0] > over[-1]


def test_a_factor_is_a_multiple_of_the_limit_at_the_row() -> None:
    rows = traffic(13)
    half = rows.columns("rate", limit=800.0)
    relative = CounterRun(1, Grid(quotas=(0.5,), relative=True))
    absolute = CounterRun(1, Grid(quotas=(400.0,)))

    relative.feed(half)
    absolute.feed(half)

    assert relative.result()["over"].tolist() == absolute.result()["over"].tolist() != [0]
    assert relative.result()["quota"].tolist() == [400.0]


def test_without_the_start_of_the_run_the_first_window_is_replayed_and_not_judged() -> None:
    rows = traffic(14)
    counter = CounterRun(1, Grid(quotas=QUOTAS))

    counter.feed(rows.columns("rate", complete=False))

    result = counter.result()
    first_window_ms = rows.ms[0] + WINDOW.samples * WINDOW.sample_ms
    judged = [
        value >= 0 for ms, value in zip(rows.ms, rows.values, strict=True) if ms >= first_window_ms
    ]
    assert result["events"].tolist() == [sum(judged)] * len(QUOTAS)
    assert result["warmup_ms"].tolist() == [2_000] * len(QUOTAS)


def test_overlapping_throttles_count_their_time_once() -> None:
    rows = Rows([START_MS, START_MS, START_MS + 100], [100.0, 100.0, 100.0], [False] * 3)
    counter = CounterRun(1, Grid(quotas=(10.0,)))

    counter.feed(rows.columns("bucket"))

    # A full bucket has 20 tokens: debts of 80, 180 and 279 tokens, to be paid at 10 per second.
    result = counter.result()
    assert result["throttle_ms_sum"].tolist() == [8_000 + 18_000 + 27_900]
    assert result["throttled_ms"].tolist() == [28_000]


def grid_of(rows: Rows, mode: str, kind: str, *, floor: float) -> dict[str, list[float]]:
    counter = CounterRun(1, Grid(quotas=(0.5, 1e6), mode=mode))
    counter.feed(rows.columns(kind, floor=floor))
    return {name: column.tolist() for name, column in counter.result().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_candidate_below_the_floor_throttles_every_charge_by_30_s(kind: str) -> None:
    rows = Rows([START_MS + 100 * n for n in range(5)], [10.0, 0.0, 5.0, -3.0, 1.0], [False] * 5)

    result = grid_of(rows, "open", kind, floor=1.0)

    assert result["over"] == [4, 0]  # what is given back is no charge
    assert result["throttle_ms_sum"] == [4 * BLOCKED_THROTTLE_MS, 0]
    assert result["worst_ms"] == [BLOCKED_THROTTLE_MS, 0]
    assert result["value_within"] == [0, 16]


def test_at_the_floor_a_candidate_is_a_rate() -> None:
    rows = Rows([START_MS], [10.0], [False])

    result = grid_of(rows, "open", "rate", floor=0.5)

    # 10 in a window of 1.6 s, where 0.5 per second are allowed.
    assert result["worst_ms"] == [pytest.approx(18_400), 0]


@pytest.mark.parametrize("mode", ["backlog", "think"])
def test_blocked_clients_that_wait_send_every_30_s(mode: str) -> None:
    rows = Rows([START_MS, START_MS, START_MS], [10.0, 10.0, 10.0], [False] * 3)

    rate = grid_of(rows, mode, "rate", floor=1.0)
    bucket = grid_of(rows, mode, "bucket", floor=1.0)

    assert rate["delay_ms_max"][0] == bucket["delay_ms_max"][0] == 2 * BLOCKED_THROTTLE_MS
    assert rate["over"] == bucket["over"] == [3, 0]


def test_a_strict_request_under_a_blocked_candidate_is_refused_until_it_gives_up() -> None:
    rows = Rows([START_MS, START_MS], [10.0, 10.0], [True, True])

    open_loop = grid_of(rows, "open", "bucket", floor=1.0)
    closed = grid_of(rows, "backlog", "bucket", floor=1.0)

    assert open_loop["rejected"] == [2, 0]
    assert open_loop["throttle_ms_sum"] == [2 * BLOCKED_THROTTLE_MS, 0]
    assert closed["rejected"] == [8, 0]
    assert closed["delay_ms_max"] == [8 * BLOCKED_THROTTLE_MS, 0]


def test_a_produce_whose_turn_never_comes_gives_up_after_30_s() -> None:
    rows = Rows([START_MS, START_MS], [10.0, 10.0], [False, False])

    open_loop = grid_of(rows, "open", "produce debt", floor=1.0)
    closed = grid_of(rows, "backlog", "produce debt", floor=1.0)

    assert open_loop["rejected"] == closed["rejected"] == [2, 0]
    assert open_loop["throttle_ms_sum"] == [2 * BLOCKED_THROTTLE_MS, 0]
    assert closed["delay_ms_max"] == [2 * BLOCKED_THROTTLE_MS, 0]


def test_who_comes_while_much_is_owed_spends_nothing_in_the_open_loop() -> None:
    rows = Rows([START_MS, START_MS + 1, START_MS + 8_001], [100.0] * 3, [False] * 3)

    counter = CounterRun(1, Grid(quotas=(10.0,)))
    counter.feed(rows.columns("produce debt", debt_max_ms=5_000))

    # A full bucket has 2 s; each request is 10 s of quota: 8 s are owed, then 7,999 ms, then nothing.
    result = counter.result()
    assert result["rejected"].tolist() == [1]
    assert result["throttle_ms_sum"].tolist() == [8_000 + 7_999 + 9_999]
    assert result["value_sum"].tolist() == [300]


@pytest.mark.parametrize("mode", MODES)
def test_under_another_algorithm_a_counter_starts_anew_wherever_the_rows_are_cut(mode: str) -> None:
    kinds = ("rate", "fetch debt", "rate")
    parts = [traffic(20 + place, count=30) for place in range(3)]
    for place, rows in enumerate(parts):  # a second each, and no time between: nothing is forgotten
        rows.ms = [START_MS + 1_000 * place + 33 * number for number in range(30)]
    columns = [rows.columns(kind) for rows, kind in zip(parts, kinds, strict=True)]
    whole = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    at_once = CounterRun(1, Grid(quotas=QUOTAS, mode=mode))
    in_pieces = CounterRun(1, Grid(quotas=QUOTAS, mode=mode))

    at_once.feed(whole)
    for start, end in pairwise([0, 7, 30, 44, 61, 90]):
        in_pieces.feed({name: column[start:end] for name, column in whole.items()})

    found = {name: column.tolist() for name, column in at_once.result().items()}
    assert found == {name: column.tolist() for name, column in in_pieces.result().items()}
    if mode == "open":  # where no throttle is handed on, the parts are as three counters would be
        alone = []
        for part in columns:
            counter = CounterRun(1, Grid(quotas=QUOTAS, mode=mode))
            counter.feed(part)
            alone.append(counter.result())
        assert found["over"] == sum(result["over"] for result in alone).tolist()
        assert found["over"][0] > 0


def test_uncompiled_the_kernels_give_the_same_and_stay_within_their_arrays() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_replay_kernels as t; "
        "print([t.run(t.traffic(1), mode, kind) for mode in t.MODES for kind in t.KINDS])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    compiled = [run(traffic(1), mode, kind) for mode in MODES for kind in KINDS]
    assert (done.stdout.strip(), done.stderr) == (str(compiled), "")
