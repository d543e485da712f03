"""``usage`` as other tools compute it, from the same files: DuckDB, Polars, plain Spark SQL.

Each gives a row per broker and user: requests, bytes, throttled requests, nearest-rank quantiles of the sums of
seconds (a quiet second is a zero), and the largest mean of ten seconds. DuckDB and Polars are needed only here:
``.venv/bin/python -m pip install --require-hashes -r requirements/peers.txt``. Where one is not there, the benchmark
says so, also in its results, and leaves it out.
"""

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Result = dict[tuple[int, str], tuple[float, ...]]

_QUANTILES = (0.5, 0.95, 0.99)

_SECONDS = """
    select node_id, user, {second} as second, sum(value) as used, count(*) as events,
        count(*) filter (where outcome = 'throttled') as throttled
    from {source} group by node_id, user, {second}
"""
_TENS = """
    select *, sum(used) over (
        partition by node_id, user order by second range between 9 preceding and current row
    ) / 10 as ten from seconds
"""
_TOTALS = """
    select node_id, user, sum(events) as events, sum(used) as value_sum, sum(throttled) as throttled,
        {ordered} as ordered, max(used) as most, max(ten) as most_10s
    from tens group by node_id, user
"""


def sql(source: str, window_s: int, *, spark: bool) -> str:
    """The same question in the words of Spark or of DuckDB."""
    quoted = '"user"' if not spark else "user"
    second = "ts_us div 1000000" if spark else "ts_us // 1000000"
    ordered = "sort_array(collect_list(used))" if spark else "list_sort(list(used))"
    length = "size(ordered)" if spark else "len(ordered)"
    quantiles = []
    for share in _QUANTILES:
        place = f"greatest(cast(ceil({share} * {window_s}) as int), 1) - ({window_s} - {length})"
        at = f"element_at(ordered, {place})" if spark else f"ordered[{place}]"
        quantiles.append(f"case when {place} < 1 then 0.0 else {at} end")
    parts = [
        f"with seconds as ({_SECONDS.format(second=second, source=source)})",
        f"tens as ({_TENS})",
        f"totals as ({_TOTALS.format(ordered=ordered)})",
    ]
    text = ", ".join(parts).replace(" user", f" {quoted}")
    columns = ", ".join(quantiles)
    shown = f"node_id, {quoted}, events, value_sum, throttled, {columns}, most, most_10s"
    return f"{text} select {shown} from totals"  # noqa: S608  (only our own words)


def duckdb_usage(files: Sequence[Path], window_s: int) -> Result:
    import duckdb  # noqa: PLC0415  (may not be there)

    with duckdb.connect() as connection:
        connection.execute(f"set threads to {os.cpu_count()}")
        names = ", ".join(f"'{file}'" for file in files)
        rows = connection.execute(sql(f"read_parquet([{names}])", window_s, spark=False)).fetchall()
    return _result(rows)


def polars_usage(files: Sequence[Path], window_s: int) -> Result:
    import polars as pl  # noqa: PLC0415  (may not be there)

    key = ["node_id", "user"]
    seconds = (
        pl.scan_parquet(files)
        .group_by(*key, (pl.col("ts_us") // 1_000_000).alias("second"))
        .agg(
            pl.col("value").sum().alias("used"),
            pl.len().alias("events"),
            (pl.col("outcome") == "throttled").sum().alias("throttled"),
        )
        .sort(*key, "second")
    )
    tens = seconds.with_columns(
        (pl.col("used").rolling_sum_by("second", window_size="10i").over(key) / 10).alias("ten")
    )

    def quantile(share: float) -> Any:
        place = max(int(-(-share * window_s // 1)), 1) - 1
        at = place - (window_s - pl.len().cast(pl.Int64))
        of_busy = pl.col("used").sort().get(pl.max_horizontal(at, 0), null_on_oob=True)
        return pl.when(at < 0).then(0.0).otherwise(of_busy).alias(f"p{share}")

    totals = tens.group_by(key).agg(
        pl.col("events").sum(),
        pl.col("used").sum().alias("value_sum"),
        pl.col("throttled").sum(),
        *(quantile(share) for share in _QUANTILES),
        pl.col("used").max().alias("most"),
        pl.col("ten").max().alias("most_10s"),
    )
    return _result(totals.collect(engine="streaming").rows())


def spark_usage(events: Any, window_s: int) -> Result:
    """From a DataFrame of the files, by SQL alone."""
    events.createOrReplaceTempView("events")
    return _result(events.sparkSession.sql(sql("events", window_s, spark=True)).collect())


def _result(rows: Any) -> Result:
    return {(row[0], row[1]): tuple(float(value) for value in row[2:]) for row in rows}


PEERS: dict[str, Callable[[Sequence[Path], int], Result]] = {
    "DuckDB": duckdb_usage,
    "Polars": polars_usage,
}


def peer_of(contestant: str) -> str:
    """The peer that computes it, or nothing: ``usage, DuckDB`` is DuckDB's."""
    name = contestant.rpartition(", ")[2]
    return name if name in PEERS else ""


def lacking(peer: str) -> bool:
    """True where the module that a peer needs is not here."""
    return find_spec(peer.lower()) is None
