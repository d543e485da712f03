"""Many tables in order become one order, whatever the pieces are."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kvota.pipeline.sources.sorted_tables import in_one_order, write_pieces


@pytest.mark.parametrize("spread", [3, 10_000])
def test_pieces_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    monkeypatch.setattr("kvota.pipeline.sources.sorted_tables._PIECE_ROWS", 50)
    monkeypatch.setattr("kvota.pipeline.sources.sorted_tables._TOGETHER_ROWS", 300)
    rng = np.random.default_rng(5)
    pieces, every = [], []
    for number in range(7):
        times = np.sort(rng.integers(0, spread, 400))
        values = rng.random(400)
        order = np.lexsort((values, times))
        table = pa.table({"seq": np.zeros(400, np.int64), "ts_us": times, "value": values[order]})
        pieces += write_pieces(tmp_path / str(number), table, "ts_us")
        every.append(table)

    tables = [*in_one_order(pieces, "ts_us")]

    found = pa.concat_tables(tables)
    expected = pa.concat_tables(every).sort_by([("ts_us", "ascending"), ("value", "ascending")])
    assert found.equals(expected.combine_chunks()) or found.to_pylist() == expected.to_pylist()
    assert len(tables) == (3 if spread == 3 else len(tables))
    assert len(tables) > 2
    assert max(table.num_rows for table in tables) < (1100 if spread == 3 else 700)


def test_no_rows() -> None:
    assert not [*in_one_order([], "ts_us")]
