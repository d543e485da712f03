"""The pipeline reads the tags of any callback: any keys, in their text's order."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WriteEvents

from kvota.app.cli.main import main
from kvota.callbacks.grouped import GROUP_TAG
from kvota.model.tags import tags_text
from kvota.pipeline import chunks_of_table, read_events, replay
from kvota.record.compact import compact
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


@pytest.fixture(params=["raw", "merged"])
def of_groups(
    request: pytest.FixtureRequest, recorded_rows: list[EventRow], write_events: WriteEvents
) -> Path:
    """The same traffic, charged on counters of groups: each counter's tags are a group's."""
    names = {tags: f"g{number}" for number, tags in enumerate({row[TAGS] for row in recorded_rows})}
    rows = [
        (*row[:TAGS], tags_text({GROUP_TAG: names[row[TAGS]]}), *row[TAGS + 1 :])
        for row in recorded_rows[:6_000]
    ]
    folder = write_events(rows, name="groups", files=3)
    if request.param == "merged":
        assert compact(folder, now_us=0, every_hour=True).steps
    return folder


@pytest.mark.usefixtures("spark")
def test_the_law_factors_and_usage_know_groups(
    of_groups: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = ["--events", str(of_groups), "--output", "json", "--top", "10000"]

    assert main(["replay", "--law", *part[:-2]]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert main(["replay", "--factors", "0.5,2", *part]) == 0
    replayed = json.loads(capsys.readouterr().out)["rows"]
    assert main(["usage", *part]) == 0
    used = json.loads(capsys.readouterr().out)["rows"]

    assert judged["holds"]
    assert judged["rows"] == 6_000
    quotas = {
        (row["counter_id"], row["candidate"]): row["quota_per_s"]
        for row in replayed
        if row["quota_per_s"] is not None  # a counter that never had a limit has no half of it
    }
    halves = {counter: quota for (counter, candidate), quota in quotas.items() if not candidate}
    assert len(halves) > 10
    assert {counter: quotas[counter, 1] / 4 for counter in halves} == halves
    assert {row["tags"].partition("=")[0] for row in replayed} == {GROUP_TAG}
    assert {(row["user"], row["client_id"]) for row in replayed} == {(None, None)}
    assert any(row["limit_is_shared"] for row in used)
    assert {(row["limit_per_s"], row["limit_ratio"]) for row in used} == {(None, None)}
