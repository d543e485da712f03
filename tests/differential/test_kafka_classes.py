"""Kafka 4.3.1's own classes, live in a JVM, against the engine: the same random operations."""

import pytest
from tests.differential.comparing import ask_kafka, first_difference
from tests.differential.operations import GENERATORS

# Two seeds: at least 20,000 compared answers per class, as only some operations have one to compare.
_OPERATIONS = 30_000


@pytest.mark.timeout(180)  # the first run fetches Kafka's jars and compiles the Java side
@pytest.mark.parametrize("seed", [1, 599])
@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_kafkas_class_gives_the_same_answers(name: str, seed: int) -> None:
    operations = GENERATORS[name](seed, _OPERATIONS)

    answers = ask_kafka(name, operations)

    difference = first_difference(name, operations, answers, where=f"seed {seed}")
    assert difference is None, difference
