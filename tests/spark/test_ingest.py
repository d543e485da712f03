"""``kvota ingest``: each decision is in the record once, whatever comes, in whatever order, and whoever is killed."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.json_page import not_on_the_page
from tests.unit.record.record_files import LATER_US, put
from tests.unit.record.usage_oracle import expected, kept

from kvota.app.cli.main import main
from kvota.record.check import check
from kvota.record.compact import compact
from kvota.record.found_events import find_events
from kvota.record.kept_usage import usage_minutes
from kvota.record.usage_sums import LEVELS
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# ``KVOTA_KILLS=20`` kills so often.
KILLS = int(os.environ.get("KVOTA_KILLS", "3"))
MASTER = ("--master", "local[2]")
NONE = {"batches": 0, "files": 0, "decisions": 0, "repeated_decisions": 0}
SEEN_S = 300.0
NAMES = ("quota_type", "user", "client_id", "node_id", "enforced")
SUMS = ("events", "decisions", "value_sum", "throttled_events", "rejected_events", "throttle_ms_sum", "throttled_ratio")  # fmt: skip


def ingested(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, object]:
    capsys.readouterr()
    assert main(["ingest", *map(str, arguments), "--output", "json"]) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    assert not_on_the_page(told, "ingest") == set()
    return told


def numbers(told: dict[str, object]) -> dict[str, object]:
    return {name: told[name] for name in NONE}


def disordered(rows: Sequence[EventRow], folder: Path, seed: int) -> int:
    """Write rows late, reordered and some of them several times; returns how many were written.

    Files have whatever rows of whatever run, in any order, and their seqs overlap.
    """
    rng = random.Random(seed)
    by_piece = [list(rows[begin : begin + 500]) for begin in range(0, len(rows), 500)]
    pieces = [*by_piece, *rng.sample(by_piece, len(by_piece) // 4)]
    pieces += [rng.sample(list(rows), 300) for _ in range(4)]
    rng.shuffle(pieces)
    # Neighbours are mixed: their rows are in two files, in no order.
    for first, second in zip(pieces[::3], pieces[1::3], strict=False):
        mixed = [*first, *second]
        rng.shuffle(mixed)
        first[:], second[:] = mixed[: len(first)], mixed[len(first) :]
    for number, piece in enumerate(pieces):
        put(folder / str(number % 2), piece).rename(folder / str(number % 2) / f"{number}.parquet")
    return sum(len(piece) for piece in pieces)


@pytest.mark.usefixtures("spark")
def test_duplicated_late_and_reordered_decisions_are_there_once_and_replay_in_their_order(
    recorded_rows: list[EventRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "into"
    written = disordered(recorded_rows, tmp_path / "events", 1)
    folders = [tmp_path / "events" / "0", tmp_path / "events" / "1"]

    told = ingested(capsys, "--events", *folders, "--into", into)

    assert written > 1.2 * len(recorded_rows)
    assert told["decisions"] == len(recorded_rows)
    assert told["repeated_decisions"] == written - len(recorded_rows)
    assert (told["missing_decisions"], told["bad"], told["gone_files"]) == (0, [], 0)
    checked = check(find_events([into]))
    assert checked.is_sound
    assert checked.rows == len(recorded_rows)
    # The law is about order: a counter that is charged in another one throttles otherwise.
    assert main(["replay", "--events", str(into), "--law", "--output", "json"]) == 0
    law = json.loads(capsys.readouterr().out)
    assert (law["holds"], law["rows"], law["missing_rows"]) == (True, len(recorded_rows), 0)
    assert law["throttled_rows"] > 3_000
    # What they come to was kept meanwhile: minute by minute as the rows say, and in all as Spark counts them.
    for level in LEVELS:
        assert kept(usage_minutes(into, level)) == expected(recorded_rows, level)
    usage = (
        "usage",
        "--events",
        str(into),
        "--by",
        "user-client",
        "--top",
        "1000",
        "--output",
        "json",
    )
    told = []
    for more in ((), ("--minutes", "--since", "2000-01-01")):
        assert main([*usage, *more]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        told.append(
            {tuple(row[name] for name in NAMES): [row[name] for name in SUMS] for row in rows}
        )
    assert told[0] == told[1]


@pytest.mark.usefixtures("spark")
def test_a_second_call_takes_what_is_new_and_tells_what_is_missing(
    recorded_rows: list[EventRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    put(folder, recorded_rows[:500])
    put(folder, recorded_rows[700:1_000])
    places = ("--events", folder, "--into", into)

    first = ingested(capsys, *places)
    again = ingested(capsys, *places)
    put(folder, recorded_rows[450:700])
    (folder / "events-gw-run-000000000000-9.parquet").write_bytes(b"no Parquet")
    third = ingested(capsys, *places)

    assert numbers(first) == {**NONE, "batches": 1, "files": first["files"], "decisions": 800}
    gap = {"gateway": "gateway-1", "run_id": "run-1", "first_seq": 500, "last_seq": 699}
    assert (first["missing_decisions"], first["gaps"]) == (200, [gap])
    assert numbers(again) == NONE
    assert (again["missing_decisions"], again["gaps"]) == (200, [gap])
    assert numbers(third) == {"batches": 1, "files": 1, "decisions": 200, "repeated_decisions": 50}
    assert third["missing_decisions"] == 0
    (bad,) = third["bad"]  # type: ignore[misc]
    assert bad["source"].endswith("-9.parquet")
    assert "not a complete Parquet file" in bad["reason"]
    # With another checkpoint everything is looked at again, and nothing is taken twice.
    anew = ingested(capsys, *places, "--checkpoint", tmp_path / "checkpoint")
    assert (anew["decisions"], check(find_events([into])).rows) == (0, 1_000)


@pytest.mark.usefixtures("spark")
def test_what_came_since_is_taken_where_it_was_killed_before_spark_knew_that_a_batch_was_done(
    recorded_rows: list[EventRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    places = ("--events", folder, "--into", into)
    put(folder, recorded_rows[:100])
    assert ingested(capsys, *places)["decisions"] == 100
    for path in (into / "_ingest" / "checkpoint" / "commits").iterdir():
        path.unlink()  # as it is when the process dies then; Spark does the batch again
    put(folder, recorded_rows[100:200])

    told = ingested(capsys, *places)

    assert told["decisions"] == 100
    assert check(find_events([into])).rows == 200


@pytest.mark.usefixtures("spark")
def test_old_files_are_removed_and_what_was_in_them_is_not_taken_again(
    recorded_rows: list[EventRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    places = ("--events", folder, "--into", into)
    put(folder, recorded_rows[:500])
    assert ingested(capsys, *places)["decisions"] == 500
    put(folder, recorded_rows[500:900])
    assert ingested(capsys, *places, "--age-max", "1h")["decisions"] == 400
    assert find_events([into]).rows == 900
    assert len(compact(into, now_us=LATER_US).steps) > 0
    for path in into.glob("*.parquet"):
        os.utime(path, (1e9, 1e9))
    put(folder, recorded_rows[900:1_000])

    told = ingested(capsys, *places, "--age-max", "1h", "--bytes-max", "1TB")

    assert (told["decisions"], told["missing_decisions"]) == (100, 0)
    assert [(run.first_seq, run.last_seq) for run in find_events([into]).runs] == [(900, 999)]
    put(folder, recorded_rows[1_000:1_100])
    anew = ingested(capsys, *places, "--bytes-max", "1", "--checkpoint", tmp_path / "checkpoint")
    assert anew["decisions"] == 100
    assert len(list(into.glob("*.parquet"))) == 1


class Ingest:
    """A process that follows, with all that it has started."""

    def __init__(self, *arguments: str | Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "kvota.app.cli.main", "ingest", *map(str, arguments)]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stderr=stderr, stdout=stderr, start_new_session=True
            )

    def until_batches(self, count: int) -> None:
        end = time.monotonic() + SEEN_S
        while len(re.findall("kvota: batch", self._log.read_text())) < count:
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.02)

    def end(self, number: int) -> tuple[int, str]:
        """Returns the exit code, and what it has said."""
        self.process.send_signal(number)
        code = self.process.wait(SEEN_S)
        return code, self._log.read_text()

    def kill(self) -> None:
        """Python and the JVM at once; Spark's workers have a group of their own, and may write until they miss the JVM."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def until_workers_are_gone(self) -> None:
        """Wait for them behind ``kill``."""
        end = time.monotonic() + SEEN_S
        while str(self.process.pid) in self._sessions():
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)

    @staticmethod
    def _sessions() -> list[str]:
        shown = subprocess.run(["ps", "-eo", "sid="], capture_output=True, text=True, check=True)
        return shown.stdout.split()


