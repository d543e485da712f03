"""How long a newcomer waits for the first report: ``kvota report --sample`` in an empty folder, with nothing kept from before.

    ./run bench first_report

Caches are empty, so kernels are compiled and fonts are looked for. Bar: below 90 s of wall clock on two cores. Beside it
stands the CPU time of all its processes, and what the next report takes.
"""

import ctypes
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from verdict import judged

TREE = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "first_report.json"
CODE = "import sys; from kvota.app.cli.main import main; sys.exit(main())"
SECONDS_MAX = 90.0
CORES = 2
LIMIT_S = 600.0
# Of prctl: processes whose parents have ended become children of this one, so that their CPU time is told, too.
PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Measure, print and judge."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (report(Path(folder), number) for number in (1, 2))
    print(f"first: {first}\nnext:  {second}")
    kept = {
        "machine": f"{platform.machine()}, {len(cores)} cores, Python {platform.python_version()}",
        "load_at_end": round(os.getloadavg()[0], 1),
        "first": first,
        "next": second,
    }
    missed = []
    if first["seconds"] > SECONDS_MAX:
        missed.append(f"the first report takes {first['seconds']} s, more than {SECONDS_MAX:.0f}")
    return judged(RESULT, kept, missed)


def report(folder: Path, number: int) -> dict[str, float]:
    """Make a report in an empty folder; the caches are beside it, and are empty the first time."""
    empty = folder / f"empty-{number}"
    empty.mkdir()
    environment = {name: text for name, text in os.environ.items() if name != "MPLCONFIGDIR"}
    environment |= {
        "PYTHONPATH": str(TREE / "src"),
        "KVOTA_CACHE": str(folder / "cache"),
        "NUMBA_CACHE_DIR": str(folder / "kernels"),  # else they are kept beside their source
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", CODE, "report", "--sample"],
        cwd=empty,
        env=environment,
        check=True,
        timeout=LIMIT_S,
        stdout=subprocess.DEVNULL,
    )
    took_s = time.monotonic() - began_s
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (empty / "report.html").stat().st_size > 100_000
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(took_s, 1), "cpu_s": round(cpu_s, 1)}


if __name__ == "__main__":
    raise SystemExit(main())
