"""Rows are shown to an observer once, in order, on another thread, whatever the observer does."""

import logging
import threading
from collections.abc import Sequence

import pytest

from kvota.model.decision_sink import NO_ANSWER, ChargeMemo
from kvota.record.row_batch import PackedRows
from kvota.record.row_counter import CountingSink


class Seen:
    """Keeps the seq of each row and the user of its memo."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []
        self.threads: set[str] = set()
        self.looks = 0
        self.fails = False

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None:
        self.threads.add(threading.current_thread().name)
        for row in rows:
            self.rows.append((int(row["seq"]), memos[row["memo"]].user))
        if self.fails:
            msg = "cannot add"
            raise ArithmeticError(msg)

    def look(self, now_ms: int) -> None:
        self.looks += 1


def append(sink: CountingSink, memo: ChargeMemo, rows: int) -> None:
    for _ in range(rows):
        sink.append(memo, sink.next_seq(), 1_790_000_000_000_000, 5.0, 0, NO_ANSWER, 0)


def wait_until_counted(sink: CountingSink) -> None:
    counted = threading.Event()
    sink.counter.when_counted(counted.set)
    assert counted.wait(10)


def test_all_rows_are_shown_once_and_in_order_over_many_batches(make_memo, clock) -> None:
    seen = Seen()
    sink = CountingSink(seen, clock=clock, rows_max=7)
    sink.start()
    memos = [make_memo(user=f"user-{n}") for n in range(3)]

    for n in range(40):
        append(sink, memos[n % 3], 1)
        if n % 5 == 0:
            wait_until_counted(sink)
    wait_until_counted(sink)
    sink.close()

    assert seen.rows == [(n, f"user-{n % 3}") for n in range(40)]
    assert seen.threads == {"kvota-count"}


def test_closed_it_has_shown_all_rows_and_its_thread_has_ended(make_memo, clock) -> None:
    others = {*threading.enumerate()}
    seen = Seen()
    sink = CountingSink(seen, clock=clock, rows_max=7)
    sink.start()
    append(sink, make_memo(), 20)

    sink.close()

    assert len(seen.rows) == 20
    assert {*threading.enumerate()} <= others


def test_what_was_never_started_is_closed_at_once(clock) -> None:
    CountingSink(Seen(), clock=clock).close()


def test_rows_that_come_faster_than_they_are_shown_are_refused_and_said(make_memo, clock) -> None:
    sink = CountingSink(Seen(), clock=clock, rows_max=7)  # not started: nobody sets a batch free

    append(sink, make_memo(), 25)

    assert sink.rows_refused == 25 - 3 * 7


def test_an_observer_that_fails_is_said_once_and_rows_go_on(
    make_memo, clock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    seen.fails = True
    sink = CountingSink(seen, clock=clock, rows_max=7)
    sink.start()

    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            append(sink, make_memo(), 5)
            wait_until_counted(sink)

    assert len(seen.rows) == 15
    assert [record.message for record in caplog.records] == [
        "decisions are not summed up as they should be; traffic goes on"
    ]


def test_it_looks_up_without_any_rows(clock) -> None:
    seen = Seen()
    sink = CountingSink(seen, clock=clock)
    sink.start()
    wait_until_counted(sink)

    assert seen.looks > 0
