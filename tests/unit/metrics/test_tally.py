"""Sums of decisions: as the record has them, bounded, and no counter ever falls."""

import random
from collections import Counter

import numpy as np
import pytest
from tests.unit.metrics.conftest import START_MS, cell_of, memo

from kvota.metrics.cells import ADMITTED as ADMITTED_ROW
from kvota.metrics.cells import CELLS_MAX, THROTTLE_MS, VALUE, Cells
from kvota.metrics.cells import REJECTED as REJECTED_ROW
from kvota.metrics.cells import THROTTLED as THROTTLED_ROW
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.tally import IDLE_MS_MAX, TallySnapshot
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_type import QuotaType

PRODUCE, FETCH = QuotaType.PRODUCE, QuotaType.FETCH


def sums_of(snapshot: TallySnapshot, user: str) -> list[float]:
    index = [key.tags for key in snapshot.keys].index(f"client-id=,user={user}")
    return snapshot.sums[:, index].tolist()


def test_decisions_are_counted_by_type_outcome_and_mode(make_tally) -> None:
    tally, rows = make_tally()
    enforced, shadow = memo("a"), memo("b", enforced=False)
    rows.add(
        (enforced, 0, 100, 0, ADMITTED, 0),
        (enforced, 1, 200, 50, THROTTLED, 0),
        (enforced, 2, 400, 60, REJECTED, NO_ANSWER),
        (enforced, 3, -30, 0, ADMITTED, NO_ANSWER),
        (shadow, 4, 800, 70, REJECTED, 0),
    )

    totals = {(one.quota_type, one.enforced): one for one in tally.snapshot(START_MS).totals}

    assert totals[PRODUCE, True].decisions == (1, 1, 1)
    assert totals[PRODUCE, True].charged == 300
    assert (totals[PRODUCE, True].given_back, totals[PRODUCE, True].given_back_rows) == (30, 1)
    assert totals[PRODUCE, False].decisions == (0, 0, 1)


def test_produce_requests_are_those_that_went_on(make_tally) -> None:
    tally, rows = make_tally()
    enforced, shadow = memo("a"), memo("b", enforced=False)
    rows.add(
        (enforced, 0, 100, 10, REJECTED, NO_ANSWER),  # waits, and has another row later
        (enforced, 1, 100, 10, THROTTLED, 0),
        (shadow, 2, 7, 10, REJECTED, 0),  # went on uncharged, its only row
        (enforced, 3, -40, 0, ADMITTED, NO_ANSWER),
    )

    snapshot = tally.snapshot(START_MS)

    assert (snapshot.produce_requests, snapshot.produce_bytes) == (2, 107)


def test_fetched_bytes_are_those_that_brokers_sent(make_tally) -> None:
    tally, rows = make_tally()
    fetch = memo("a", quota_type=FETCH)
    rows.add(
        (fetch, 0, 1000, 0, ADMITTED, 0),
        (fetch, 1, 500, 10, REJECTED, 0),  # emptied
        (fetch, 2, 9999, 10, REJECTED, NO_ANSWER),  # waits for room
    )

    assert tally.snapshot(START_MS).fetched_bytes == 1500


def test_sums_of_one_counter(make_tally) -> None:
    tally, rows = make_tally()
    a = memo("a")
    rows.add((a, 0, 100), (a, 1, 200, 50, THROTTLED), (memo("b"), 2, 9), (a, 3, 5, 7, REJECTED))

    sums = sums_of(tally.snapshot(START_MS), "a")

    assert sums[VALUE] == 300
    assert [sums[ADMITTED_ROW], sums[THROTTLED_ROW], sums[REJECTED_ROW]] == [1, 1, 1]
    assert sums[THROTTLE_MS] == 57


def test_in_shadow_mode_no_throttle_time_was_told(make_tally) -> None:
    tally, rows = make_tally()
    rows.add((memo("a", enforced=False), 0, 200, 50, THROTTLED))

    snapshot = tally.snapshot(START_MS)

    assert sums_of(snapshot, "a")[THROTTLE_MS] == 0
    assert np.isnan(snapshot.mean_throttle_ms[0])
    assert tally._watch.keys == []


