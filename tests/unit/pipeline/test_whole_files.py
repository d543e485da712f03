"""Whole files, however rows are cut into them, give what the rows give: also where runs are known without being read."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.packed_events import RUNS, identified, table
from tests.unit.record.record_files import as_table, put

from kvota.files.command_name import called
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import unpack
from kvota.pipeline.whole_files import file_packer, table_packer, task_list
from kvota.record.event_file import runs_in_table
from kvota.record.found_events import find_events
from kvota.record.runs import RUNS_KEY, Run, runs_text
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

FURTHER = frozenset({"throttle_ms", "upstream_throttle_ms"})
FIRST = tuple(RecordedTraffic(7, run_id="run-1", enforced=False).rows(400))
SECOND = tuple(RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True).rows(200))

Pieces = Sequence[Sequence[EventRow]]


def packing(by: s.By) -> Packing:
    return Packing(by=by, runs=RUNS, further=FURTHER, gateways_apart=by == "user")


def of_files(folder: Path, by: s.By) -> pa.Table:
    """The chunks of all files, which are one task's."""
    tasks = pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})
    pack = file_packer(task_list(find_events([folder]).files, 1), packing(by), "")
    return pa.Table.from_batches(pack(iter([tasks])), s.CHUNK)


def of_rows(rows: Sequence[EventRow], by: s.By) -> pa.Table:
    batches = table(list(rows)).to_batches()
    return pa.Table.from_batches(table_packer(packing(by))(iter(batches)), s.CHUNK)


def numbers(chunks: pa.Table, by: s.By) -> dict[tuple[object, ...], list[tuple[float | None, ...]]]:
    """What the rows of each counter say, in their order; NaN (no limit) as None."""
    found: dict[tuple[object, ...], list[tuple[float | None, ...]]] = {}
    for rows in unpack(identified(chunks).to_batches(), as_recorded=by == "counter"):
        columns = [rows.columns[name].tolist() for name in (*s.INTS, *s.DOUBLES)]
        every = [
            tuple(None if number != number else number for number in row)  # noqa: PLR0124
            for row in zip(*columns, strict=True)
        ]
        for place, name in enumerate(rows.names.to_pylist()):
            key = tuple(name[part] for part in s.COUNTER_COLUMNS)
            found.setdefault(key, []).extend(every[rows.starts[place] : rows.starts[place + 1]])
    return found


@st.composite
def cut(draw: st.DrawFn) -> Pieces:
    """Rows of two runs, in files of one run or of both."""
    rows = draw(st.permutations((*FIRST[:: draw(st.integers(1, 40))], *SECOND[::7])))
    by_run = draw(st.booleans())
    ends = sorted(draw(st.sets(st.integers(1, len(rows) - 1), max_size=6)))
    mixed = [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)], strict=True)]
    if not by_run:
        return mixed
    apart = [[row for row in piece if row in of] for piece in mixed for of in (FIRST, SECOND)]
    return [piece for piece in apart if piece]


@pytest.mark.parametrize("by", ["counter", "user"])
@given(pieces=cut())
@settings(deadline=None, max_examples=30)
def test_files_give_the_rows_that_are_in_them(
    by: s.By, pieces: Pieces, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    for piece in pieces:
        put(folder, piece)

    found = numbers(of_files(folder, by), by)

    assert found == numbers(of_rows([row for piece in pieces for row in piece], by), by)


def test_a_column_of_another_type_is_read_as_it_should_be(tmp_path: Path) -> None:
    plain = table(list(FIRST))
    large = plain.schema.set(
        plain.schema.get_field_index("user"), pa.field("user", pa.large_string())
    )
    pq.write_table(plain.cast(large), tmp_path / "events-1.parquet")

    assert numbers(of_files(tmp_path, "user"), "user") == numbers(of_rows(FIRST, "user"), "user")


def test_names_of_a_run_that_is_known_are_not_read(tmp_path: Path) -> None:
    """Its columns are there, but cannot be read: nobody looks at them."""
    file = put(tmp_path, FIRST)
    content = bytearray(file.read_bytes())
    group = pq.read_metadata(file).row_group(0)
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema in {"gateway", "run_id"}:
            start = column.dictionary_page_offset
            content[start : start + column.total_compressed_size] = bytes(
                column.total_compressed_size
            )
    file.write_bytes(content)

    assert numbers(of_files(tmp_path, "counter"), "counter") == numbers(
        of_rows(FIRST, "counter"), "counter"
    )


@pytest.mark.parametrize("statistics", [True, False], ids=["statistics", "none"])
@pytest.mark.parametrize("others", ["another run", "no run"])
def test_rows_that_are_not_of_the_run_that_the_footer_names_are_refused(
    tmp_path: Path, others: str, statistics: bool
) -> None:
    rows = table([*FIRST, *SECOND])
    if others == "no run":
        place = rows.schema.get_field_index("run_id")
        texts = [None if row == 7 else "run-1" for row in range(rows.num_rows)]
        rows = rows.set_column(place, "run_id", pa.array(texts, pa.string()))
    named = replace(run_of(FIRST), rows=rows.num_rows)
    metadata = {**(rows.schema.metadata or {}), RUNS_KEY: runs_text([named])}
    pq.write_table(
        rows.replace_schema_metadata(metadata),
        tmp_path / "events-1.parquet",
        write_statistics=statistics,
    )

    with pytest.raises(
        RuntimeError,
        match=r"events-1\.parquet: its rows cannot be read .*(not every gateway|has nulls)",
    ):
        of_files(tmp_path, "counter")


def test_rows_of_a_run_that_no_footer_names_are_refused(tmp_path: Path) -> None:
    """The file says that it is of two runs, and has rows of a third."""
    third = RecordedTraffic(9, run_id="run-3").rows(5)
    rows = table([*FIRST, *SECOND, *third])
    metadata = {
        **(rows.schema.metadata or {}),
        RUNS_KEY: runs_text([run_of(FIRST), run_of(SECOND)]),
    }
    pq.write_table(rows.replace_schema_metadata(metadata), tmp_path / "events-1.parquet")

    with pytest.raises(
        RuntimeError,
        match=rf"^a row is of run 'run-3' of gateway 'gateway-1', .* {re.escape(called())} record check names the file",
    ):
        of_files(tmp_path, "counter")


def test_a_file_that_shows_nothing_of_its_run_is_read_all_the_same(tmp_path: Path) -> None:
    """As files of older gateways: they have no statistics of these two columns."""
    rows = table(list(FIRST))
    metadata = {**(rows.schema.metadata or {}), RUNS_KEY: runs_text([run_of(FIRST)])}
    pq.write_table(
        rows.replace_schema_metadata(metadata),
        tmp_path / "events-1.parquet",
        write_statistics=False,
    )

    assert numbers(of_files(tmp_path, "user"), "user") == numbers(of_rows(FIRST, "user"), "user")


def run_of(rows: Sequence[EventRow]) -> Run:
    (run,) = runs_in_table(as_table(rows))
    return run
