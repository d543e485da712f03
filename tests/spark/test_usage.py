"""Usage against sums made by hand from the same rows."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.errors import UsageError
from kvota.pipeline import USAGE_COLUMNS, chunks_of_table, read_events
from kvota.pipeline import usage as usage_of_chunks
from kvota.pipeline import usage_total as total_of_chunks
from kvota.pipeline.chunk_schema import By
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TS_US, NODE_ID, QUOTA_TYPE, USER, CLIENT_ID, VALUE = 0, 4, 5, 7, 8, 12
OUTCOME, ENFORCED, THROTTLE_MS = 17, 18, 19

WriteEvents = Callable[..., Path]


def usage(events: DataFrame, by: By = "user", *, window_s: int = 60) -> DataFrame:
    return usage_of_chunks(chunks_of_table(events, by, further=USAGE_COLUMNS), window_s=window_s)


def usage_total(events: DataFrame, by: By = "user") -> DataFrame:
    return total_of_chunks(chunks_of_table(events, by, further=USAGE_COLUMNS))


def used(row: EventRow) -> float:
    return 0.0 if row[ENFORCED] and row[OUTCOME] == "rejected" else row[VALUE]


def event(second: float, value: float, **changes: object) -> EventRow:
    columns = {
        "ts_us": int((1_900_000_000 + second) * 1_000_000),
        "seq": int(second * 10),
        "gateway": "g",
        "run_id": "r",
        "node_id": 0,
        "quota_type": "PRODUCE",
        "connection": 1,
        "user": "alice",
        "client_id": "app",
        "tags": "client-id=,user=alice",
        "api_key": 0,
        "api_version": 9,
        "value": value,
        "limit": 100.0,
        "samples": 11,
        "sample_ms": 1000,
        "algorithm": "sampled_rate",
        "outcome": "admitted",
        "enforced": True,
        "throttle_ms": 0,
        "upstream_throttle_ms": 0,
        "owed_ms": None,
        "producer_id": None,
    }
    return tuple((columns | changes).values())


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("user", lambda row: (row[USER], None)),
        ("client", lambda row: (None, row[CLIENT_ID] or None)),
        ("user-client", lambda row: (row[USER], row[CLIENT_ID] or None)),
    ],
    ids=["user", "client", "user-client"],
)
def test_totals_are_the_sums_of_the_rows(
    recorded: DataFrame,
    recorded_rows: list[EventRow],
    by: By,
    key: Callable[[EventRow], tuple[object, object]],
) -> None:
    expected: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0, 0, 0, 0])
    for row in recorded_rows:
        sums = expected[(row[QUOTA_TYPE], row[NODE_ID], *key(row))]
        sums[0] += used(row)
        is_rejected = row[OUTCOME] == "rejected"
        fetch_waited = is_rejected and row[QUOTA_TYPE] == "FETCH" and row[ENFORCED]
        produce_waited = is_rejected and row[QUOTA_TYPE] == "PRODUCE" and row[ENFORCED]
        waited = fetch_waited or produce_waited
        sums[1] += row[VALUE] >= 0 and not waited
        sums[2] += row[OUTCOME] == "throttled" or fetch_waited
        sums[3] += is_rejected and not waited
        sums[4] += 0 if produce_waited else max(0, row[THROTTLE_MS])

    found = {
        (row["quota_type"], row["node_id"], row["user"], row["client_id"]): [
            row["value_sum"],
            row["events"],
            row["throttled"],
            row["rejected"],
            row["throttle_ms_sum"],
        ]
        for row in usage_total(recorded, by).collect()
    }

    assert found == dict(expected)


def test_a_window_has_its_rates_per_second(spark: SparkSession, write_events: WriteEvents) -> None:
    seconds = [(0, 100.0), (0.5, 20.0), (1, 60.0), (9, 60.0), (10, 300.0), (59, 1.0), (61, 5.0)]
    # 1,900,000,000 is 40 s into its minute.
    rows = [event(second + 20, value) for second, value in seconds]

    first, second = usage(read_events(spark, write_events(rows))).orderBy("window_start").collect()

    assert first["window_start"].timestamp() == 1_900_000_020
    assert (first["window_s"], first["events"], first["busy_s"]) == (60, 6, 5)
    assert (first["value_sum"], first["rate_mean"]) == (541.0, 541 / 60)
    assert (first["rate_p50"], first["rate_p95"], first["rate_p99"], first["rate_max"]) == (
        0,
        60,
        300,
        300,
    )
    assert first["rate_10s_max"] == pytest.approx((60 + 60 + 300) / 10)
    assert (second["value_sum"], second["rate_10s_max"]) == (5.0, 0.6)
    assert (first["user"], first["client_id"], first["level"]) == ("alice", None, "user")


def test_a_total_counts_quiet_seconds_of_the_whole_record(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    rows = [event(0, 50.0), event(99, 50.0), *(event(s, 10.0, user="bob") for s in range(40, 60))]

    alice, bob = usage_total(read_events(spark, write_events(rows))).orderBy("user").collect()

    assert (alice["window_s"], bob["window_s"]) == (100, 100)
    assert (alice["rate_mean"], bob["rate_mean"]) == (1.0, 2.0)
    assert (bob["rate_p50"], bob["rate_p95"], bob["busy_s"]) == (0.0, 10.0, 20)


def test_what_was_refused_used_nothing_unless_it_was_only_watched(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    rows = [
        event(0, 80.0, quota_type="CONTROLLER_MUTATION"),
        event(1, 70.0, quota_type="CONTROLLER_MUTATION", outcome="rejected", throttle_ms=500),
        event(
            2,
            90.0,
            user="bob",
            quota_type="CONTROLLER_MUTATION",
            outcome="rejected",
            throttle_ms=500,
            enforced=False,
        ),
        event(3, -30.0, quota_type="CONTROLLER_MUTATION"),
    ]

    alice, bob = usage_total(read_events(spark, write_events(rows))).orderBy("user").collect()

    assert (alice["value_sum"], alice["events"], alice["rejected"]) == (50.0, 2, 1)
    assert (alice["share_throttled"], alice["enforced"], alice["censored"]) == (0.5, True, True)
    assert (bob["value_sum"], bob["share_throttled"]) == (90.0, 1.0)
    assert (bob["enforced"], bob["censored"]) == (False, False)


def test_a_fetch_that_waited_for_room_is_a_throttled_decision_more(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    changes = {"quota_type": "FETCH", "outcome": "rejected", "throttle_ms": 500}
    rows = [
        event(0, 80.0, quota_type="FETCH"),
        event(1, 70.0, **changes),
        event(2, 70.0, quota_type="FETCH"),
    ]

    waits = [event(second, 70.0, user="bob", **changes) for second in (3, 4)]
    folder = write_events([*rows, *waits, event(5, 70.0, user="bob", quota_type="FETCH")])
    alice, bob = usage_total(read_events(spark, folder)).orderBy("user").collect()

    assert (alice["value_sum"], alice["events"], alice["rejected"]) == (150.0, 2, 0)
    assert (alice["throttled"], alice["decisions"], alice["censored"]) == (1, 3, True)
    assert (bob["events"], bob["throttled"], bob["decisions"]) == (1, 2, 3)
    assert (alice["share_throttled"], bob["share_throttled"]) == (1 / 3, 2 / 3)


def test_a_produce_that_waited_for_its_turn_counts_where_it_went_on(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    bucket = {"algorithm": "token_bucket", "samples": 1}
    waits = bucket | {"outcome": "rejected", "throttle_ms": 16_000}
    rows = [
        event(0, 80.0, **bucket),
        event(1, 70.0, **waits),
        event(2, 70.0, outcome="throttled", throttle_ms=15_700, **bucket),
        event(3, 70.0, user="bob", **waits),  # it gave up
        event(4, 60.0, user="carol", **waits | {"enforced": False}),  # nobody waits in shadow mode
    ]

    alice, bob, carol = (
        usage_total(read_events(spark, write_events(rows))).orderBy("user").collect()
    )

    assert (alice["value_sum"], alice["events"], alice["rejected"]) == (150.0, 2, 0)
    assert (alice["throttled"], alice["share_throttled"], alice["censored"]) == (1, 0.5, True)
    assert alice["throttle_ms_sum"] == 15_700
    assert (bob["value_sum"], bob["events"], bob["censored"]) == (0.0, 0, True)
    assert (carol["value_sum"], carol["events"], carol["rejected"]) == (60.0, 1, 1)
    assert (carol["share_throttled"], carol["censored"]) == (1.0, False)


def test_the_last_limit_is_that_of_the_latest_row(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    rows = [
        event(5, 1.0, limit=700.0),
        event(1, 1.0, limit=500.0),
        event(1, 1.0, user="b", limit=None),
    ]

    found = usage_total(read_events(spark, write_events(rows))).orderBy("user").collect()

    assert [row["limit_last"] for row in found] == [700.0, None]


def test_who_kept_a_limit_that_was_lowered_was_never_beyond_it(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    of_bob = {"user": "bob", "tags": "client-id=,user=bob"}
    of_client = {"tags": "client-id=app,user="}
    rows = [
        # At once, and within a second: the largest limit of that second is the one it is measured by.
        *(event(second, 1000.0, limit=1000.0) for second in range(20)),
        *(event(second, 100.0, limit=100.0) for second in (19.5, *range(20, 40))),
        *(event(second, 50.0, limit=100.0, **of_bob) for second in range(20)),
        event(20, 50.0, limit=None, **of_bob),
        *(event(second, 5000.0, limit=100.0, user="carol", **of_client) for second in range(20)),
    ]

    found = usage_total(read_events(spark, write_events(rows))).orderBy("user").collect()

    shares = {row["user"]: row["limit_share"] for row in found}
    assert shares == {"alice": pytest.approx(1.01), "bob": 0.5, "carol": None}
    assert [row["limit_last"] for row in found] == [100.0, None, 100.0]


def test_windows_add_up_to_the_total_however_the_batches_are_cut(
    spark: SparkSession, recorded: DataFrame
) -> None:
    batch = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")

    def windows() -> list[tuple[object, ...]]:
        return sorted(map(tuple, usage(recorded, "client", window_s=300).collect()), key=repr)

    whole = windows()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "11")
    try:
        in_pieces = windows()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)

    assert in_pieces == whole
    assert len(whole) > 100
    summed = usage(recorded, "client", window_s=300).agg(F.sum("events"), F.sum("throttled"))
    total = usage_total(recorded, "client").agg(F.sum("events"), F.sum("throttled"))
    assert summed.collect() == total.collect()


def test_a_window_below_a_second_is_refused(recorded: DataFrame) -> None:
    with pytest.raises(UsageError, match="window_s: 0 is below 1 second"):
        usage(recorded, window_s=0)
