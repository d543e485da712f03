"""kill -9 at random moments of compactions: every decision stays in the record, once.

``KVOTA_KILLS=20`` tries so many.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.record.record_files import LATER_US, ROWS, in_order, put_record, rows_of

from kvota.record.compact import compact

PROCESS = Path(__file__).with_name("compacting_process.py")
KILLS = int(os.environ.get("KVOTA_KILLS", "4"))


@pytest.mark.timeout(20 * KILLS)
def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    rng = random.Random(14)
    expected: list[tuple[object, ...]] = []
    folder, undisturbed = tmp_path / "record", tmp_path / "undisturbed"
    died = 0
    for number in range(KILLS):
        rows = [
            (row[0] + number * 700_000_000, *row[1:3], f"{row[3]}-{number}", *row[4:])
            for row in ROWS
        ]
        expected += rows
        for place in (folder, undisturbed):
            put_record(place, rows, each=20)
        command = [sys.executable, str(PROCESS), str(folder), str(LATER_US)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.random() * 0.15)
            process.kill()
        died += process.returncode != 0

        assert rows_of(folder) == in_order(expected)

    for place in (folder, undisturbed):
        compact(place, now_us=LATER_US)
    assert died > 0
    assert rows_of(folder) == rows_of(undisturbed) == in_order(expected)
    assert len(list(folder.glob("*.parquet"))) == len(list(undisturbed.glob("*.parquet")))
