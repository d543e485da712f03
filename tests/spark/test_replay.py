"""What other quotas would have done."""

from collections.abc import Iterable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)

from kvota.engine import QuotaWindow
from kvota.model.errors import UsageError
from kvota.model.quota_type import Algorithm
from kvota.pipeline import Counted, Factors, OfCounters, chunks_of_table
from kvota.pipeline import replay as replay_chunks
from kvota.pipeline.chunk_schema import By
from kvota.pipeline.replay_tables import Candidates, Mode
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def replay(
    events: DataFrame,
    candidates: Candidates,
    *,
    by: By = "counter",
    counted: Counted | None = None,
    mode: Mode = "open",
    quota_types: Iterable[str] | None = None,
) -> DataFrame:
    chunks = chunks_of_table(events, by, quota_types=quota_types)
    return replay_chunks(chunks, candidates, counted=counted or Counted(), mode=mode)


def test_the_limits_in_force_throttle_what_was_throttled(recorded: DataFrame) -> None:
    # What is charged while no quota of its type exists moves no counter, which only the law knows.
    run = recorded.where((F.col("run_id") == "run-1") & (F.col("seq") < 7_000))
    observed = run.groupBy("quota_type").agg(
        F.count_if(F.col("outcome") != "admitted").alias("over"),
        F.count_if(F.col("outcome") == "rejected").alias("rejected"),
    )

    found = (
        replay(run, Factors([1.0]))
        .groupBy("quota_type")
        .agg(F.sum("over").alias("over"), F.sum("rejected").alias("rejected"))
    )

    # A throttle below half a millisecond is recorded as none, and the grid keeps it.
    recorded_over = {row["quota_type"]: row for row in observed.collect()}
    replayed = found.collect()
    assert {row["quota_type"] for row in replayed} == set(recorded_over)
    for row in replayed:
        assert row["rejected"] == recorded_over[row["quota_type"]]["rejected"]
        assert row["over"] == pytest.approx(recorded_over[row["quota_type"]]["over"], abs=10)


def test_a_counter_has_a_row_per_candidate_with_its_names(recorded: DataFrame) -> None:
    rows = replay(recorded, [1e4, 1e5, 1e6]).collect()

    bob = [row for row in rows if row["user"] == "bob" and row["client_id"] == "app-1"]
    assert {row["quota_type"] for row in bob} == {"FETCH", "CONTROLLER_MUTATION"}
    of_fetch = {row["algorithm"] for row in bob if row["quota_type"] == "FETCH"}
    assert of_fetch == {"sampled_rate", "token_bucket"}  # that of the counter's last row
    assert {row["algorithm"] for row in bob if row["node_id"] == -1} == {"token_bucket"}
    assert sorted({(row["candidate"], row["quota"]) for row in rows}) == [
        (0, 1e4),
        (1, 1e5),
        (2, 1e6),
    ]
    assert len(rows) == 3 * len({row["counter_id"] for row in rows})
    assert {row["mode"] for row in rows} == {"open"}


def test_counters_made_anew_merge_gateways_and_runs_in_the_order_of_time(
    recorded: DataFrame, recorded_rows: list[EventRow]
) -> None:
    rows = replay(recorded, [1e5], by="user").where("quota_type = 'FETCH'").collect()

    users = {(row["user"], row["node_id"]) for row in rows}
    assert len(rows) == len(users) == 4 * 3
    assert {(row["gateway"], row["run_id"], row["client_id"]) for row in rows} == {("", "", None)}
    assert sum(row["events"] for row in rows) == sum(
        row[5] == "FETCH" and row[17] != "rejected" for row in recorded_rows
    )
    assert {row["tags"] for row in rows if row["user"] == "team a"} == {"client-id=,user=team%20a"}


def test_no_result_depends_on_partitions_or_batches(
    spark: SparkSession, recorded: DataFrame
) -> None:
    def results() -> list[tuple[object, ...]]:
        rows = replay(recorded, [2e4, 2e5], by="client", mode="backlog").collect()
        return sorted(map(tuple, rows), key=repr)

    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    batch = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    one = results()
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "17")
    try:
        many = results()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)

    assert many == one


