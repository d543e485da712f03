"""``kvota usage``, ``replay`` and ``recommend`` as people and programs see them."""

import argparse
import json
import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.json_page import not_on_the_page
from tests.oracle.recorded_ids import RecordedIds

from kvota.app.cli.main import main
from kvota.app.cli.spark_events import Record, on_record
from kvota.app.cli.usage_words import unit_of
from kvota.engine import QuotaType
from kvota.engine.layered_bloom import Layering
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_entity import QuotaEntity
from kvota.model.tags import tags_text
from kvota.pipeline import LAW_COLUMNS, law
from kvota.record.compact import compact
from kvota.record.event_parquet import parquet_bytes, run_in
from kvota.store.quotas_file import load_quotas, write_quotas
from kvota.store.quotas_yaml import load_document
from kvota.testing.recorded_traffic import EventRow
from kvota.wire.steps import at_once

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("spark"),
]

WriteEvents = Callable[..., Path]

CAPACITY = ("--capacity", "CONTROLLER_MUTATION=2000/s")
RELAXED = ("--min-hours", "0", "--min-events", "50")


def test_usage_ranks_by_share_of_the_quota(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["usage", "--events", str(recorded_folder), "--top", "3"])

    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert code == 0
    first, second, *further = (part.splitlines() for part in said.out.split("\n\n")[1:])
    assert first[0].split()[:4] == ["user", "quota", "broker", "requests"]
    assert second[0].split()[:5] == ["user", "quota", "broker", "of", "limit"]
    assert {len(part) for part in (first, second, *further)} == {4}
    assert {line.split()[0] for part in (first, second, *further) for line in part[1:]} == {"alice"}
    shares = [int(share) for line in second for share in re.findall(r" (\d+)%  ", line)]
    assert len(shares) == 3
    assert shares[0] > shares[-1]
    assert shares == sorted(shares, reverse=True)
    assert max(map(len, lines)) <= 80
    assert re.search(r"^kvota: 3 of (\d+) lines shown; --top \1 shows all$", said.err, re.MULTILINE)


def test_what_is_shown_whole_is_not_said_to_be_hidden(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["usage", "--events", str(recorded_folder), "--by", "client", "--top", "999"])

    assert "shown" not in capsys.readouterr().err


