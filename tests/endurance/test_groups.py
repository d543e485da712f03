"""Members of consumer groups skip nothing when the gateway goes and comes."""

from pathlib import Path

from tests.endurance.groups import Group, Restarts, run_groups

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PLAN = Restarts(
    groups=[
        Group("librdkafka", "cooperative", 2),
        Group("librdkafka", "consumer", 2),
        Group("java", "consumer", 2),
        Group("aiokafka", "classic", 2),
    ],
    records=96,
    records_per_s=12.0,
    restarts=2,
    limit=10_000,
)


def test_every_record_is_seen_by_each_group(kafka: LocalKafka, tmp_path: Path) -> None:
    found = run_groups(kafka, tmp_path, Algorithm.SAMPLED_RATE, PLAN)

    assert found.missed == [], found.figures