def test_who_ends_it_in_the_midst_of_a_batch_is_told_no_more_than_that(tmp_path: Path) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    places = ("--events", folder, "--into", into)
    rows = list(RecordedTraffic(9, run_id="run-1", enforced=True).rows(600))
    rng = random.Random(9)
    by_sigterm, by_ctrl_c = (signal.SIGTERM, 0), (signal.SIGINT, 130)
    for begin, (number, expected_code) in enumerate((by_sigterm, by_ctrl_c, by_sigterm)):
        of_round = rows[200 * begin : 200 * (begin + 1)]
        put(folder, of_round[:50])
        ingest = Ingest(*places, "--follow", "--every", "100ms", *MASTER, log=tmp_path / "log")
        try:
            ingest.until_batches(1)
            moment = rng.randrange(50, 150)
            for row in range(50, moment, 2):
                put(folder, of_round[row : row + 2])
                time.sleep(0.03)
            code, said = ingest.end(number)
        finally:
            ingest.kill()

        assert code == expected_code, said
        assert "Traceback" not in said, said
        assert "py4j" not in said, said


@pytest.mark.usefixtures("spark")
def test_each_decision_is_there_once_after_kills_at_random_moments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, into = tmp_path / "record", tmp_path / "into"
    rows = list(RecordedTraffic(9, run_id="run-1", enforced=True).rows(400 * (KILLS + 1)))
    rng = random.Random(KILLS)
    places = ("--events", folder, "--into", into)
    killed = []
    for number in range(KILLS):
        of_round = rows[400 * number : 400 * (number + 1)]
        put(folder, of_round[:50])
        ingest = Ingest(*places, "--follow", "--every", "100ms", *MASTER, log=tmp_path / "log")
        try:
            ingest.until_batches(1)
            # Some rows every moment, so that it is always in the midst of a batch.
            end = time.monotonic() + rng.uniform(0.0, 2.0)
            for begin in range(50, 400, 10):
                put(folder, of_round[begin : begin + 10])
                if time.monotonic() < end:
                    time.sleep(0.05)
        finally:
            ingest.kill()
        killed.append(ingest)
    put(folder, rows[400 * KILLS :])
    for ingest in killed:
        ingest.until_workers_are_gone()  # what they write behind the last ingest's begin is the next one's to remove

    assert main(["ingest", *map(str, places), *MASTER]) == 0

    checked = check(find_events([into]))
    assert checked.is_sound, checked
    assert checked.rows == len(rows)
    assert [run.last_seq for run in find_events([into]).runs] == [len(rows) - 1]
    assert list((into / "_ingest").glob("*.ready")) == []
