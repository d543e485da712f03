"""Workers count rows where the driver sees it while they work."""

import os
from pathlib import Path

from kvota.pipeline.rows_done import count, rows_done


def test_the_rows_of_all_workers_are_added_up(tmp_path: Path) -> None:
    for rows in (5, 7):
        worker = os.fork()
        if worker == 0:
            count(str(tmp_path), "read", rows)
            count(str(tmp_path), "read", 100)
            count(str(tmp_path), "worked", rows)
            os._exit(0)
        os.waitpid(worker, 0)

    assert rows_done(str(tmp_path)) == {"read": 212, "worked": 12}


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    count(str(tmp_path / "gone"), "read", 5)
    count("", "read", 5)

    assert rows_done(str(tmp_path / "gone")) == {"read": 0, "worked": 0}
