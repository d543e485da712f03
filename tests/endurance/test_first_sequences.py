"""A first batch that is refused while the next ones pass: the gateway's own refusals let none pass, and the tap that shows it can be believed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.endurance.first_sequences import (
    PLAIN,
    QUOTA,
    Beginnings,
    run_beginnings,
    tapped_kafka,
)

from kvota.localkafka import LocalKafka

PRODUCERS, RECORDS = 2, 5
# A second batch always comes, and so does the end of the refusals: on a busy machine after a while.
PLAN = Beginnings(
    library="librdkafka",
    where=PLAIN,
    in_flight=5,
    producers=PRODUCERS,
    records=RECORDS,
    patience_s=60,
    overtaken_s=10.0,
)


@pytest.fixture(scope="module")
def tapped() -> Iterator[LocalKafka]:
    with tapped_kafka() as kafka:
        yield kafka


def test_behind_a_refusal_of_the_gateway_a_broker_gets_the_first_sequence_first(
    tapped: LocalKafka, tmp_path: Path
) -> None:
    plan = replace(PLAN, where=QUOTA)

    found = run_beginnings(tapped, tmp_path / "quota", plan)

    assert found.delivered == found.in_the_log == PRODUCERS * RECORDS
    assert (found.lost, found.twice) == (0, 0)
    assert found.began_with == {0: PRODUCERS}


def test_a_plain_broker_takes_what_comes_behind_a_batch_that_was_refused(
    tapped: LocalKafka, tmp_path: Path
) -> None:
    plan = replace(PLAN, where=PLAIN)

    found = run_beginnings(tapped, tmp_path / "plain", plan)

    assert found.overtaken == PRODUCERS
    assert found.second == {0: PRODUCERS}
    # librdkafka holds for delivered what the broker has never had.
    assert found.delivered == PRODUCERS * RECORDS
    assert found.lost == PRODUCERS
