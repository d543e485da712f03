"""The demo's verdicts on a record, and what it refuses to write over."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvota.app.cli.recommend import understood
from kvota.app.demo.circle import run_demo
from kvota.app.demo.traffic import percentile
from kvota.app.demo.verdicts import Verdicts, verdicts
from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import UsageError
from kvota.model.quota_type import QuotaType

BUCKETS = {
    QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=2_000),
    QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=2_000),
}


def _verdicts(folder: Path, values: list[float], **columns: object) -> Verdicts:
    """One charge a millisecond on one counter under 1,000/s, unless ``columns`` say otherwise."""
    count = len(values)
    each: dict[str, object] = {
        "gateway": "kvota",
        "run_id": "run",
        "node_id": 1,
        "quota_type": "PRODUCE",
        "tags": "user=a",
        "connection": 1,
        "user": "a",
        "limit": 1_000.0,
        "samples": 1,
        "sample_ms": 1_000,
        "algorithm": "token_bucket",
        "outcome": "throttled",
    }
    table: dict[str, object] = {
        "seq": list(range(count)),
        "ts_us": [number * 1_000 for number in range(count)],
        "value": values,
    }
    for name, value in (each | columns).items():
        table[name] = value if isinstance(value, list) else [value] * count
    pq.write_table(pa.table(table), folder / "events.parquet")
    return verdicts(folder, BUCKETS)


def test_a_limit_that_was_kept_holds(tmp_path: Path) -> None:
    judged = _verdicts(tmp_path, [2.0] * 2_990)

    assert judged["a", "PRODUCE"].holds


def test_a_limit_that_was_broken_does_not_hold(tmp_path: Path) -> None:
    judged = _verdicts(tmp_path, [3.0] * 1_600)

    assert not judged["a", "PRODUCE"].holds


def test_behind_a_raise_what_was_admitted_before_counts_no_more(tmp_path: Path) -> None:
    values = [1e6, 1e6, 2e6]  # 1,000 s of the first limit

    raised = _verdicts(tmp_path, values, limit=[1e3, 1e6, 1e6])
    lowered = _verdicts(tmp_path, [4e6, *values], limit=[1e6, 1e3, 1e6, 1e6])
    never = _verdicts(tmp_path, [*values, 1.0], limit=1e6)

    assert raised["a", "PRODUCE"].holds
    assert not lowered["a", "PRODUCE"].holds
    assert not never["a", "PRODUCE"].holds


def test_what_was_rejected_used_nothing(tmp_path: Path) -> None:
    judged = _verdicts(tmp_path, [3_000.0] * 1_500, outcome="rejected")

    assert judged["a", "PRODUCE"].holds


def test_of_two_counters_of_a_tenant_the_worse_is_told(tmp_path: Path) -> None:
    values = [2.0] * 1_600 + [20.0] * 1_600

    judged = _verdicts(tmp_path, values, node_id=[1] * 1_600 + [2] * 1_600)

    assert not judged["a", "PRODUCE"].holds


def test_two_counters_of_a_tenant_may_each_have_its_burst(tmp_path: Path) -> None:
    judged = _verdicts(tmp_path, [3_000.0, 3_000.0], node_id=[1, 2])

    assert judged["a", "PRODUCE"].holds


def test_a_tenant_does_not_answer_for_another(tmp_path: Path) -> None:
    users = ["a"] * 1_000 + ["b"] * 1_000
    tags = [f"user={user}" for user in users]

    judged = _verdicts(tmp_path, [1.0] * 1_000 + [9.0] * 1_000, user=users, tags=tags)

    assert {key: found.holds for key, found in judged.items()} == {
        ("a", "PRODUCE"): True,
        ("b", "PRODUCE"): False,
    }


def test_a_changed_limit_does_not_begin_a_new_account(tmp_path: Path) -> None:
    judged = _verdicts(tmp_path, [3_000.0, 2_999.0, 10.0], limit=[1_000.0, 1_001.0, 1_002.0])

    assert not judged["a", "PRODUCE"].holds


def test_bandwidth_counted_by_a_sampled_rate_is_not_judged(tmp_path: Path) -> None:
    assert _verdicts(tmp_path, [3.0] * 1_600, algorithm="sampled_rate") == {}
    assert verdicts(tmp_path, {}) == {}


def test_another_algorithm_begins_a_new_account(tmp_path: Path) -> None:
    algorithms = ["token_bucket", "sampled_rate", "token_bucket"]

    judged = _verdicts(tmp_path, [3_000.0, 9e9, 3_000.0], algorithm=algorithms)

    assert judged["a", "PRODUCE"].holds
    assert not _verdicts(tmp_path, [3_000.0, 3_000.0, 1.0])["a", "PRODUCE"].holds


def test_what_had_no_limit_is_not_judged(tmp_path: Path) -> None:
    limits = pa.array([None, None], pa.float64())

    assert _verdicts(tmp_path, [1e9, 1e9], limit=limits.to_pylist()) == {}


def test_mutations_have_the_burst_of_their_window_and_owe_nothing(tmp_path: Path) -> None:
    mutations = {"quota_type": "CONTROLLER_MUTATION", "samples": 2, "limit": 8.0}

    assert _verdicts(tmp_path, [4.0] * 5, **mutations)["a", "CONTROLLER_MUTATION"].holds
    assert not _verdicts(tmp_path, [4.0] * 6, **mutations)["a", "CONTROLLER_MUTATION"].holds


def test_of_fetches_no_more_than_of_requests_may_be_on_its_way(tmp_path: Path) -> None:
    connections = list(range(10))

    judged = _verdicts(tmp_path, [4_000.0] * 10, quota_type="FETCH", connection=connections)

    assert not judged["a", "FETCH"].holds


def test_the_demo_writes_over_nobody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")

    with pytest.raises(UsageError, match="not empty and not from an earlier demo"):
        run_demo(tmp_path, seconds=5, understood=understood)

    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_the_demo_names_a_file_that_is_in_its_way(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")

    with pytest.raises(UsageError, match="is a file"):
        run_demo(file, seconds=5, understood=understood)


def test_a_percentile_has_its_share_of_the_values_below_it() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 3.0
    assert percentile([1.0], 0.99) == 1.0
