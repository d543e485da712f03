"""Replaying the record with the recorded quotas gives the recorded throttle times, row by row."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)
from tests.spark.conftest import of_version_1

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.pipeline import LAW_COLUMNS, LawResult, chunks_of_table, read_events, replay_rows
from kvota.pipeline import law as law_of_chunks
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

QUOTA_TYPES = {"PRODUCE", "FETCH", "CONTROLLER_MUTATION"}
SEQ = 1
RUN_ID, QUOTA_TYPE, ALGORITHM = 3, 5, 16

WriteEvents = Callable[..., Path]


def law(events: DataFrame) -> LawResult:
    return law_of_chunks(chunks_of_table(events, further=LAW_COLUMNS))


def test_every_row_of_a_recorded_run_is_replayed_equal(
    recorded: DataFrame, recorded_rows: list[EventRow]
) -> None:
    result = law(recorded)

    assert result.differences == ()
    assert result.holds
    assert result.rows == len(recorded_rows)
    assert (result.unjudged, result.missing, result.repeated, result.not_replayed) == (0, 0, 0, 0)
    assert {of_type.quota_type for of_type in result.of_types} == QUOTA_TYPES
    assert min(of_type.throttled for of_type in result.of_types) >= 1000
    assert str(result) == f"{result.rows:,} rows, {result.throttled:,} throttled, all equal"


def test_a_record_begun_in_version_1_is_replayed_with_what_followed(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    run = [row for row in recorded_rows if row[RUN_ID] == "run-1"]
    begin = next(
        place
        for place, row in enumerate(run)
        if row[ALGORITHM] == "token_bucket" and row[QUOTA_TYPE] != "CONTROLLER_MUTATION"
    )
    old = of_version_1(write_events(run[:begin], name="old"))
    new = write_events(run[begin:6_000], name="new")

    result = law(read_events(spark, old, new))

    assert result.holds
    assert (result.rows, result.unjudged, result.missing) == (6_000, 0, 0)
    assert begin > 1_000


@pytest.mark.parametrize("enforced", [True, False], ids=["enforced", "shadow"])
def test_bandwidth_is_replayed_under_both_algorithms(recorded: DataFrame, enforced: bool) -> None:
    throttled = {
        (row["quota_type"], row["algorithm"], row["outcome"]): row["count"]
        for row in recorded.where((F.col("enforced") == enforced) & (F.col("throttle_ms") > 0))
        .groupBy("quota_type", "algorithm", "outcome")
        .count()
        .collect()
    }

    for kind in ("PRODUCE", "FETCH"):
        for algorithm in ("sampled_rate", "token_bucket"):
            assert throttled[kind, algorithm, "throttled"] >= 50
    assert throttled["PRODUCE", "token_bucket", "rejected"] >= 50
    assert ("PRODUCE", "sampled_rate", "rejected") not in throttled
    assert recorded.where("value < 0 and quota_type = 'PRODUCE'").count() >= 20


def test_a_row_of_an_algorithm_nobody_knows_is_not_replayed(recorded: DataFrame) -> None:
    some = recorded.where((F.col("run_id") == "run-1") & (F.col("seq") < 900))
    odd = some.withColumn(
        "algorithm",
        F.when(F.col("seq") < 3, F.lit("leaky_cup")).otherwise(F.col("algorithm")),
    )

    result = law(odd)

    assert (result.not_replayed, result.rows) == (3, 897)


def test_one_limit_a_thousandth_off_is_found(recorded: DataFrame) -> None:
    is_bent = (F.col("quota_type") == "FETCH") & (F.col("node_id") == 1) & (F.col("user") == "bob")
    bent = recorded.withColumn(
        "limit", F.when(is_bent, F.col("limit") * 1.001).otherwise(F.col("limit"))
    )

    result = law(bent)

    assert not result.holds
    assert {of_type.quota_type for of_type in result.of_types if of_type.differing} == {"FETCH"}
    assert "differ" in str(result)
    first = result.differences[0]
    assert (first.quota_type, first.node_id) == ("FETCH", 1)
    assert first.throttle_ms != first.replayed_throttle_ms
    assert str(first.replayed_throttle_ms) in str(first)


def test_a_blocked_charge_obeys_the_law_with_its_throttle_and_with_no_other(
    recorded: DataFrame,
) -> None:
    is_blocked = (F.col("limit") < 1e-6) & (F.col("value") >= 0)
    kafkas = recorded.withColumn(
        "throttle_ms", F.when(is_blocked, F.lit(-1)).otherwise(F.col("throttle_ms"))
    )
    count = recorded.where(is_blocked & (F.col("throttle_ms") == BLOCKED_THROTTLE_MS)).count()

    result = law(kafkas)

    assert count >= 100
    assert recorded.where(is_blocked).count() == count
    assert result.differing == count
    assert {row.replayed_throttle_ms for row in result.differences} == {BLOCKED_THROTTLE_MS}


def test_a_record_without_its_beginning_is_judged_only_where_that_is_possible(
    recorded: DataFrame,
) -> None:
    # (Not right behind a step back of the clock: what it left in the samples lives longer.)
    result = law(recorded.where((F.col("run_id") == "run-1") & (F.col("seq") >= 9_200)))

    assert result.holds
    assert result.unjudged > 0
    assert result.rows > result.unjudged
    assert "not judged" in str(result)


def test_a_record_of_which_nothing_can_be_judged_proves_nothing(recorded: DataFrame) -> None:
    late = recorded.where(
        "run_id = 'run-1' and quota_type = 'CONTROLLER_MUTATION' and seq between 9000 and 9040"
    )

    result = law(late)

    assert result.rows == result.unjudged > 0
    assert not result.holds
    assert "nothing to judge" in str(result)


def test_lost_and_repeated_rows_are_counted(recorded: DataFrame) -> None:
    first = recorded.where((F.col("run_id") == "run-1") & (F.col("seq") < 900))
    second = recorded.where((F.col("run_id") == "run-2") & (F.col("seq") < 900))
    lost = first.where(~F.col("seq").isin(10, 11, 12))
    repeated = second.unionAll(second.where(F.col("seq") < 5))

    result = law(lost.unionAll(repeated))

    assert (result.missing, result.repeated) == (3, 5)


def test_no_row_depends_on_partitions_batches_or_files(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    rows = recorded_rows[:4_000]
    shuffled = sorted(rows, key=lambda row: (hash(row[5]), row[SEQ] * 7919 % 4001))

    def replayed(folder: Path, *, partitions: int, batch: int) -> list[tuple[object, ...]]:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch))
        return sorted(
            map(
                tuple,
                replay_rows(
                    chunks_of_table(read_events(spark, folder), further=LAW_COLUMNS)
                ).collect(),
            )
        )

    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    batch = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    try:
        one = replayed(write_events(rows, name="one"), partitions=1, batch=100_000)
        many = replayed(write_events(shuffled, files=5, name="many"), partitions=5, batch=13)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)

    assert many == one
    assert len(one) == len(rows)


def test_rows_of_other_quota_types_are_counted_and_not_judged(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    rows = [
        (*row[:5], "UNHEARD_OF", *row[6:]) if row[SEQ] < 20 else row for row in recorded_rows[:400]
    ]

    result = law(read_events(spark, write_events(rows)))

    assert result.not_replayed == 20
    assert result.rows == 380


def test_an_empty_record_proves_nothing(recorded: DataFrame) -> None:
    result = law(recorded.where(F.col("seq") < 0))

    assert not result.holds
    assert (result.rows, result.differing) == (0, 0)
