"""What is in force changes again and again: nothing is lost, nothing is there twice, and no client is told an error."""

from pathlib import Path

from tests.endurance.reloads import Reloads, run_reloads

from kvota.localkafka import LocalKafka

PLAN = Reloads(
    count=10,
    between_s=0.3,
    producers=2,
    records_per_s=500,
    limits=(16_000, 40_000),
    seed=8,
    with_law=False,
)


def test_every_record_is_written_once_and_read_once(kafka: LocalKafka, tmp_path: Path) -> None:
    found = run_reloads(kafka, tmp_path, PLAN)

    assert found.missed == [], found.figures
