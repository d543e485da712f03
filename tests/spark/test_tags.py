"""The pipeline reads the tags of any callback: any keys, in their text's order."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WriteEvents

from kvota.engine import QuotaType
from kvota.model.tags import tags_text
from kvota.pipeline.charges import charges, counters, tag_value
from kvota.pipeline.events import read_events
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TAGS = 9
ODD = "a=b, c%"


@pytest.fixture
def of_teams(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> DataFrame:
    told = [
        tags_text({"team": "größe 1", "env": "x"}),
        tags_text({"env": "y", ODD: ODD}),
        tags_text({"user": "u", "client-id": "", "team": ""}),
        "",
    ]
    rows = [
        (*row[:TAGS], told[number % len(told)], *row[TAGS + 1 :])
        for number, row in enumerate(recorded_rows[:400])
    ]
    return read_events(spark, write_events(rows))


def test_any_key_can_be_asked_for_and_one_that_is_not_there_is_null(of_teams: DataFrame) -> None:
    columns = [tag_value(key) for key in ("team", "env", ODD, "user", "client-id", "nobody")]

    found = {tuple(row) for row in of_teams.select(*columns).collect()}

    assert found == {
        ("größe 1", "x", None, None, None, None),
        (None, "y", ODD, None, None, None),
        ("", None, None, "u", "", None),
        (None, None, None, None, None, None),
    }


def test_counters_of_other_tags_have_neither_user_nor_client_id(of_teams: DataFrame) -> None:
    found = {(row["tags"], row["user"], row["client_id"]) for row in counters(of_teams).collect()}

    assert {names[1:] for names in found if "user" not in names[0]} == {(None, None)}
    assert ("client-id=,team=,user=u", "u", None) in found


def test_every_row_knows_the_floor_of_its_type(of_teams: DataFrame) -> None:
    rows = charges(of_teams).select("bucket", "floor").distinct().collect()

    assert {(row["bucket"], row["floor"]) for row in rows} == {(True, 1e-6), (False, 1.0)}
    assert {QuotaType.PRODUCE.value, QuotaType.CONTROLLER_MUTATION.value} <= {
        row["quota_type"] for row in of_teams.select("quota_type").distinct().collect()
    }