def test_waiting_clients_are_delayed_and_thinking_ones_are_throttled_less(
    recorded: DataFrame,
) -> None:
    some = recorded.where("quota_type = 'PRODUCE' and node_id = 0 and user = 'bob'")

    over = {
        mode: replay(some, [5e4], by="user", mode=mode).collect()[0]
        for mode in ("open", "backlog", "think")
    }

    assert over["open"]["delay_ms_max"] == 0.0
    assert over["backlog"]["delay_ms_max"] > 0.0
    assert over["think"]["over"] < over["backlog"]["over"] <= over["open"]["over"]


def test_algorithm_and_window_can_be_others_than_recorded(recorded: DataFrame) -> None:
    some = recorded.where("quota_type = 'PRODUCE' and user = 'bob'")

    ways = [
        Counted(algorithm=Algorithm.SAMPLED_RATE, window=QuotaWindow(30, 500)),
        Counted(algorithm=Algorithm.SAMPLED_RATE),
        Counted(algorithm=Algorithm.TOKEN_BUCKET, burst_ms=3_000),
        Counted(algorithm=Algorithm.TOKEN_BUCKET),
    ]
    rows = [replay(some, [1e5], by="user", counted=way).collect()[0] for way in ways]

    assert [(row["algorithm"], row["samples"], row["sample_ms"]) for row in rows] == [
        ("sampled_rate", 30, 500),
        ("sampled_rate", 11, 1_000),  # Kafka's: the last row was counted by the other algorithm
        ("token_bucket", 1, 3_000),
        ("token_bucket", 1, 300),  # as last recorded
    ]
    assert len({row["over"] for row in rows}) > 1


def test_mutations_have_one_algorithm_only(recorded: DataFrame) -> None:
    some = recorded.where("quota_type = 'CONTROLLER_MUTATION' and user = 'bob'")

    by_rate = replay(some, [5.0], counted=Counted(algorithm=Algorithm.SAMPLED_RATE)).collect()

    assert {row["algorithm"] for row in by_rate} == {"token_bucket"}
    assert by_rate == replay(some, [5.0]).collect()


def test_a_produce_that_waited_is_demanded_once_and_one_only_watched_is_demand(
    recorded: DataFrame, recorded_rows: list[EventRow]
) -> None:
    waits = [row for row in recorded_rows if row[5] == "PRODUCE" and row[17] == "rejected"]

    rows = replay(recorded, [1e5], by="user", quota_types=["PRODUCE"]).collect()

    demanded = [
        row for row in recorded_rows if row[5] == "PRODUCE" and row[12] >= 0 and row not in waits
    ]
    only_watched = [row for row in waits if not row[18]]
    assert len(waits) > len(only_watched) > 0
    assert sum(row["events"] for row in rows) == len(demanded) + len(only_watched)


def test_beyond_the_debt_allowed_a_produce_is_rejected(recorded: DataFrame) -> None:
    some = recorded.where("quota_type = 'PRODUCE' and user = 'bob' and node_id = 0")

    def rejected(debt_max_ms: int, mode: str) -> tuple[int, float]:
        how = Counted(algorithm=Algorithm.TOKEN_BUCKET, debt_max_ms=debt_max_ms)
        (row,) = replay(some, [2e4], by="user", counted=how, mode=mode).collect()
        return row["rejected"], row["worst_ms"]

    few, worst_ms = rejected(0, "open")
    assert few > rejected(600_000, "open")[0] > 0
    assert worst_ms < rejected(600_000, "open")[1]
    with pytest.raises(UsageError, match="burst_ms: 0 is below 1"):
        Counted(burst_ms=0)


def test_each_counter_can_have_candidates_of_its_own(recorded: DataFrame) -> None:
    first, second, *_ = replay(recorded, [1.0]).orderBy("counter_id").collect()

    rows = replay(
        recorded, OfCounters({first["counter_id"]: [10.0, 20.0], second["counter_id"]: [30.0]})
    ).collect()

    assert sorted((row["counter_id"], row["quota"]) for row in rows) == [
        (first["counter_id"], 10.0),
        (first["counter_id"], 20.0),
        (second["counter_id"], 30.0),
    ]


def test_candidates_that_kafka_would_refuse_are_refused(recorded: DataFrame) -> None:
    with pytest.raises(UsageError, match="candidate 0: a quota has to be above 0"):
        replay(recorded, [1e6, 0])
    with pytest.raises(UsageError, match="no candidate quota"):
        replay(recorded, [])
