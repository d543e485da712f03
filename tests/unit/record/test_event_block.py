"""Events on their way through a topic: what goes in comes out, and what is none of it is refused."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.record.record_files import ROWS, as_table

from kvota.record.event_block import NoBlockError, block_bytes, halves, read_block
from kvota.record.event_schema import EVENT_SCHEMA, WRITE_SCHEMA

TABLE = as_table(ROWS)


def packed(table: pa.Table, metadata: dict[str, str] | None = None) -> bytes:
    """A block of somebody else."""
    chosen = {"schema_version": "3"} if metadata is None else metadata
    return block_bytes(table.replace_schema_metadata(chosen))


def test_a_block_has_each_row_and_column() -> None:
    again = read_block(block_bytes(TABLE))

    assert again.schema.equals(WRITE_SCHEMA, check_metadata=True)
    assert again.to_pylist() == TABLE.to_pylist()


def test_anybody_reads_it_with_a_zstd_and_an_arrow_reader() -> None:
    stream = pa.CompressedInputStream(pa.BufferReader(block_bytes(TABLE)), "zstd")
    table = pa.ipc.open_stream(stream).read_all()

    assert table.schema.metadata == {b"schema_version": b"3"}
    assert table.to_pylist() == TABLE.to_pylist()


def test_halves_have_the_rows_and_the_texts_of_their_own_alone() -> None:
    first, second = halves(TABLE)

    assert first.to_pylist() + second.to_pylist() == TABLE.to_pylist()
    assert first["run_id"].chunk(0).dictionary.to_pylist() == ["run-1"]


def test_rows_of_an_older_version_and_plain_texts_are_taken() -> None:
    old = TABLE.cast(EVENT_SCHEMA).drop_columns(["algorithm", "owed_ms", "producer_id"])

    again = read_block(packed(old, {"schema_version": "1"}))

    assert again["seq"].to_pylist() == TABLE["seq"].to_pylist()
    assert set(again["algorithm"].to_pylist()) == {"sampled_rate", "token_bucket"}
    assert again["owed_ms"].null_count == again.num_rows


def with_wrong_code() -> pa.Table:
    codes = pa.array([99] * TABLE.num_rows, pa.int32())
    wrong = pa.DictionaryArray.from_arrays(codes, pa.array(["x"]), safe=False)
    place = TABLE.column_names.index("user")
    return TABLE.set_column(place, "user", wrong)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda: None, "no zstd frame", id="nothing"),
        pytest.param(lambda: b"", "no zstd frame", id="empty"),
        pytest.param(lambda: b'{"seq": 1}', "no zstd frame", id="json"),
        pytest.param(lambda: b"\x28\xb5\x2f\xfd", "0 bytes unpacked", id="cut head"),
        pytest.param(
            lambda: pa.Codec("zstd").compress(b"x" * 10**8, asbytes=True),
            "100000000 bytes",
            id="bomb",
        ),
        pytest.param(
            lambda: pa.Codec("zstd").compress(b"no arrow" * 10, asbytes=True),
            "metadata bytes",
            id="no arrow",
        ),
        pytest.param(lambda: block_bytes(TABLE)[:-7], "decompression failed", id="cut"),
        pytest.param(
            lambda: packed(TABLE, {"schema_version": "99"}),
            'schema_version "99"',
            id="newer version",
        ),
        pytest.param(lambda: packed(TABLE, {}), 'schema_version ""', id="no version"),
        pytest.param(lambda: packed(TABLE.drop_columns(["value"])), "value", id="no value"),
        pytest.param(
            lambda: packed(TABLE.drop_columns(["quota_type", "algorithm"])),
            "quota_type",
            id="no quota type",
        ),
        pytest.param(
            lambda: packed(TABLE.set_column(0, "ts_us", TABLE["value"])),
            "column ts_us is double, expected int64",
            id="wrong type",
        ),
        pytest.param(
            lambda: packed(TABLE.set_column(1, "seq", pa.nulls(TABLE.num_rows, pa.int64()))),
            "column seq has nulls",
            id="nulls",
        ),
        pytest.param(lambda: packed(with_wrong_code()), "99", id="wrong code"),
    ],
)
def test_what_is_no_block_is_refused(make: Callable[[], bytes | None], reason: str) -> None:
    with pytest.raises(NoBlockError, match=reason):
        read_block(make())


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_block_is_refused_or_read_and_nothing_else(data: st.DataObject) -> None:
    block = bytearray(block_bytes(TABLE.slice(0, 40)))
    for _ in range(data.draw(st.integers(1, 4))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))

    with suppress(NoBlockError):
        assert read_block(bytes(block)).schema.equals(WRITE_SCHEMA)
