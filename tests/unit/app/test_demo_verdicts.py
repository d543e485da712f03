"""The demo's verdicts on a record, and what it refuses to write over."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvota.app.demo.circle import run_demo
from kvota.app.demo.traffic import percentile
from kvota.app.demo.verdicts import Charges, admitted_charges, verdicts
from kvota.app.text_table import text_table
from kvota.model.errors import UsageError


def _charges(folder: Path, values: list[float], *, outcome: str = "admitted") -> Charges:
    """One charge a millisecond on one counter under 1,000/s, with a window of 2 x 1 s."""
    count = len(values)
    columns = {
        "seq": list(range(count)),
        "ts_us": [number * 1_000 for number in range(count)],
        "user": ["a"] * count,
        "quota_type": ["PRODUCE"] * count,
        "node_id": [1] * count,
        "tags": ["user=a"] * count,
        "value": values,
        "limit": [1_000.0] * count,
        "samples": [2] * count,
        "sample_ms": [1_000] * count,
        "outcome": [outcome] * count,
    }
    pq.write_table(pa.table(columns), folder / "events.parquet")
    return admitted_charges(folder)


def test_a_limit_that_was_kept_holds(tmp_path: Path) -> None:
    judged = verdicts(_charges(tmp_path, [1.0] * 1_500), late_ms=0)

    assert judged["a", "PRODUCE"].holds


def test_a_limit_that_was_broken_does_not_hold(tmp_path: Path) -> None:
    judged = verdicts(_charges(tmp_path, [3.0] * 1_500), late_ms=0)

    assert not judged["a", "PRODUCE"].holds


def test_what_was_rejected_used_nothing(tmp_path: Path) -> None:
    judged = verdicts(_charges(tmp_path, [3.0] * 1_500, outcome="rejected"), late_ms=0)

    assert not judged


def test_the_demo_writes_over_nobody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")

    with pytest.raises(UsageError, match="not empty and not from an earlier demo"):
        run_demo(tmp_path, seconds=5)

    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_the_demo_names_a_file_that_is_in_its_way(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")

    with pytest.raises(UsageError, match="is a file"):
        run_demo(file, seconds=5)


def test_a_percentile_has_its_share_of_the_values_below_it() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 3.0
    assert percentile([1.0], 0.99) == 1.0


def test_a_table_is_as_wide_as_its_widest_cells() -> None:
    text = text_table(["tenant", "rate"], [["orders", "1.90 MB/s"], ["a", "1 B/s"]])

    assert text.splitlines() == ["tenant       rate", "orders  1.90 MB/s", "a           1 B/s"]