def test_counters_of_several_runs_are_told_apart_on_80_columns(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--candidates", "20KB/s,1MB/s", "--mode", "backlog", "--top", "40"]

    code = main(["replay", "--events", str(recorded_folder), *arguments])

    said = capsys.readouterr()
    assert code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    out = " ".join(said.out.split())  # headings wrap, too
    of_runs = re.findall(r"gateway ([\w -]+), run (run-\d) of 2030-03-17", out)
    assert set(of_runs) == {("gateway-1", "run-1"), ("gateway 2", "run-2")}
    assert len(of_runs) == said.out.count("PRODUCE") + said.out.count("FETCH") == 40
    assert re.search(r"40 of \d+ counters shown", said.err)


def test_rows_wrap_by_column_and_say_what_is_hidden(
    recorded_folder: Path, recorded_rows: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", "--rows", "--events", str(recorded_folder), "--top", "2"])

    said = capsys.readouterr()
    blocks = said.out.split("\n\n")
    assert len(blocks) > 1
    assert {tuple(block.split()[:3]) for block in blocks} == {("gateway", "run_id", "seq")}
    assert max(map(len, said.out.splitlines())) <= 80
    rows = len(recorded_rows)
    assert f"kvota: 2 of {rows:,} rows shown; --top {rows} shows all" in said.err


def test_usage_for_programs_carries_units(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--top", "100", "--output", "json"]

    code = main(["usage", "--events", str(recorded_folder), *options])

    said = json.loads(capsys.readouterr().out)
    rows = said["rows"]
    assert code == 0
    assert not_on_the_page(said, "usage") == set()
    assert {row["unit"] for row in rows} == {"bytes", "partitions"}
    assert all(isinstance(row["counter_id"], str) for row in rows)
    assert {"rate_mean_per_s", "limit_per_s", "throttled_ratio", "span_s"} <= rows[0].keys()
    assert {row["level"] for row in rows} == {"user"}
    limited = [row for row in rows if row["limit_ratio"] is not None]
    assert len(limited) > 3
    assert all(0 <= row["throttled_ratio"] <= 1 for row in rows)
    shares = [row["limit_ratio"] for row in limited]
    assert rows[: len(limited)] == limited
    assert shares == sorted(shares, reverse=True)


def test_the_law_is_said_in_one_line_per_quota_type_and_one_in_all(
    recorded_folder: Path, recorded_rows: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "--law", "--events", str(recorded_folder)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [line.split(":")[0] for line in lines[:3]] == ["CONTROLLER_MUTATION", "FETCH", "PRODUCE"]
    assert lines[3].startswith(f"{len(recorded_rows):,} rows, ")
    assert lines[3].endswith(" throttled, all equal")


def test_a_broken_law_ends_with_1_and_the_first_differences(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in recorded_folder.glob("*.parquet"):
        table = pq.read_table(file)
        limit = pc.multiply(table["limit"], 1.001)
        place = table.schema.get_field_index("limit")
        pq.write_table(
            table.set_column(place, table.schema.field("limit"), limit), tmp_path / file.name
        )

    code = main(["replay", "--law", "--events", str(tmp_path)])

    out = capsys.readouterr().out
    assert code == 1
    assert "differ" in out
    assert "first differences:\n  " in out
    assert "replayed" in out


def test_rows_show_recorded_beside_replayed(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["replay", "--rows", "--events", str(recorded_folder), "--top", "2", "--output", "json"]
    )

    said = json.loads(capsys.readouterr().out)
    rows = said["rows"]
    assert code == 0
    assert not_on_the_page(said, "replay --rows") == set()
    assert [row["throttle_ms"] for row in rows] == [row["replayed_throttle_ms"] for row in rows]
    assert [row["equal"] for row in rows] == [True, True]


def test_candidates_with_bytes_are_for_bandwidth_and_others_for_mutations(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--candidates", "20KB/s,1MB/s,5/s", "--by", "user", "--output", "json"]

    code = main(["replay", "--events", str(recorded_folder), "--top", "100", *arguments])

    said = json.loads(capsys.readouterr().out)
    rows = said["rows"]
    tried = {(row["quota_type"], row["quota_per_s"]) for row in rows}
    assert code == 0
    assert not_on_the_page(said, "replay --candidates") == set()
    assert tried == {
        ("PRODUCE", 20_000.0),
        ("PRODUCE", 1_000_000.0),
        ("FETCH", 20_000.0),
        ("FETCH", 1_000_000.0),
        ("CONTROLLER_MUTATION", 5.0),
    }


def test_factors_of_the_quotas_in_force_are_shown_with_units(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--factors", "0.5,2", "--mode", "backlog", "--window", "5x500ms", "--top", "2"]
    by_rate = ["--algorithm", "sampled_rate"]

    code = main(["replay", "--events", str(recorded_folder), *arguments, *by_rate])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0] == "backlog loop, 5 samples of 500 ms"
    assert lines[2].endswith("longest delay")
    limits = [line for line in lines if re.match(r" +[0-9.]+ ([KM]?B)?/s ", line)]
    assert len(limits) == 2 * 2


def test_the_way_of_counting_is_said(
    recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--candidates", "20KB/s,5/s", "--algorithm", "token_bucket", "--burst", "2s"]

    code = main(
        ["replay", "--events", str(recorded_folder), *arguments, "--debt-max", "5s", "--top", "99"]
    )

    first = " ".join(capsys.readouterr().out.partition("\n\n")[0].split())
    assert code == 0
    assert first.startswith("open loop, ")
    assert "token_bucket with a burst of 2.00 s and 5.00 s of debt" in first
    assert "samples of" in first


@pytest.mark.parametrize("value", ["0s", "soon", "5"])
def test_an_impossible_burst_is_wrong_use(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", "--events", ".", "--factors", "1", "--burst", value])

    assert ended.value.code == 2
    assert f'"{value}" is not' in capsys.readouterr().err


def test_a_plan_is_only_shown_unless_it_is_asked_for(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["recommend", "--events", str(recorded_folder), *CAPACITY, *RELAXED])

    out = capsys.readouterr().out
    assert code == 0
    assert "+ user-principal 'alice' CONTROLLER_MUTATION none -> " in out
    assert "share: needs ≥ " in out  # most of them were held back while they were recorded
    assert "over 2 gateways" in out
    assert "clients in the record are affected" in out
    assert list(tmp_path.iterdir()) == []


def test_a_plan_file_is_one_of_quotas_as_code(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, now = tmp_path / "plan.yaml", tmp_path / "now.yaml"
    now.write_text("quotas:\n  - ip: 10.0.0.1\n    connection_creation_rate: 5/s\n")

    code = main(
        [
            *("recommend", "--events", str(recorded_folder), *CAPACITY, *RELAXED),
            *("--plan-file", str(plan), "--output", "json", "--quotas", str(now)),
        ]
    )

    said = json.loads(capsys.readouterr().out)
    assert code == 0
    text = plan.read_text()
    assert said["plan_id"] in text
    document = load_document(plan)
    assert document.plan is not None
    assert document.plan.in_force == load_document(now).wanted.quotas
    written = dict(document.wanted.quotas.entries())
    assert written.pop(QuotaEntity(ip="10.0.0.1")) == {"connection_creation_rate": 5}
    proposed = {line["user"]: line["proposed_per_s"] for line in said["lines"]}
    assert {
        entity.user: quotas["controller_mutation_rate"] for entity, quotas in written.items()
    } == proposed
    reasons = [f"{line['reason']}: {line['evidence']}" for line in said["lines"]]
    assert all(f"  # CONTROLLER_MUTATION: {reason}\n" in text for reason in reasons)


def test_yes_writes_the_quotas_in_force_and_says_how_to_undo_it(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quotas = tmp_path / "quotas.toml"
    table = ConfiguredQuotas({QuotaEntity(user="alice"): {QuotaType.CONTROLLER_MUTATION: 20.0}})
    write_quotas(quotas, table)
    before = quotas.read_text()

    code = main(
        [
            *("recommend", "--events", str(recorded_folder), *CAPACITY, *RELAXED),
            *("--quotas", str(quotas), "--yes"),
        ]
    )

    captured = capsys.readouterr()
    (saved,) = tmp_path.glob("quotas.toml.before-*")
    assert code == 0
    assert "~ user-principal 'alice' CONTROLLER_MUTATION 20.0 /s -> 40.0 /s" in captured.out
    assert "step: " in captured.out
    assert load_quotas(quotas).entries()[QuotaEntity(user="alice")] == {
        QuotaType.CONTROLLER_MUTATION: 40.0
    }
    assert saved.read_text() == before
    assert f"to undo: mv {saved} {quotas}" in captured.err


def test_bad_files_are_named_and_counted_and_the_rest_is_used(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in recorded_folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")

    code = main(["usage", "--events", str(tmp_path), "--top", "1"])

    captured = capsys.readouterr()
    assert code == 0
    assert "cut.parquet: not a complete Parquet file (no valid footer); left out" in captured.err
    assert "1 bad files" in captured.err


def test_no_answer_is_given_where_more_files_are_bad_than_may_be(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (good, *_) = recorded_folder.glob("*.parquet")
    (tmp_path / good.name).write_bytes(good.read_bytes())
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    bad_file = tmp_path / "bad.json"

    code = main(
        ["usage", "--events", str(tmp_path), "--max-bad", "49%", "--bad-file", str(bad_file)]
    )

    said = capsys.readouterr()
    assert (code, said.out) == (3, "")
    assert (
        "1 of 2 files of the record cannot be read (50.0%), more than --max-bad 49.0%" in said.err
    )
    bad = json.loads(bad_file.read_text())
    assert (bad["source"], Path(bad["path"]).name) == ("events", "cut.parquet")
    assert "no valid footer" in bad["reason"]
    assert main(["usage", "--events", str(tmp_path), "--max-bad", "50%"]) == 0


def test_a_part_of_the_record_can_be_asked_for(
    recorded_folder: Path, recorded_rows: list[EventRow], capsys: pytest.CaptureFixture[str]
) -> None:
    until = datetime.fromtimestamp(recorded_rows[9_000][0] / 1e6, UTC).isoformat()

    code = main(["usage", "--events", str(recorded_folder), "--until", until, "--output", "json"])

    rows = json.loads(capsys.readouterr().out)["rows"]
    whole_s = max(row[0] for row in recorded_rows) / 1e6 - 1_900_000_000
    assert code == 0
    assert 0 < rows[0]["span_s"] < whole_s / 2
    assert 0 < sum(row["events"] for row in rows) <= 9_000 + 6_000


def arguments_for(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(
        events=[folder],
        request_log=None,
        table=None,
        since=None,
        until=None,
        master="local[2]",
        memory=None,
        conf=[],
        max_bad=None,
        bad_file=None,
    )


def test_a_record_that_loses_its_oldest_files_all_the_time_is_read_without_the_next_ones(
    recorded_rows: list[EventRow],
    write_events: WriteEvents,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_events(recorded_rows[:10_000], files=10)
    read: list[int] = []

    def work(record: Record) -> int:
        min(folder.iterdir()).unlink()
        read.append(record.found.rows)
        return law(record.chunks(further=LAW_COLUMNS)).rows

    assert on_record(arguments_for(folder), "reading", work) == 4_000
    assert read == [10_000, 9_000, 4_000]
    assert "4 more of them, with 4,000 decisions, are left out" in capsys.readouterr().err


def test_a_file_that_goes_while_it_is_read_costs_a_second_reading(
    recorded_rows: list[EventRow],
    write_events: WriteEvents,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_events(recorded_rows[:3_000], files=3)
    read: list[int] = []

    def work(record: Record) -> int:
        if not read:
            min(folder.iterdir()).unlink()
        read.append(record.found.rows)
        return law(record.chunks(further=LAW_COLUMNS)).rows

    assert on_record(arguments_for(folder), "reading", work) == 2_000
    assert read == [3_000, 2_000]
    assert "the record changed while it was read; reading it again" in capsys.readouterr().err


def test_a_copy_of_a_folder_is_refused(
    recorded_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(recorded_folder, tmp_path / "copy")

    code = main(["usage", "--events", str(recorded_folder), str(tmp_path / "copy")])

    said = capsys.readouterr().err
    assert code == 2
    assert "every decision would count twice" in said
    assert "copy" in said


def test_factors_without_quotas_are_refused(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(*row[:13], None, *row[14:]) for row in recorded_rows[:500]]

    code = main(["replay", "--events", str(write_events(rows)), "--factors", "2"])

    assert code == 2
    assert "no quota was in force in the record" in capsys.readouterr().err


def test_factors_are_of_any_quota_that_there_was(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    """A larger counter has none, and that of the other one was removed in the end."""
    folder = write_events(
        [
            changed(
                row,
                quota_type="PRODUCE",
                node_id=1,
                outcome="admitted",
                enforced=True,
                tags=f"client-id=,user={'large' if place % 2 else 'small'}",
                value=9e6 if place % 2 else 1.0,
                limit=None if place % 2 or place > 80 else 100.0,
            )
            for place, row in enumerate(recorded_rows[:100])
        ]
    )
    asked = ["replay", "--events", str(folder), "--factors", "2", "--output", "json"]

    assert main([*asked, "--top", "1"]) == 0
    (largest,) = json.loads(capsys.readouterr().out)["rows"]
    assert main(asked) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]

    assert (largest["user"], largest["quota_per_s"]) == ("large", None)
    assert {row["user"]: row["quota_per_s"] for row in rows} == {"large": None, "small": 200.0}


@pytest.mark.parametrize("option", [["--weight", "alise=2"], ["--exempt", "alise"]])
def test_a_weight_or_an_exemption_of_nobody_is_refused(
    recorded_folder: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["recommend", "--events", str(recorded_folder), *CAPACITY, *RELAXED, *option])

    assert code == 2
    assert 'is given to "alise": did you mean "alice"?' in capsys.readouterr().err


def test_the_session_of_somebody_else_is_left_running(
    spark: SparkSession, recorded_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["usage", "--events", str(recorded_folder), "--top", "1"])

    assert spark.range(2).count() == 2
    assert capsys.readouterr().out


def test_programs_are_told_how_much_is_hidden(
    recorded_folder: Path, recorded_rows: list[EventRow], capsys: pytest.CaptureFixture[str]
) -> None:
    events = ["--events", str(recorded_folder)]
    main(["usage", *events, "--output", "json", "--top", "1000"])
    every = json.loads(capsys.readouterr().out)
    main(["usage", *events, "--output", "json", "--top", "3"])
    few = json.loads(capsys.readouterr().out)

    main(["replay", *events, "--output", "json", "--candidates", "1MB/s", "--top", "2"])
    counters = json.loads(capsys.readouterr().out)
    main(["replay", *events, "--output", "json", "--rows", "--top", "2"])
    decisions = json.loads(capsys.readouterr().out)

    lines, requests = len(every["rows"]), sum(row["events"] for row in every["rows"])
    shown = sum(row["events"] for row in few["rows"])
    assert (every["schema"], every["hidden_rows"], every["hidden_events"]) == (1, 0, 0)
    assert (few["hidden_rows"], few["hidden_events"]) == (lines - 3, requests - shown)
    assert counters["hidden_counters"] > 0
    assert decisions["hidden_rows"] == len(recorded_rows) - 2


def changed(row: EventRow, **columns: object) -> EventRow:
    names = [column.name for column in EVENT_COLUMNS]
    return tuple(columns.get(name, value) for name, value in zip(names, row, strict=True))


def usage_rows(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> list[dict[str, object]]:
    assert main(["usage", "--events", str(folder), "--output", "json", *options]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_a_limit_is_shown_only_to_whom_it_binds(
    recorded_rows: list[EventRow],
    write_events: WriteEvents,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    made = {"quota_type": "PRODUCE", "user": "alice", "client_id": "app", "limit": 100.0}
    folder = write_events(
        [changed(row, tags="client-id=app,user=", **made) for row in recorded_rows[:50]]
    )

    (of_user,), (of_client,), (of_both,) = (
        {(row["limit_per_s"], row["limit_is_shared"]) for row in usage_rows(folder, capsys, *by)}
        for by in ([], ["--by", "client"], ["--by", "user-client"])
    )
    main(["usage", "--events", str(folder)])

    shown = capsys.readouterr()
    assert (of_user, of_client, of_both) == ((None, True), (100.0, False), (None, True))
    assert "%" not in shown.out.splitlines()[3].split("*")[1].split()[0]
    assert "--by client or --by user-client shows it" in shown.err


def test_tags_show_how_near_a_group_is_to_its_limit(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"quota_type": "PRODUCE", "user": "alice", "client_id": "app", "limit": 100.0}
    tags = {"team": "a"}
    folder = write_events(
        [changed(row, tags=tags_text(tags), **made) for row in recorded_rows[:50]]
    )

    (row,) = {
        (row["limit_per_s"], row["limit_is_shared"], row["limit_ratio"], row["tags"])
        for row in usage_rows(folder, capsys)
    }
    of_groups = usage_rows(folder, capsys, "--by", "tags")
    assert main(["usage", "--events", str(folder)]) == 0

    said = capsys.readouterr().err
    assert row == (None, True, None, None)
    assert "which a quota callback makes: --by tags shows it" in said
    assert "--by client" not in said
    assert {(row["tags"], row["level"], row["limit_per_s"]) for row in of_groups} == {
        ("team=a", "tags", 100.0)
    }
    assert {(row["user"], row["client_id"], row["limit_is_shared"]) for row in of_groups} == {
        (None, None, False)
    }
    used = max(row["rate_10s_max_per_s"] for row in of_groups)
    assert max(row["limit_ratio"] for row in of_groups) == pytest.approx(used / 100.0)
    assert main(["usage", "--events", str(folder), "--by", "tags"]) == 0
    out, said = capsys.readouterr()
    assert "team=a" in out
    assert "*" not in out + said


def test_a_client_that_kept_a_lowered_limit_is_not_on_top(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a full disk's factor does it: the limit of its last rows is a tenth."""
    start_us = recorded_rows[0][0]
    folder = write_events(
        [
            changed(
                row,
                quota_type="PRODUCE",
                node_id=1,
                user=user,
                outcome="admitted",
                tags=tags_text({"user": user, "client-id": ""}),
                ts_us=start_us + place // 2 * 1_000_000,
                limit=100.0 if place > 60 else 1000.0,
                value=(100.0 if place > 60 else 1000.0) * (0.9 if user == "alice" else 1.2),
            )
            for place, row in enumerate(recorded_rows[:80])
            for user in ("alice" if place % 2 else "bob",)
        ]
    )

    rows = usage_rows(folder, capsys)

    assert [row["user"] for row in rows] == ["bob", "alice"]
    assert [row["limit_ratio"] for row in rows] == [pytest.approx(1.2), pytest.approx(0.9)]
    assert {row["limit_per_s"] for row in rows} == {100.0}


def test_request_time_is_counted_and_tried_in_percent(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_events(
        [
            changed(
                row, quota_type="REQUEST", outcome="admitted", value=20.0, algorithm="sampled_rate"
            )
            for row in recorded_rows[:200]
        ]
    )

    rows = usage_rows(folder, capsys)
    assert main(["usage", "--events", str(folder)]) == 0
    table = capsys.readouterr().out
    tries = ["replay", "--events", str(folder), "--candidates", "10%,9000%", "--by", "user"]
    assert main([*tries, "--output", "json"]) == 0
    tried = json.loads(capsys.readouterr().out)["rows"]

    assert {(row["quota_type"], row["unit"]) for row in (*rows, *tried)} == {
        ("REQUEST", unit_of("REQUEST"))
    }
    assert sum(row["value_sum"] for row in rows) == 200 * 20.0
    assert "REQUEST" in table
    over = {row["quota_per_s"]: row["over_events"] for row in tried if row["user"] == "alice"}
    assert over[10.0] > over[9000.0] == 0


def test_replay_and_recommend_look_at_the_part_that_is_asked_for(
    recorded_folder: Path, recorded_rows: list[EventRow], capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = [
        datetime.fromtimestamp(recorded_rows[place][0] / 1e6, UTC) for place in (3_000, 9_000)
    ]
    since, until = (bound.isoformat() for bound in bounds)
    part = [
        "--events",
        str(recorded_folder),
        "--since",
        since,
        "--until",
        until,
        "--output",
        "json",
    ]
    inside = [row for row in recorded_rows if bounds[0] <= moment(row) < bounds[1]]

    main(["replay", "--law", *part])
    judged = json.loads(capsys.readouterr().out)
    main(["recommend", *part, *CAPACITY, *RELAXED])
    planned = json.loads(capsys.readouterr().out)

    mutations = [row for row in inside if row[5] == "CONTROLLER_MUTATION"]
    assert judged["rows"] == len(inside) < len(recorded_rows) / 2
    assert 0 < sum(line["events"] for line in planned["lines"]) <= len(mutations)
    # What comes before the period is not there: rows differ, and are named.
    assert not_on_the_page(judged, "replay --law", "replay --rows") == set()
    assert not_on_the_page(planned, "recommend") == set()


def moment(row: EventRow) -> datetime:
    return datetime.fromtimestamp(row[0] / 1e6, UTC)


def test_who_is_enforced_and_who_in_shadow_mode_are_never_added_up(
    recorded_rows: list[EventRow],
    write_events: WriteEvents,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    made = {
        "quota_type": "PRODUCE",
        "user": "alice",
        "node_id": 1,
        "outcome": "throttled",
        "value": 1.0,
    }
    folder = write_events(
        [
            changed(row, enforced=place % 3 > 0, **made)
            for place, row in enumerate(recorded_rows[:90])
        ]
    )

    rows = usage_rows(folder, capsys)
    main(["usage", "--events", str(folder)])

    counts = {row["enforced"]: (row["events"], row["throttled_events"]) for row in rows}
    lines = capsys.readouterr().out.splitlines()[3:]
    assert counts == {True: (60, 60), False: (30, 30)}
    assert sorted("would be 100.0%" in line for line in lines) == [False, True]

    tries = ["replay", "--events", str(folder), "--candidates", "1KB/s", "--by", "user"]
    main([*tries, "--output", "json"])
    tried = json.loads(capsys.readouterr().out)["rows"]
    main(tries)
    shown = capsys.readouterr().out
    assert {row["enforced"]: row["value_sum"] for row in tried} == {True: 60.0, False: 30.0}
    assert re.findall(r"alice: PRODUCE, broker 1, (.+)", shown) == ["enforced", "in shadow mode"]


def test_everyone_without_a_login_is_told_to_look_at_clients(
    recorded_rows: list[EventRow], write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_events([changed(row, user="ANONYMOUS") for row in recorded_rows[:50]])

    main(["usage", "--events", str(folder)])
    main(["usage", "--events", str(folder), "--by", "client"])

    assert capsys.readouterr().err.count("everyone is ANONYMOUS, because nobody logs in") == 1


def test_times_are_utc_wherever_this_is(
    recorded_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outs = []
    for zone in ("UTC", "Asia/Kolkata", "America/St_Johns"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        main(["usage", "--events", str(recorded_folder), "--top", "5"])
        outs.append(capsys.readouterr().out)
    monkeypatch.undo()
    time.tzset()

    assert " from 2030-03-17 17:46:40 UTC" in outs[0]
    assert outs[1:] == outs[:1] * 2


@pytest.fixture(params=["raw", "merged"])
def folder_with_ids(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Alice's producers come back again and again; bob's are new each time, in shadow mode."""
    for gateway, user, enforced in (("one", "alice", True), ("two", "bob", False)):
        recorded = RecordedIds(Layering(window_ms=60_000), enforced=enforced, name=gateway)
        recorded.set_rate(user, 5.0)
        for number in range(200):
            recorded.now_us += 1_000_000
            producer_id = number % 8 if user == "alice" else number
            at_once(recorded.produce(user, 1, [producer_id]))
            if number == 100:
                recorded.restart(saved=True)
        recorded.close()
        for place, table in enumerate(recorded.tables):
            run = run_in(table, gateway=gateway, run_id=table["run_id"][0].as_py())
            content = parquet_bytes(table, [run]).to_pybytes()
            (tmp_path / f"events-{gateway}-{place}.parquet").write_bytes(content)
    if request.param == "merged":
        assert compact(tmp_path, now_us=0, every_hour=True).steps
    return tmp_path


def test_the_law_judges_every_decision_about_producer_ids(
    folder_with_ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "--law", "--events", str(folder_with_ids), "--output", "json"])

    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (said["differing_rows"], said["unjudged_rows"], said["not_replayed_rows"]) == (0, 0, 0)
    (of_ids,) = said["quota_types"]
    assert of_ids["quota_type"] == "PRODUCER_ID"
    assert of_ids["throttled_rows"] > 100


def test_usage_counts_different_new_ids_in_their_window(
    folder_with_ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--events", str(folder_with_ids), "--output", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert main(["usage", "--events", str(folder_with_ids)]) == 0
    table = capsys.readouterr().out

    assert (said["rows"], said["hidden_producer_id_rows"]) == ([], 0)
    assert not_on_the_page(said, "usage") == set()
    of_user = {row["user"]: row for row in said["producer_ids"]}
    assert (
        main(["usage", "--events", str(folder_with_ids), "--by", "tags", "--output", "json"]) == 0
    )
    by_tags = json.loads(capsys.readouterr().out)["producer_ids"]
    same = ("user", "new_ids", "limit_per_window", "limit_ratio", "enforced")
    assert {tuple(row[key] for key in same) for row in by_tags} == {
        tuple(row[key] for key in same) for row in said["producer_ids"]
    }
    assert {row["tags"] is None for row in by_tags} == {False}
    alice, bob = of_user["alice"], of_user["bob"]
    assert (alice["distinct_ids"], alice["new_ids"], alice["refused_ids"]) == (8, 8, 3)
    assert (bob["distinct_ids"], bob["unnamed_ids"]) == (200, 0)
    assert bob["new_ids"] + bob["refused_ids"] == 200
    assert bob["refusals"] == bob["refused_ids"]
    assert {row["limit_per_window"] for row in of_user.values()} == {5.0}
    assert {row["window_ms"] for row in of_user.values()} == {60_000}
    # Five at once, and one each 12 s.
    assert bob["most_new_ids_in_window"] == 9
    assert bob["limit_ratio"] == 1.8
    assert (alice["enforced"], bob["enforced"]) == (True, False)
    assert "would be" in table
    assert max(map(len, table.splitlines())) <= 80


def test_candidates_of_new_ids_in_a_window(
    folder_with_ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["replay", "--events", str(folder_with_ids), "--candidates", "2ids,8ids,300ids"]
    assert main([*arguments, "--by", "user", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "new producer ids in windows of 1 min 00 s" in shown
    assert re.findall(r"(\d+ ids) \d+\.", shown)[:3] == ["2 ids", "8 ids", "300 ids"]

    rejected = {(row["user"], row["candidate"]): row["rejected_events"] for row in rows}
    assert rejected["alice", 1] == rejected["alice", 2] == 0
    assert rejected["alice", 0] > 0
    assert rejected["bob", 0] > rejected["bob", 1] > rejected["bob", 2] == 0
    assert main([*arguments, "--mode", "think"]) == 2
    assert "in the open loop only" in capsys.readouterr().err
    assert main(["replay", "--events", str(folder_with_ids), "--factors", "2"]) == 1
    assert "--factors leaves new producer ids out; try quotas for them" in capsys.readouterr().err
