"""``kvota usage --minutes`` shows what is kept, without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.record.record_files import as_table, put
from tests.unit.record.usage_oracle import lines_of

from kvota.app.cli.main import main
from kvota.record.ingested import IngestFolder, write_ready
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

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


def shown(capsys: pytest.CaptureFixture[str], record: Path, *options: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["usage", "--events", str(record), "--minutes", "--output", "json", *options]) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize(("by", "top"), [("user", 100), ("client", 3), ("user-client", 100)])
def test_each_tenant_has_its_sums_and_minutes(
    by: str, top: int, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, record, "--by", by, "--top", str(top))

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
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, float]] = shown(capsys, record)["rows"]  # type: ignore[assignment]

    shares = [row["limit_ratio"] for row in rows]
    assert shares == sorted(shares, key=lambda share: -1 if share is None else share, reverse=True)
    assert shares[0] > 1
    for row in rows:
        if row["limit_ratio"] is not None:
            assert row["limit_ratio"] == row["rate_60s_max_per_s"] / row["limit_per_s"]


def test_the_table_says_the_same(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("usage", "--events", str(record), "--minutes")

    assert main([*place, "--last", "3m", "--top", "2"]) == 0

    told = capsys.readouterr()
    assert "UTC; rates per broker" in told.out
    assert "most in 1 min" in told.out
    assert "by the minute" in told.out
    assert "--top" in told.err
    minutes: list[dict[str, object]] = shown(capsys, record, "--last", "3m")["rows"]  # type: ignore[assignment]
    assert max(len(row["minutes"]) for row in minutes) <= 3  # type: ignore[arg-type]
    assert main([*place, "--since", "2100-01-01"]) == 1
    assert "nothing was used in that time" in capsys.readouterr().out


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

    assert main(["usage", "--events", str(tmp_path), "--minutes"]) == 0

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
        "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None\n"
        "from kvota.app.cli.main import main\n"
        f"sys.exit(main(['usage', '--events', {str(record)!r}, '--minutes', '--last', '5m']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "rates per broker" in done.stdout
