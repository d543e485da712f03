"""A full disk stops the record for a while, and nothing else; what is lost is counted to the row."""

from pathlib import Path

from tests.endurance.disk_full import DiskFull, Place, run_disk_full

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PLAN = DiskFull(full_s=4.0, room_s=1.0)


def test_rows_that_are_lost_are_counted_and_said_and_traffic_goes_on(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    found = run_disk_full(kafka, tmp_path, Algorithm.SAMPLED_RATE, Place.FILE_SIZE, PLAN)

    assert found.missed == [], found.figures
