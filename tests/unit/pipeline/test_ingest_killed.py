"""``kill -9`` at any moment while rows are taken: each is in the record once.

``KVOTA_KILLS=50`` kills so often.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.pipeline import ingesting_process
from tests.unit.record.record_files import put
from tests.unit.record.usage_oracle import expected, kept

from kvota.record.check import check
from kvota.record.found_events import find_events
from kvota.record.kept_usage import usage_minutes
from kvota.record.usage_sums import LEVELS
from kvota.testing.recorded_traffic import RecordedTraffic

KILLS = int(os.environ.get("KVOTA_KILLS", "5"))
EACH = 300


def test_each_row_is_taken_once_after_kills_at_random_moments(tmp_path: Path) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    rows = list(RecordedTraffic(5, run_id="run", enforced=True).rows(EACH * KILLS))
    rows = rows[: EACH * KILLS]  # the last request may have two
    rng = random.Random(KILLS)
    for number in range(KILLS):
        of_round = rows[EACH * number : EACH * (number + 1)]
        put(folder, of_round[:20])
        command = [sys.executable, ingesting_process.__file__, str(folder), str(into)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "batch\n"
        for begin in range(20, EACH, 20):
            put(folder, of_round[begin : begin + 20])
            if begin == EACH // 2:
                time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.communicate()

    ingesting_process.take(folder, into, ends=True)

    checked = check(find_events([into]))
    assert checked.is_sound, checked
    assert checked.rows == len(rows)
    assert list((into / "_ingest").glob("*.ready")) == []
    # What they come to is counted once as well, in time or late.
    for level in LEVELS:
        assert kept(usage_minutes(into, level)) == expected(rows, level)
