"""Kernels are compiled once per machine, and anew when what they call has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.record.record_files import put

import kvota
from kvota.engine import arithmetic
from kvota.pipeline.kernel_parts import PARTS
from kvota.pipeline.kernels import compiled_arithmetic, kept_code
from kvota.pipeline.warm_up import _COMPILED_BY
from kvota.testing.recorded_traffic import RecordedTraffic

# One kernel: to compile all of them takes half a minute, and each is kept in the same way.
SCRIPT = """
from kvota.pipeline.kernels.kept_code import note_complete
from kvota.pipeline.kernels.law_kernel import law_rows
from kvota.pipeline.law_stage import found_by_law
from kvota.pipeline.warm_up import one_row
list(found_by_law(iter([one_row()])))
note_complete("law")
print(sum(law_rows.stats.cache_hits.values()), sum(law_rows.stats.cache_misses.values()))
"""


def in_another_process(cache: Path, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout


@pytest.mark.timeout(200)
def test_a_second_process_finds_the_machine_code_of_the_first_also_with_its_source_elsewhere(
    tmp_path: Path,
) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    source = Path(kvota.__path__[0])
    shutil.copytree(source, elsewhere / "kvota", ignore=shutil.ignore_patterns("__pycache__"))

    assert in_another_process(cache) == "0 1\n"
    assert in_another_process(cache, PYTHONPATH=str(elsewhere)) == "1 0\n"
    assert [file.name for file in cache.rglob("*.complete")] == ["law.complete"]


ONE_OF_EACH = """
from kvota.pipeline import warm_up
from kvota.pipeline.kernels import grid_kernels
warm_up._open_loops()
warm_up._grid()
print(*(
    len(getattr(grid_kernels, name).signatures)
    for name in dir(grid_kernels) if name.endswith("_rows")
))
"""


@pytest.mark.timeout(200)
def test_loops_compiled_ahead_are_those_that_the_grid_calls() -> None:
    """Else each of them would be compiled twice."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_OF_EACH], capture_output=True, text=True, timeout=190, check=True
    )

    assert done.stdout == "1 1 1 1 1 1\n"


OF_USAGE = """
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.pipeline import USAGE_COLUMNS, warm_up
from kvota.pipeline.direct import whole_counters
from kvota.pipeline.event_columns import Events
from kvota.pipeline.kernels import packing, second_sums, usage_kernel
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.seconds import of_whole_counters, sums_of_rows
from kvota.pipeline.unpack import unpack
from kvota.pipeline.usage_stage import Windows, usage_stage

def compiled():
    every = [each for part in (packing, second_sums, usage_kernel) for each in vars(part).values()]
    return sum(len(each.signatures) for each in every if hasattr(each, "signatures"))

for part in ("packing", "usage"):
    warm_up._COMPILED_BY[part]()
before = compiled()
table = pq.read_table(sys.argv[1])
charged = Packing(
    by="user", runs={("gateway-1", "run-1"): (0, True)}, further=frozenset(USAGE_COLUMNS)
)
summed = Packing(by="user", runs=charged.runs, further=charged.further, is_summed=True)
for events in (Events(table), Events(pa.concat_tables([table, table]))):
    for how in (charged, summed):
        chunks = pack(events, how).append_column("counter_id", pa.array([1]))
        rows = list(unpack([chunks], as_recorded=False, layout=how.layout))
    list(usage_stage(Windows("user", 0, 60))(of_whole_counters(rows)))
    list(sums_of_rows([whole_counters(events, charged)]))
print(compiled() - before)
"""


@pytest.mark.timeout(200)
def test_what_usage_calls_has_been_compiled_ahead(tmp_path: Path) -> None:
    """Arrays of Arrow cannot be written, and Numba would compile the same kernel for these once more."""
    row = RecordedTraffic(7, run_id="run-1", enforced=False).rows(1)
    path = put(tmp_path, list(row))

    done = subprocess.run(
        [sys.executable, "-c", OF_USAGE, str(path)],
        capture_output=True,
        text=True,
        timeout=190,
        check=True,
    )

    assert done.stdout == "0\n"


def test_parts_have_a_time_and_a_way_to_be_compiled() -> None:
    assert set(PARTS) == set(_COMPILED_BY)


def test_the_kept_code_belongs_to_the_text_of_what_it_calls() -> None:
    sources = kept_code._sources()

    assert Path(arithmetic.__file__).read_bytes() in sources
    assert b"def record_rate(" in sources


def test_the_plain_arithmetic_stays_plain() -> None:
    assert type(arithmetic.java_round).__name__ == "function"
    assert type(compiled_arithmetic.compiled.java_round).__name__ == "CPUDispatcher"
    assert compiled_arithmetic.compiled.java_round(2.5) == arithmetic.java_round(2.5) == 3
