"""The hot path: bounded memory, exact counts of what did not fit."""

from kvota.record.row_appender import TEXT_CHARS_MAX, RowAppender
from kvota.record.row_batch import ROW_BYTES, RowBatch


def rows_in(batch: RowBatch | None) -> int:
    assert batch is not None
    return batch.offset // ROW_BYTES


def test_sequence_numbers_are_dense_from_0() -> None:
    appender = RowAppender(batches=2, rows_max=3)

    assert [appender.next_seq() for _ in range(4)] == [0, 1, 2, 3]


def test_rows_beyond_all_batches_are_dropped_and_counted(make_memo) -> None:
    appender = RowAppender(batches=3, rows_max=4)
    memo = make_memo()

    for _ in range(100):
        appender.append(memo, appender.next_seq(), 1, 1.0, 0, -1, 0)

    assert appender.rows_refused == 100 - 3 * 4
    assert appender.full.qsize() == 2
    assert rows_in(appender.batch) == 4


def test_a_row_goes_into_a_batch_that_became_free(make_memo) -> None:
    appender = RowAppender(batches=2, rows_max=1)
    memo = make_memo()
    for seq in range(3):
        appender.append(memo, seq, 1, 1.0, 0, -1, 0)

    batch = appender.full.get()
    batch.reset()
    appender.free.append(batch)
    appender.append(memo, 3, 1, 1.0, 0, -1, 0)

    assert appender.rows_refused == 1
    assert appender.batch is batch
    assert batch.memos == [memo]


def test_numbers_that_no_row_can_hold_are_dropped_and_counted(make_memo) -> None:
    appender = RowAppender(batches=2, rows_max=9)
    memo = make_memo()

    appender.append(memo, 0, 1, 1.0, 2**31, -1, 0)
    appender.append(memo, 1, 2**63, 1.0, 0, -1, 0)
    appender.append(memo, 2, 1, 10**400, 0, -1, 0)
    appender.append(memo, 3, 1, 1.0, 0, -1, 0)

    assert appender.rows_refused == 3
    assert rows_in(appender.batch) == 1
    assert appender.full.empty()


def test_a_bad_number_at_a_full_batch_is_counted_once(make_memo) -> None:
    appender = RowAppender(batches=2, rows_max=1)
    memo = make_memo()
    appender.append(memo, 0, 1, 1.0, 0, -1, 0)

    appender.append(memo, 1, 1, 1.0, 2**31, -1, 0)

    assert appender.rows_refused == 1


def test_memory_for_names_is_bounded(make_memo) -> None:
    appender = RowAppender(batches=2, rows_max=1000)
    name = "x" * (TEXT_CHARS_MAX // 4)

    for seq in range(100):
        appender.append(make_memo(client_id=name), seq, 1, 1.0, 0, -1, 0)

    # Four such names fill a batch, and there are two batches.
    assert appender.rows_refused == 100 - 2 * 4


def test_a_memo_already_listed_is_still_taken_when_the_names_are_too_many(make_memo) -> None:
    appender = RowAppender(batches=2, rows_max=1000)
    memo = make_memo(client_id="x" * TEXT_CHARS_MAX)

    for seq in range(10):
        appender.append(memo, seq, 1, 1.0, 0, -1, 0)

    assert rows_in(appender.batch) == 10
    assert len(appender.batch.memos) == 1


def test_rows_after_close_are_dropped_and_counted(make_memo) -> None:
    appender = RowAppender(batches=3, rows_max=4)
    memo = make_memo()
    appender.append(memo, 0, 1, 1.0, 0, -1, 0)

    appender.close()
    appender.append(memo, 1, 1, 1.0, 0, -1, 0)
    appender.append(make_memo(), 2, 1, 1.0, 0, -1, 0)

    assert appender.rows_refused == 2
    assert rows_in(appender.full.get()) == 1
    assert appender.full.get() is None


def test_a_memo_listed_by_another_recorder_is_listed_anew(make_memo) -> None:
    memo = make_memo()
    others = make_memo()
    first, second = (RowAppender(batches=2, rows_max=4) for _ in range(2))
    first.append(others, 0, 1, 1.0, 0, -1, 0)
    first.append(memo, 1, 1, 1.0, 0, -1, 0)

    second.append(memo, 0, 1, 1.0, 0, -1, 0)

    assert second.batch.memos == [memo]