def test_sums_over_all_series_are_exact_and_never_fall_whoever_is_shown(make_tally) -> None:
    """Random traffic of many more counters than are shown, some of which are forgotten."""
    draw = random.Random(7)
    tally, rows = make_tally(shown_max=10)
    memos = [memo(f"u{n}") for n in range(60)]
    expected: Counter[str] = Counter()
    last_others: tuple[float, ...] = (0.0,) * 5
    last: dict[str, list[float]] = {}
    for step in range(200):
        busy = memos[step // 20 : step // 20 + 12]
        batch = [(draw.choice(busy), step * 1000, draw.randrange(1000)) for _ in range(30)]
        rows.add(*batch)
        expected["value"] += sum(value for _, _, value in batch)
        expected["rows"] += len(batch)
        tally.look(START_MS + step * 1000)
        snapshot = tally.snapshot(START_MS + step * 1000)
        others = snapshot.others[PRODUCE]
        assert snapshot.sums[VALUE].sum() + others[VALUE] == expected["value"]
        assert snapshot.sums[ADMITTED_ROW].sum() + others[ADMITTED_ROW] == expected["rows"]
        assert all(now >= before for now, before in zip(others, last_others, strict=True))
        assert len(snapshot.keys) <= 10
        of_key = {key.tags: sums_of(snapshot, key.tags[16:]) for key in snapshot.keys}
        for tags, sums in of_key.items():
            assert sums[VALUE] >= last.get(tags, [0.0])[VALUE]
        last, last_others = of_key, others
        if step % 50 == 49:
            tally.cells.forget([draw.choice(list(tally.cells.of_key))])
            last = {}


def test_the_busiest_are_shown(make_tally) -> None:
    tally, rows = make_tally(shown_max=3)
    early, late = [memo(f"early{n}") for n in range(3)], memo("late")
    for second in range(60):
        rows.add(*[(late, second * 1000, 1)] * 50, *[(one, second * 1000, 1) for one in early])
        tally.look(START_MS + second * 1000)

    shown = {key.tags for key in tally.snapshot(START_MS + 60_000).keys}

    assert "client-id=,user=late" in shown


def test_any_number_of_names_takes_a_bounded_number_of_cells(make_tally) -> None:
    tally, rows = make_tally(shown_max=50)
    for begin in range(0, 200_000, 10_000):
        names = range(begin, begin + 10_000)
        rows.add(*[(memo(f"{name}"), begin // 1000, 1) for name in names])
        tally.look(START_MS + begin // 1000)

    snapshot = tally.snapshot(START_MS + 1000)

    assert len(tally.cells.of_key) <= CELLS_MAX
    assert tally.cells.sums.shape[1] <= 2 * CELLS_MAX
    assert snapshot.sums[VALUE].sum() + snapshot.others[PRODUCE][VALUE] == 200_000


def test_long_names_make_room_sooner(make_tally) -> None:
    tally, rows = make_tally()
    rows.add(*[(memo(f"{n}" + "x" * 30_000), 0, 1) for n in range(1000)])

    assert sum(len(key.tags) for key in tally.cells.of_key) <= 5 * 2**20


def test_a_memo_whose_cell_made_room_gets_another_one(make_tally) -> None:
    tally, rows = make_tally()
    a = memo("a")
    rows.add((a, 0, 1))
    tally.cells.forget([cell_of(tally, "a").key])
    rows.add((a, 1, 1))

    assert sums_of(tally.snapshot(START_MS), "a")[VALUE] == 1
    assert tally.snapshot(START_MS).others[PRODUCE][VALUE] == 1


def test_series_go_when_their_counter_has_been_idle_for_an_hour(make_tally) -> None:
    tally, rows = make_tally()
    rows.add((memo("a"), 0, 1))
    tally.look(START_MS + IDLE_MS_MAX - 1)
    assert len(tally.snapshot(START_MS).keys) == 1

    tally.look(START_MS + IDLE_MS_MAX + 20_000)

    assert len(tally.snapshot(START_MS).keys) == 0


def test_the_rate_is_what_was_charged_in_the_last_ten_seconds(make_tally) -> None:
    tally, rows = make_tally()
    a = memo("a")
    rows.add(*[(a, second * 1000, 500) for second in range(30)])

    assert tally.snapshot(START_MS + 29_999).rates[0] == pytest.approx(500, rel=0.01)
    assert tally.snapshot(START_MS + 60_000).rates[0] == 0


def test_the_mean_throttle_time_is_that_of_the_last_30_to_60_seconds(make_tally) -> None:
    tally, rows = make_tally()
    a = memo("a")
    base = -(START_MS % 30_000)
    rows.add((a, base, 1, 100, THROTTLED), (a, base + 29_999, 1, 300, THROTTLED))
    rows.add((a, base + 30_000, 1, 500, THROTTLED))

    assert tally.snapshot(START_MS + base + 30_001).mean_throttle_ms[0] == 300
    assert tally.snapshot(START_MS + base + 60_001).mean_throttle_ms[0] == 500
    assert np.isnan(tally.snapshot(START_MS + base + 90_001).mean_throttle_ms[0])


def test_a_clock_that_steps_back_breaks_nothing(make_tally) -> None:
    tally, rows = make_tally()
    a = memo("a")
    rows.add((a, 0, 500))
    tally.look(START_MS - 3_600_000)
    rows.add((a, -3_600_000, 500))

    assert tally.snapshot(START_MS - 3_600_000).rates[0] == pytest.approx(50, rel=0.2)


def test_worst_first_is_who_waits_longest_then_who_uses_most_of_its_limit(make_tally) -> None:
    tally, rows = make_tally()
    rows.add(
        (memo("idle"), 0, 1),
        (memo("busy"), 0, 9000),
        (memo("unlimited", limit=None), 0, 90_000),
        (memo("waits"), 0, 50, 2_000, THROTTLED),
        (memo("waits-longer"), 0, 50, 9_000, THROTTLED),
    )

    order = [one.key.tags.removeprefix("client-id=,user=") for one in tally.busiest(10, START_MS)]

    assert order == ["waits-longer", "waits", "busy", "idle", "unlimited"]
    assert len(tally.busiest(2, START_MS)) == 2
    assert tally.count == 5


def test_columns_grow_with_what_they_hold() -> None:
    cells = Cells(shown_max=10)
    tally_keys = []
    for n in range(1000):
        cell = cells.cell_of(CounterKey(QuotaType.PRODUCE, f"u{n}", 1), 0.0)
        assert cell is not None
        cells.sums[VALUE, cell.slot] = n
        tally_keys.append(cell)

    assert [cells.sums[VALUE, cell.slot] for cell in tally_keys] == list(range(1000))
