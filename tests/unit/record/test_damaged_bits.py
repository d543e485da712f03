"""One bit that has changed anywhere in a file is named by who reads it, or changes no row."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.record.record_files import ROWS, put

from kvota.record.check import check
from kvota.record.clustered import UnfitError, read_rows
from kvota.record.compact import compact
from kvota.record.found_events import look_into

# Of every bit so many are passed over; no divisor of 8, so each kind of bit is among them.
EACH = 23
# In headers of pages, which no sum covers: rows are lost, codes have no text, or gateways are none.
KNOWN_BITS = (5 * 8 + 2, 330 * 8 + 6, 500 * 8 + 4, 727 * 8 + 1, 738 * 8 + 6, 972 * 8 + 4)


def with_bit_changed(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def rows_in(file: Path) -> pa.Table | None:
    """All rows, as they are put together with others; None where that is refused."""
    try:
        return read_rows(file)
    except UnfitError:
        return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_merged", [False, True])
def test_it_is_named_or_changes_no_row(is_merged: bool, tmp_path: Path) -> None:
    file = put(tmp_path, ROWS[:30])
    if is_merged:
        assert compact(tmp_path, now_us=0, every_hour=True).steps
        (file,) = tmp_path.glob("*.parquet")
    whole, expected = file.read_bytes(), rows_in(file)
    bits = sorted({*KNOWN_BITS, *range(0, len(whole) * 8, EACH)})
    found = {"named": 0, "same": 0}
    for bit in bits:
        file.write_bytes(with_bit_changed(whole, bit))

        looked = look_into([tmp_path])
        bad = looked.bad or check(looked).bad or not any(f.is_plain for f in looked.files)

        rows = None if bad else rows_in(file)
        assert bad or (rows is not None and rows.equals(expected)), (
            f"byte {bit // 8}, bit {bit % 8}"
        )
        found["named" if bad else "same"] += 1
    assert min(found.values()) > 10
