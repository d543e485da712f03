"""Nothing is lost, and nothing is there twice, when brokers and gateways are killed."""

from pathlib import Path

from tests.endurance.kills import Kills, run_kills

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PLAN = Kills(
    of_broker=1,
    of_gateway=1,
    between_s=1.0,
    producers=3,
    records_per_s=1_000,
    limit=12_000,
    with_console=False,
)


def test_records_and_transactions_are_whole_and_there_once(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    found = run_kills(kafka, tmp_path, Algorithm.TOKEN_BUCKET, PLAN)

    assert found.missed == [], found.figures
    # Their quota held clients back, in line, too.
    rows = found.figures["rows"]
    assert {"PRODUCE throttled", "PRODUCE rejected"} <= rows.keys(), rows
