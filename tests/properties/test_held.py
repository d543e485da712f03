"""What a counter admits is within its promise, whoever charges it; and the verdict sees what is not."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.engine import QuotaWindow
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket
from kvota.engine.lane import Lane
from kvota.engine.mutations import StrictQuota
from kvota.model.event import Outcome
from kvota.model.quota_type import QuotaType
from kvota.planning.held import Charged, Decided, Promise, held, held_by_debt

_BEGIN_MS = 1_700_000_000_000
# Most are short: a counter that is always over its limit; some go back.
_STEPS_MS = st.one_of(
    st.integers(0, 20), st.integers(0, 3_000), st.sampled_from([-1, -500, -100_000, 100_000])
)
_LIMITS = st.sampled_from([1.0, 3.0, 1_000.0, 7.9e6])
# In thousandths of a second of the limit.
_SIZES = st.one_of(st.integers(1, 100), st.integers(1, 10_000), st.just(10_000_000))
_TRIES = st.lists(
    st.tuples(_STEPS_MS, _SIZES, st.sampled_from([None, None, None, "less", "limit"])),
    max_size=80,
)


@dataclass
class _Clients:
    """Send whenever they may, and keep the rows that a gateway would write."""

    bucket: DebtBucket
    window: QuotaWindow
    limit: float
    rows: list[Charged] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    charged: float = 0.0

    def send(self, value: float, now_ms: int) -> None:
        if self.waiting and self.bucket.turn_in_ms(now_ms) == 0:
            self.charged = self.waiting.pop(0)
            self.bucket.admit(self.charged, now_ms)
            self._row(self.charged, now_ms)
        if not self.waiting:
            self.bucket.open_gate()
        if self.bucket.charge(value, now_ms) == MUST_WAIT:
            self.bucket.reject(now_ms)
            self.bucket.close_gate()
            self.waiting.append(value)
            self._row(None, now_ms)
        else:
            self.charged = value
            self._row(value, now_ms)

    def give_back(self, now_ms: int) -> None:
        """The frame of the last request never ended."""
        self.bucket.admit(-self.charged, now_ms)
        self._row(-self.charged, now_ms)
        self.charged = 0.0

    def change(self, limit: float) -> None:
        self.limit = limit
        self.bucket.configure(self.window, limit)
        self.charged = 0.0  # at another price

    def _row(self, value: float | None, now_ms: int) -> None:
        self.rows.append(Charged(now_ms, value, self.limit))


@settings(deadline=None, max_examples=400)
@given(
    burst_ms=st.sampled_from([1, 1_000, 60_000]),
    debt_max_ms=st.sampled_from([0, 2_000, 15_000]),
    limit=_LIMITS,
    other_limit=_LIMITS,
    tries=_TRIES,
)
def test_a_debt_bucket_keeps_its_promise_whatever_its_clients_do(
    burst_ms: int,
    debt_max_ms: int,
    limit: float,
    other_limit: float,
    tries: list[tuple[int, int, str | None]],
) -> None:
    window = QuotaWindow(1, burst_ms)
    bucket = DebtBucket(window, limit, debt_max_ms=debt_max_ms, born_ms=_BEGIN_MS)
    clients = _Clients(bucket, window, limit)
    now_ms = _BEGIN_MS

    for step_ms, size, then in tries:
        now_ms += step_ms
        clients.send(size * clients.limit / 1000, now_ms)
        if then == "less":
            clients.give_back(now_ms)
        elif then == "limit":
            clients.change(other_limit if clients.limit == limit else limit)

    promise = Promise(burst_s=burst_ms / 1000, debt_max_s=debt_max_ms / 1000)
    assert held_by_debt(clients.rows, promise).holds


@settings(deadline=None, max_examples=200)
@given(
    extra_ms=st.integers(200, 5_000),
    debt_max_ms=st.sampled_from([0, 2_000]),
    steps_ms=st.lists(st.integers(0, 20), max_size=50),
)
def test_a_bucket_that_lets_more_pass_than_it_says_is_found_out(
    extra_ms: int, debt_max_ms: int, steps_ms: list[int]
) -> None:
    window = QuotaWindow(1, 1_000)
    bucket = DebtBucket(window, 1_000.0, debt_max_ms=debt_max_ms + extra_ms, born_ms=_BEGIN_MS)
    clients = _Clients(bucket, window, 1_000.0)
    now_ms = _BEGIN_MS

    for step_ms in [*[0] * 100, *steps_ms]:
        now_ms += step_ms
        clients.send(100.0, now_ms)

    promise = Promise(burst_s=1.0, debt_max_s=debt_max_ms / 1000)
    assert not held_by_debt(clients.rows, promise).holds


@settings(deadline=None, max_examples=300)
@given(
    window=st.builds(QuotaWindow, st.sampled_from([1, 2, 11]), st.sampled_from([1, 1000])),
    limit=st.sampled_from([0.5, 3.0, 100.0]),
    tries=st.lists(st.tuples(_STEPS_MS, st.integers(0, 500), st.booleans()), max_size=60),
)
def test_kafkas_bucket_of_mutations_keeps_its_promise(
    window: QuotaWindow, limit: float, tries: list[tuple[int, int, bool]]
) -> None:
    lane = Lane(
        QuotaType.CONTROLLER_MUTATION, -1, {}, BucketCounter(window, limit, born_ms=_BEGIN_MS)
    )
    lane.configure(counting=Counting.of_kafka(lane.quota_type, window), configured_limit=limit)
    now_ms, rows = _BEGIN_MS, []

    for step_ms, partitions, is_given_back in tries:
        now_ms += step_ms
        quota = StrictQuota(lane)
        admitted = quota.charge(partitions, now_ms).outcome is Outcome.ADMITTED
        rows.append(Decided(now_ms, partitions / limit if admitted else None))
        if admitted and is_given_back:
            quota.give_back(partitions, now_ms)
            rows.append(Decided(now_ms, -partitions / limit))

    assert held(rows, Promise(burst_s=window.samples * window.sample_ms / 1000)).holds


@settings(deadline=None, max_examples=300)
@given(
    rows=st.lists(
        st.builds(
            Decided,
            st.integers(0, 40).map(lambda tenths: tenths * 100),
            st.one_of(st.none(), st.integers(-8, 30).map(lambda eighths: eighths / 8)),
        ),
        max_size=12,
    )
)
def test_no_interval_is_worse_than_the_one_that_was_found(rows: list[Decided]) -> None:
    promise = Promise(burst_s=1.0, debt_max_s=0.5)

    found = held(rows, promise)

    every = [
        _excess_s(rows, first, last, promise)
        for last in range(len(rows))
        for first in range(last + 1)
        if (rows[last].spent_s or 0.0) > 0 and rows[first].spent_s is not None
    ]
    assert found.holds == all(excess_s <= 1e-9 for excess_s in every)
    assert not every or abs(found.admitted_s - found.allowed_s - max(every)) < 1e-9


def _excess_s(rows: list[Decided], first: int, last: int, promise: Promise) -> float:
    """What was admitted from one row to another beyond what was promised, added up as it is said."""
    part = rows[first : last + 1]
    elapsed_ms = sum(
        max(0, after.now_ms - before.now_ms) for before, after in itertools.pairwise(part)
    )
    admitted_s = sum(row.spent_s or 0.0 for row in part)
    one_request_s = part[-1].spent_s or 0.0
    allowed_s = elapsed_ms / 1000 + promise.burst_s + promise.debt_max_s + one_request_s
    return admitted_s - allowed_s
