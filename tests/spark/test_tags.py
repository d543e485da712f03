"""The pipeline reads the tags of any callback: any keys, in their text's order."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WriteEvents

from kvota.model.tags import tags_text
from kvota.pipeline import chunks_of_table, read_events, replay
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TAGS = 9
ODD = "a=b, c%"
TOLD = [
    tags_text({"team": "größe 1", "env": "x"}),
    tags_text({"env": "y", ODD: ODD}),
    tags_text({"user": "u", "client-id": "", "team": ""}),
    "",
]


@pytest.fixture
def of_teams(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> DataFrame:
    rows = [
        (*row[:TAGS], TOLD[number % len(TOLD)], *row[TAGS + 1 :])
        for number, row in enumerate(recorded_rows[:2_000])
    ]
    return read_events(spark, write_events(rows))


def test_counters_of_other_tags_have_neither_user_nor_client_id(of_teams: DataFrame) -> None:
    rows = replay(chunks_of_table(of_teams), [1e6]).collect()

    found = {(row["tags"], row["user"], row["client_id"]) for row in rows}
    assert {names[0] for names in found} == set(TOLD)
    assert {names[1:] for names in found if "user" not in names[0]} == {(None, None)}
    assert ("client-id=,team=,user=u", "u", None) in found
