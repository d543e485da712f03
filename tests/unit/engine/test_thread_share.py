"""Request time as Kafka counts it: its own test's table, fractions against doubles, and what is put away."""

from random import Random

import pytest

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import SampledRate
from kvota.engine.counting import Counting
from kvota.engine.engine import QuotaEngine
from kvota.engine.packed import PackedCounters
from kvota.engine.reading import read_lane
from kvota.engine.thread_share import ThreadShare, counted, percent_seconds
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.testing.stage import quotas

WINDOW = QuotaWindow(11, 1000)
START_MS = 1_700_000_000_000


def of_ms(spent_ms: float) -> int:
    return counted(round(spent_ms * 1_000_000))[0]


def test_kafkas_own_table() -> None:
    """``ClientRequestQuotaManagerTest.testRequestPercentageQuotaViolation``, Kafka 4.3."""
    share, now_ms = ThreadShare(WINDOW, 1.0), START_MS
    for _ in range(10):
        assert share.charge(of_ms(4), now_ms) == 0
        now_ms += 1000
    now_ms += 500
    # 4 * 10 + 67.1 ms in 10.5 s are 10.2 ms a second; 2 % over, of 10.5 s.
    assert share.charge(of_ms(67.1), now_ms) == 210
    now_ms += 210
    for _ in range(11):
        share.charge(of_ms(4), now_ms)
        now_ms += 1000
    assert share.charge(0, now_ms) == 0  # the spike is forgotten
    assert share.charge(of_ms(500), now_ms) == 1000
    for _ in range(10):
        now_ms += 1000
        assert share.charge(0, now_ms) == 1000
    now_ms += 1000
    assert share.charge(0, now_ms) == 0


def test_the_utilization_of_kafkas_test() -> None:
    """``testRequestQuotaUtilization``: 400 percent-seconds of a quota of 50 % are 80 % of it."""
    share = ThreadShare(WINDOW, 50.0)
    share.charge(of_ms(4_000), START_MS)

    assert share.peek_rate(START_MS) / 50.0 == 0.8


@pytest.mark.parametrize("seed", range(20))
def test_it_throttles_as_doubles_by_the_letter(seed: int) -> None:
    """Against a sampled rate of fractions, which never takes the fast way."""
    random = Random(seed)
    window = QuotaWindow(random.choice((1, 2, 3, 11)), random.choice((500, 1000)))
    limit = random.choice((0.5, 1.0, 12.5, 250.0))
    share, letter = ThreadShare(window, limit), SampledRate(window, limit)
    now_ms = START_MS
    for _ in range(2_000):
        now_ms += random.choice((0, 0, 1, 7, 400, 1_100, 30_000)) * random.randrange(2)
        if random.random() < 0.002:
            limit = random.choice((0.5, 3.0, None))
            share.configure(window, limit)
            letter.configure(window, limit)
        counts, _ = counted(random.randrange(60_000_000))
        value_ms = letter.charge(percent_seconds(counts), now_ms)
        throttle_ms = share.charge(counts, now_ms)

        assert throttle_ms == min(value_ms, window.sample_ms)
        assert share.peek_rate(now_ms) == letter.peek_rate(now_ms)
        assert share.peek(now_ms) == throttle_ms
        room = share.allowance(now_ms)
        assert room <= letter.allowance(now_ms) <= room + 1


def test_a_throttle_that_kafka_narrows_elsewhere_is_one_sample() -> None:
    """Bounded before it is cast: 2^31 ms and more hold a client back like any other."""
    bytes_of = SampledRate(WINDOW, 1e-6)
    assert bytes_of.charge(1_000_000_000_000, START_MS) != 1000

    assert ThreadShare(WINDOW, 1e-6).charge(of_ms(1e9), START_MS) == 1000
    assert ThreadShare(WINDOW, 1e-300).charge(1, START_MS) == 1000


def test_no_time_is_lost_between_counts() -> None:
    random, rest_ns, counts, spent_ns = Random(1), 0, 0, 0
    for _ in range(10_000):
        step_ns = random.randrange(200)
        spent_ns += step_ns
        more, rest_ns = counted(rest_ns + step_ns)
        counts += more

    assert abs(percent_seconds(counts) * 10_000_000 + rest_ns - spent_ns) <= 10_000 * 1


def test_put_away_and_taken_out_it_goes_on() -> None:
    counting = Counting.of_kafka(QuotaType.REQUEST, WINDOW)
    engine = QuotaEngine(DefaultQuotaCallback(quotas(REQUEST=1.0)), {})
    lane = engine.lane(QuotaType.REQUEST, 1, "alice", "app", START_MS)
    assert lane is not None
    lane.charge(of_ms(150), START_MS)
    packed = PackedCounters()
    assert packed.put(lane, START_MS, asking=0)
    back = packed.take(lane.tags, lane.node_id, counting)
    assert back is not None
    back.counter.configure(WINDOW, 1.0)

    assert isinstance(back.counter, ThreadShare)
    assert back.counter.charge(0, START_MS + 5) == lane.charge(0, START_MS + 5) == 1000


def test_what_is_read_of_it_is_in_percent() -> None:
    engine = QuotaEngine(DefaultQuotaCallback(quotas(REQUEST=20.0)), {})
    lane = engine.lane(QuotaType.REQUEST, 1, "alice", "app", START_MS)
    assert lane is not None
    lane.charge(of_ms(1_000), START_MS)
    reading = read_lane(lane, START_MS)

    assert (reading.limit, reading.rate, reading.throttle_ms) == (20.0, 10.0, 0)
    assert lane.allowance(START_MS) == 100


@pytest.mark.parametrize("quota_type", [QuotaType.PRODUCE, QuotaType.FETCH])
def test_bytes_are_counted_as_they_were(quota_type: QuotaType) -> None:
    assert type(Counting.of_kafka(quota_type, WINDOW).new_counter(1.0, 0)) is SampledRate
