"""What Kafka 4.3.1 answered once, kept in tests/golden/engine: the same check without Java.

Made anew by ``.venv/bin/python -m tests.differential.record_golden``.
"""

import json

import pytest
from tests.differential.comparing import first_difference
from tests.differential.operations import GENERATORS
from tests.differential.record_golden import GOLDEN


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_engine_answers_as_kafka_did(name: str) -> None:
    path = GOLDEN / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers = ["\t".join(row["answer"]) for row in rows]

    difference = first_difference(
        name, [row["operation"] for row in rows], answers, where=str(path.name)
    )

    assert len(rows) >= 200
    assert difference is None, difference
