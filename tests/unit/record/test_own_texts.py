"""A part of a table has only the texts of its rows."""

import pyarrow as pa
import pytest

from kvota.record.own_texts import with_own_texts

TEXTS = ["a", "b", None, "c", "b", None]


@pytest.mark.parametrize("part", [slice(0, 6), slice(1, 3), slice(2, 3), slice(4, 6), slice(0, 0)])
def test_its_rows_stay_and_other_texts_go(part: slice) -> None:
    table = pa.table({"user": pa.array(TEXTS).dictionary_encode(), "seq": range(6)})

    found = with_own_texts(table.slice(part.start, part.stop - part.start))

    here = TEXTS[part]
    assert found.schema == table.schema
    assert found["user"].to_pylist() == here
    assert found["seq"].to_pylist() == list(range(6))[part]
    own = {text for text in here if text is not None}
    assert sorted(found["user"].combine_chunks().dictionary.to_pylist()) == sorted(own)


def test_a_column_without_any_text_stays_null() -> None:
    column = pa.nulls(3, pa.dictionary(pa.int32(), pa.string()))

    assert with_own_texts(pa.table({"user": column}))["user"].to_pylist() == [None] * 3
