"""Writes Kafka's answers to tests/golden/engine, for machines without Java.

Run it from the repository's root: ``.venv/bin/python -m tests.differential.record_golden``
"""

import json
from pathlib import Path

from tests.differential.comparing import ask_kafka
from tests.differential.operations import GENERATORS, Operation

GOLDEN = Path(__file__).parents[1] / "golden" / "engine"
_ROWS = 200
_ROWS_OF_ONE_SEED = 50


def golden_operations(name: str) -> list[Operation]:
    """A few operations of several seeds each, so that windows and limits vary."""
    operations: list[Operation] = []
    seed = 0
    while len(operations) < _ROWS:
        operations += GENERATORS[name](seed, 1)[:_ROWS_OF_ONE_SEED]
        seed += 1
    return operations


def main() -> None:
    """One file per class, one line per operation: its words and Kafka's answer."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in sorted(GENERATORS):
        operations = golden_operations(name)
        rows = zip(operations, ask_kafka(name, operations), strict=True)
        lines = [
            json.dumps({"operation": operation, "answer": answer.split("\t")}, ensure_ascii=False)
            for operation, answer in rows
        ]
        (GOLDEN / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
