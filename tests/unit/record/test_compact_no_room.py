"""A disk that is full, or may only be read, while the files of a record are merged: all of it stays, and the next run ends it."""

import subprocess
from pathlib import Path

import pytest
from tests.integration.small_disks import small_disks, taken_by_others
from tests.unit.record.record_files import LATER_US, ROWS, in_order, put_record, rows_of

from kvota.model.errors import UnreachableError
from kvota.record.compact import compact

DISK_BYTES = 4 * 1024**2


def test_on_a_full_disk_the_record_stays_and_is_merged_when_there_is_room(tmp_path: Path) -> None:
    with small_disks(tmp_path, 1, DISK_BYTES) as (disk,):
        folder = put_record(disk / "record")
        with taken_by_others(disk, 0):
            with pytest.raises(UnreachableError, match=r"No space left on device\. Every decision"):
                compact(folder, now_us=LATER_US)
            assert rows_of(folder) == in_order(ROWS)
            assert list(folder.glob("*.tmp")) == []

        assert compact(folder, now_us=LATER_US).steps
        assert rows_of(folder) == in_order(ROWS)


def test_on_a_disk_that_may_only_be_read_the_record_stays(tmp_path: Path) -> None:
    with small_disks(tmp_path, 1, DISK_BYTES) as (disk,):
        folder = put_record(disk / "record")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        with pytest.raises(UnreachableError, match=r"Read-only file system\. Every decision"):
            compact(folder, now_us=LATER_US)

        assert rows_of(folder) == in_order(ROWS)
