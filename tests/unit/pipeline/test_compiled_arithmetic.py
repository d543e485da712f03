"""Kernels are compiled once per machine, and anew when what they call has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvota
from kvota.engine import arithmetic
from kvota.pipeline.kernel_parts import PARTS
from kvota.pipeline.kernels import compiled_arithmetic, kept_code
from kvota.pipeline.warm_up import _COMPILED_BY

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
