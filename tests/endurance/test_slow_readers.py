"""Who reads slowly takes little memory, and nobody else's time."""

from pathlib import Path

from tests.endurance.slow_readers import BESIDE_ANSWERS, SlowReaders, run_slow_readers

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

# Kept whole their answers would be 240 MB.
PLAN = SlowReaders(
    readers=30, answer_bytes=8_000_000, bytes_per_s=50_000, seconds=2.0, memory_mib_max=180.0
)


def test_answers_that_are_read_slowly_are_whole_and_are_not_kept(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    found = run_slow_readers(kafka, tmp_path, Algorithm.TOKEN_BUCKET, PLAN)

    assert found.missed == [], found.figures
    others = found.figures["others, beside them"]
    assert isinstance(others, dict)
    assert others["answers"] >= BESIDE_ANSWERS
