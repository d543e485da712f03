"""``kvota usage --minutes`` shows what is kept, without Spark."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.record.record_files import as_table, put
from tests.unit.record.usage_oracle import lines_of

from kvota.app.cli.main import main
from kvota.model.tags import tags_text
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.ingested import IngestFolder, write_ready
from kvota.testing.recorded_traffic import START_US, EventRow, RecordedTraffic

# Minutes, some of which are closed.
ROWS = [
    *RecordedTraffic(1, gateway="g1", enforced=True).rows(6_000),
    *RecordedTraffic(2, gateway="g2").rows(6_000),
]
ROWS.sort(key=lambda row: row[0])


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("record")
    folder = IngestFolder.open(into)
    for number in range(0, len(ROWS), 3_000):
        name = f"events-ingest-q-{number}.parquet"
        ready = write_ready(into, name, as_table(ROWS[number : number + 3_000]))
        folder.publish("q", number, [ready], repeated=0)
    folder.close()
    return into


MINUTE_US = 60_000_000
BEGIN_US = START_US // MINUTE_US * MINUTE_US


def used(user: str, minute: int, per_s: float, limit: float | None, **others: object) -> dict[str, object]:  # fmt: skip
    """What one user used in one minute, as an event."""
    return {
        "ts_us": BEGIN_US + minute * MINUTE_US,
        "user": user,
        "client_id": "app",
        "tags": tags_text({"client-id": "", "user": user}),
        "quota_type": "PRODUCE",
        "outcome": "admitted",
        "enforced": True,
        "node_id": 1,
        "value": per_s * 60,
        "limit": limit,
        "throttle_ms": 0,
        **others,
    }


def put_events(into: Path, events: list[dict[str, object]]) -> Path:
    folder = IngestFolder.open(into)
    rows = []
    for seq, event in enumerate(events):
        like = dict(zip(EVENT_SCHEMA.names, ROWS[0], strict=True))
        whole = like | {"gateway": "g", "run_id": "by-hand", "seq": seq} | event
        rows.append(tuple(whole[name] for name in EVENT_SCHEMA.names))
    folder.publish(
        "q", 0, [write_ready(into, "events-ingest-q-0.parquet", as_table(rows))], repeated=0
    )
    folder.close()
    return into


def shown(
    capsys: pytest.CaptureFixture[str], record: Path, *options: str, code: int = 0
) -> dict[str, object]:
    capsys.readouterr()
    place = ("--events", str(record), "--minutes", "--output", "json")
    assert main(["usage", *place, *options]) == code
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize(("by", "top"), [("user", 100), ("client", 3), ("user-client", 100)])
def test_each_tenant_has_its_sums_and_minutes(
    by: str, top: int, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, record, "--by", by, "--top", str(top), "--since", "2000-01-01")

    # An empty name is none.
    by_hand = {
        tuple(None if part == "" else part for part in key): line
        for key, line in lines_of(ROWS, by).items()
    }
    tenants = {key[1:] for key in by_hand}
    rows: list[dict[str, object]] = told["rows"]  # type: ignore[assignment]
    assert len(rows) == min(top, len(tenants))
    assert told["hidden_rows"] == len(tenants) - len(rows)
    events = sum(line.events for line in by_hand.values())
    assert told["hidden_events"] == events - sum(row["events"] for row in rows)  # type: ignore[misc]
    first_us, latest_us = min(row[0] for row in ROWS), max(row[0] for row in ROWS)
    assert told["latest_us"] == latest_us
    assert told["start_us"] == first_us // 60_000_000 * 60_000_000
    assert told["span_s"] == latest_us // 1_000_000 + 1 - told["start_us"] // 1_000_000  # type: ignore[operator]
    names = ("quota_type", "user", "client_id", "node_id", "enforced")
    for row in rows:
        lines = {key[0]: line for key, line in by_hand.items() if key[1:] == tuple(row[n] for n in names)}  # fmt: skip
        assert row["value_sum"] == sum(line.sums[-1] for line in lines.values())
        assert row["rate_max_per_s"] == max(line.rate_max for line in lines.values())
        assert row["rate_60s_max_per_s"] == max(line.sums[-1] for line in lines.values()) / 60
        assert row["rate_mean_per_s"] == row["value_sum"] / told["span_s"]  # type: ignore[operator]
        found = {
            minute["start_us"] // 1_000_000: (minute["events"], minute["value_sum"])
            for minute in row["minutes"]  # type: ignore[attr-defined]
        }
        assert found == {start: (line.events, line.sums[-1]) for start, line in lines.items()}


def test_lines_are_ranked_by_the_share_of_their_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Limits fall as a disk fills. Each minute counts by the limit that it had.
    into = put_events(
        tmp_path,
        [
            used("kept it", 0, 8.0, 10.0),
            used("kept it", 1, 1.0, 2.0),
            used("was over", 0, 3.0, 2.0),
            used("was over", 1, 1.0, 10.0),
            used("no limit", 0, 1e9, None),
            used("of a group", 0, 1e9, 1.0, tags="group=x"),
            used("refused", 0, 1.0, 10.0),
            used("refused", 1, 5.0, 0.0, outcome="rejected", quota_type="PRODUCE", enforced=False),
            used("waits", 1, 0.0, 0.0, outcome="rejected"),
            used("throttled", 0, 2.0, 10.0),
            used("throttled", 1, 0.0, 0.0, outcome="throttled"),
            used("idle", 0, 6.0, 10.0),
            used("idle", 1, 0.0, 0.0),
            used("ids", 0, 1e9, 1.0, quota_type="PRODUCER_ID"),
        ],
    )
    told = shown(capsys, into)

    rows: list[dict[str, object]] = told["rows"]  # type: ignore[assignment]
    found = [(row["user"], row["enforced"], row["limit_ratio"], row["limit_was_0"]) for row in rows]
    assert found == [
        ("throttled", True, 0.2, True),
        ("refused", False, None, True),
        ("waits", True, None, True),
        ("was over", True, 1.5, False),
        ("kept it", True, 0.8, False),
        ("idle", True, 0.6, False),
        ("refused", True, 0.1, False),
        ("no limit", True, None, False),
        ("of a group", True, None, False),
    ]
    assert told["hidden_rows"] == told["hidden_events"] == 0
    assert main(["usage", "--events", str(into), "--minutes"]) == 0
    said = capsys.readouterr()
    assert [line.split("  ")[0] for line in said.out.splitlines() if "limit 0" in line] == [
        "throttled",
        "refused",
        "waits",
    ]
    assert "1 lines of new producer ids are left out" in said.err


def test_the_table_says_the_same(
    record: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    options = ("--last", "3m", "--top", "2")
    rows: list[dict[str, object]] = shown(capsys, record, *options)["rows"]  # type: ignore[assignment]
    assert max(len(row["minutes"]) for row in rows) <= 3  # type: ignore[arg-type]

    assert main(["usage", "--events", str(record), "--minutes", *options, "--raw"]) == 0

    told = capsys.readouterr()
    first, _, header, *lines = told.out.splitlines()
    assert first.endswith("UTC; rates per broker")
    assert "--top" in told.err
    names = re.split("  +", header.strip())
    lines = [line for line in lines if re.search("[0-9]%", line)]
    assert len(lines) == len(rows) == 2
    for line, row in zip(lines, rows, strict=True):
        cells = dict(zip(names, re.split("  +", line.strip()), strict=True))
        assert cells["user"] == row["user"]
        assert cells["quota"] == row["quota_type"]
        assert cells["requests"] == f"{row['events']:,}"
        for name, key in (
            ("mean", "rate_mean_per_s"),
            ("most in 1 min", "rate_60s_max_per_s"),
            ("most in 1 s", "rate_max_per_s"),
            ("limit", "limit_per_s"),
        ):
            assert float(re.split("[ /]", cells[name])[0]) == row[key]
        share = "limit 0" if row["limit_was_0"] else f"{row['limit_ratio']:.0%}"
        assert cells["of limit"] == share
        for key in ("throttled", "rejected"):
            part = row[f"{key}_events"] / row["decisions"]  # type: ignore[operator]
            assert cells[key].removeprefix("would be ") == f"{part:.1%}"
        assert len(cells["by the minute"]) == 3


def test_a_time_without_anything_is_1(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, record, "--since", "2100-01-01", code=1)

    assert (told["start_us"], told["span_s"], told["rows"]) == (None, None, [])
    assert main(["usage", "--events", str(record), "--minutes", "--since", "2100-01-01"]) == 1
    assert "nothing was used in that time" in capsys.readouterr().out


def test_it_is_of_the_last_hour_unless_a_time_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [used(f"at {minute}", minute, 1.0, None) for minute in (0, 61, 62, 121)]
    into = put_events(tmp_path, events)
    for options, users, words in (
        ((), {"at 62", "at 121"}, "UTC (--last 1h); rates"),
        (("--last", "61m"), {"at 61", "at 62", "at 121"}, "UTC; rates"),
        (("--since", "2000-01-01"), {"at 0", "at 61", "at 62", "at 121"}, "UTC; rates"),
    ):
        rows: list[dict[str, object]] = shown(capsys, into, *options)["rows"]  # type: ignore[assignment]
        assert {row["user"] for row in rows} == users
        assert main(["usage", "--events", str(into), "--minutes", *options]) == 0
        assert words in capsys.readouterr().out.splitlines()[0]


def test_late_rows_and_rows_of_before_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, ROWS[:10])
    folder = IngestFolder.open(tmp_path)
    late: list[EventRow] = ROWS[10:5_000:100]
    pieces = (ROWS[10:5_000], ROWS[5_000:9_000], late)
    in_time = [row for row in pieces[0] if row not in set(late)]
    for number, rows in enumerate((in_time, *pieces[1:])):
        ready = write_ready(tmp_path, f"events-ingest-q-{number}.parquet", as_table(rows))
        folder.publish("q", number, [ready], repeated=0)
    folder.close()

    options = ("--since", "2000-01-01", "--top", "100")
    assert main(["usage", "--events", str(tmp_path), "--minutes", *options]) == 0

    told = capsys.readouterr().err
    assert "came after their minute had been closed" in told
    assert "10 decisions had been in the record before" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--last", "5m"), "--last means nothing without --minutes"),
        (("--minutes", "--last", "5m", "--since", "2026-01-01"), "name two times"),
        (("--minutes", "--save", "x"), "--save keeps what Spark counts"),
        (("--minutes", "--events", "a", "b"), "one folder"),
        (("--minutes", "--master", "local[2]", "--memory", "2g"), "--master, --memory: not with"),
        (("--minutes", "--conf", "spark.x=1", "--max-bad", "1"), "--max-bad, --conf: not with"),
        (("--minutes", "--bad-file", "x", "--keep-events", "y"), "--keep-events, --bad-file: not"),
        (("--minutes", "--log-zone", "UTC", "--ts-unit", "s"), "--log-zone, --ts-unit: not with"),
        (("--minutes", "--events", "nowhere"), "has no usage by the minute"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: tuple[str, ...], words: str, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = () if "--events" in options else ("--events", str(record))

    assert main(["usage", *place, *options]) == 2

    assert words in capsys.readouterr().err


def test_it_needs_no_spark_and_no_pandas(record: Path) -> None:
    code = (
        "import sys\n"
        "class NotInstalled:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] in ('pyspark', 'pandas'):\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, NotInstalled())\n"
        "from kvota.app.cli.main import main\n"
        f"sys.exit(main(['usage', '--events', {str(record)!r}, '--minutes', '--last', '5m']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "rates per broker" in done.stdout
