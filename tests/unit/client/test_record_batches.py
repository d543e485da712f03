"""Record batches: what is written reads as itself, and what cannot be read is told and stepped over."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from kvota.client.producer_state import ProducerState
from kvota.client.record_batches import Row, Unread, decode_batches, encode_batch

ROWS = st.lists(
    st.tuples(st.binary(max_size=50), st.none() | st.binary(max_size=50)), min_size=1, max_size=8
)
NOW_MS = 1_700_000_000_123


def at_offset(batch: bytes, offset: int) -> bytes:
    """As a broker has it: the first offset stands before what the checksum is of."""
    return offset.to_bytes(8, "big") + batch[8:]


@given(st.lists(ROWS, max_size=3))
def test_batches_read_as_what_was_written(batches: list[list[tuple[bytes, bytes | None]]]) -> None:
    data, expected, offset = b"", [], 7
    for rows in batches:
        data += at_offset(encode_batch(rows, now_ms=NOW_MS), offset)
        expected += [Row(offset + number, *row) for number, row in enumerate(rows)]
        offset += len(rows) + 3  # compaction leaves gaps

    assert decode_batches(data, 7) == (expected, expected[-1].next_offset if expected else 7)


@given(ROWS, st.integers(0, 2**31 - 1))
def test_a_batch_says_whose_it_is_and_which(
    rows: list[tuple[bytes, bytes | None]], sequence: int
) -> None:
    """As another client reads it, with the sequence behind it."""
    producer = ProducerState(2**40, 3, sequence)
    batch = DefaultRecordBatch(encode_batch(rows, now_ms=NOW_MS, producer=producer))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert producer.behind(len(rows)).sequence == batch._increment_sequence(batch.last_sequence, 1)

    assert DefaultRecordBatch(encode_batch(rows, now_ms=NOW_MS)).producer_id == -1


def test_a_batch_is_answered_whole_where_its_middle_was_asked_for() -> None:
    data = encode_batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], now_ms=NOW_MS)

    assert decode_batches(data, 1) == ([Row(1, b"b", b"2"), Row(2, b"c", b"3")], 3)
    assert decode_batches(data, 3) == ([], 3)


def test_a_batch_that_is_cut_is_left_out() -> None:
    whole, cut = encode_batch([(b"a", b"1")], now_ms=NOW_MS), encode_batch([(b"b", b"2")], now_ms=0)
    for length in range(len(cut)):
        assert [row.key for row in decode_batches(whole + cut[:length], 0).rows] == [b"a"]  # type: ignore[union-attr]
    assert decode_batches(None, 5) == decode_batches(b"", 5) == ([], 5)


@pytest.mark.parametrize(
    ("at", "to", "reason"),
    [(16, b"\x01", "format 1"), (22, b"\x03", "compressed"), (-3, b"\xff", "cannot be read")],
)
def test_what_cannot_be_read_is_stepped_over(at: int, to: bytes, reason: str) -> None:
    bad = bytearray(encode_batch([(b"a", b"1"), (b"b", b"2")], now_ms=NOW_MS))
    bad[at : at + 1 or None] = to
    good = at_offset(encode_batch([(b"c", b"3")], now_ms=NOW_MS), 2)

    unread, row = decode_batches(bytes(bad) + good, 0).rows

    assert isinstance(unread, Unread)
    assert unread.offset == 0
    assert reason in unread.reason
    assert row == Row(2, b"c", b"3")


def test_a_batch_that_lies_about_its_rows_is_stepped_over() -> None:
    lying = bytearray(encode_batch([(b"a", b"1")], now_ms=NOW_MS))
    lying[57:61] = (1_000).to_bytes(4, "big")
    lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")

    ((unread,), next_offset) = decode_batches(bytes(lying), 0)

    assert isinstance(unread, Unread)
    assert next_offset == 1


def test_marks_of_transactions_are_no_rows_and_are_stepped_over() -> None:
    mark = bytearray(encode_batch([(b"a", b"1")], now_ms=NOW_MS))
    mark[22] = 0x20

    assert decode_batches(bytes(mark), 0) == ([], 1)


def test_batches_that_compaction_has_emptied_are_stepped_over() -> None:
    emptied = bytearray(encode_batch([(b"a", b"1"), (b"b", b"2")], now_ms=NOW_MS)[:61])
    emptied[8:12] = (61 - 12).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    emptied[17:21] = crc32c(bytes(emptied[21:])).to_bytes(4, "big")

    assert decode_batches(bytes(emptied), 0) == ([], 2)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    rows, next_offset = decode_batches(data, 0)

    assert all(isinstance(found, Row | Unread) for found in rows)
    assert next_offset >= 0
