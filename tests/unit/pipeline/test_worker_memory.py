"""A large worker gives memory back that its allocators keep."""

import subprocess
import sys

SCRIPT = """
from pathlib import Path
import numpy as np
import pyarrow as pa
from kvota.pipeline.worker_memory import give_back

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

# Many small pieces, all but the last ones given up: the C library keeps what lies below those.
held = [np.ones(8_000) for _ in range(16_000)]
held = held[-1:]
before = resident_mb()
give_back()
print(before > 900, before - resident_mb() > 500)
"""


def test_it_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "True True\n"
