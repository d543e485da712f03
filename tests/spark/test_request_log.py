"""Kafka's request log in place of a record, as people and programs see it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.pipeline.sources.log_text import line, produced

from kvota.app.cli.main import main
from kvota.record.check import check
from kvota.record.found_events import find_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.usefixtures("spark")]

Said = Callable[..., tuple[int, str, str]]
LINES = 900


def fetched(size: int) -> dict[str, Any]:
    partition = {"partitionIndex": 0, "abortedTransactions": [], "recordsSizeInBytes": size}
    topics = [{"topicId": "7Xg_UzSDTVyndBdb0Zc6Ww", "partitions": [partition]}]
    return {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 0, "responses": topics}


def some_lines(*, start: int = 0, count: int = LINES) -> list[str]:
    """Return a Produce and a Fetch in turn, four a second, of three users."""
    texts = []
    for number in range(start, start + count):
        second, part = divmod(number, 4)
        at = f"2026-11-21 01:{second // 60:02}:{second % 60:02},{part * 250:03}"
        who = {"principal": f"User:user-{number % 3}", "client_id": f"app-{number % 2}"}
        if number % 2:
            texts.append(
                line(at=at, key=1, version=16, request={}, response=fetched(number), **who)
            )
        else:
            texts.append(line(at=at, request=produced(number), **who))
    return texts


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two brokers; that of the first one was rolled in the middle of a line, and packed."""
    first, second = tmp_path / "logs/broker-1", tmp_path / "logs/broker-2"
    for folder in (first, second):
        folder.mkdir(parents=True)
    content = ("\n".join(some_lines()) + "\n").encode()
    cut = len(content) // 2
    (first / "kafka-request.log.1.gz").write_bytes(gzip.compress(content[:cut]))
    (first / "kafka-request.log").write_bytes(content[cut:])
    (second / "kafka-request.log").write_bytes(content)
    return tmp_path / "logs"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_usage_of_a_log_is_usage_of_what_it_becomes(log: Path, tmp_path: Path, say: Said) -> None:
    options = ("--output", "json", "--top", "99")
    place = ("--request-log", log, "--log-zone", "UTC", "--keep-events", tmp_path / "kept")

    code, of_log, err = say("usage", *place, *options)
    _, of_events, _ = say("usage", "--events", tmp_path / "kept", *options)
    assert code == 0, err
    assert json.loads(of_log) == json.loads(of_events)
    rows = {
        (row["user"], row["quota_type"], row["node_id"]): row for row in json.loads(of_log)["rows"]
    }
    assert rows["user-0", "PRODUCE", 1]["events"] == LINES / 6
    assert rows["user-0", "PRODUCE", 1]["value_sum"] == rows["user-0", "PRODUCE", 2]["value_sum"]
    sizes = sum(row["value_sum"] for row in rows.values() if row["quota_type"] == "PRODUCE")
    assert sizes == 2 * sum(
        38 + (number > 126) + number for number in range(0, LINES, 2)
    ) + 2 * 2 * (LINES // 2)
    assert "request log: 3 files of 2 brokers" in err
    assert "user-0, user-1, user-2" in err
    assert "1,800 lines became 3,600 events; 1 were cut at a roll and put together" in err
    assert "0 could not be read" in err
    found = find_events([tmp_path / "kept"])
    assert check(found).is_sound
    assert found.rows == 4 * LINES
    times = [
        row["ts_us"] for file in found.files[:1] for row in pq.read_table(file.path).to_pylist()
    ]
    assert times == sorted(times)


def test_ranges_of_a_file_give_what_the_file_gives(
    log: Path, tmp_path: Path, say: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--log-zone", "UTC", "--output", "json", "--top", "99")
    _, whole, _ = say("usage", "--request-log", log, *options)
    monkeypatch.setattr("kvota.pipeline.sources.request_log._RANGE_BYTES_MIN", 50_000)

    _, cut, _ = say("usage", "--request-log", log, *options)

    assert json.loads(cut) == json.loads(whole)


def test_bad_lines_are_set_aside_and_told(log: Path, tmp_path: Path, say: Said) -> None:
    path = log / "broker-2/kafka-request.log"
    before = path.stat().st_size
    with path.open("a") as out:
        out.write("java.lang.IllegalStateException: <b>no</b>\n\x1b[2Jx\n")
    place = ("--request-log", log, "--log-zone", "UTC", "--bad-file", tmp_path / "bad.json")

    code, _, err = say("usage", *place)

    assert code == 0, err
    assert "2 could not be read" in err
    assert "\x1b" not in err
    bad = [json.loads(text) for text in (tmp_path / "bad.json").read_text().splitlines()]
    assert [(one["path"], one["offset"]) for one in bad] == [
        (str(path), before),
        (str(path), before + 43),
    ]
    assert bad[1]["sample"] == "\x1b[2Jx"


def test_too_many_bad_lines_are_no_answer(log: Path, say: Said) -> None:
    with (log / "broker-2/kafka-request.log").open("a") as out:
        out.write("no line\n" * 40)

    code, out, err = say("usage", "--request-log", log, "--log-zone", "UTC")
    relaxed, _, _ = say("usage", "--request-log", log, "--log-zone", "UTC", "--max-bad", "5%")

    assert (code, out) == (3, "")
    assert (
        "40 of 1,840 lines of the request log cannot be read (2.2%), more than --max-bad 1.0%"
        in err
    )
    assert relaxed == 0


def test_a_line_of_50_mb_is_set_aside(log: Path, say: Said) -> None:
    with (log / "broker-2/kafka-request.log").open("a") as out:
        out.write(
            line(client_id="x" * 50_000_000) + "\n" + line(at="2026-11-21 02:00:00,000") + "\n"
        )

    code, _, err = say("usage", "--request-log", log, "--log-zone", "UTC")

    assert code == 0, err
    assert "it is longer than 16 MiB" in err
    assert "1,802 lines became 3,602 events" in err


def test_a_forwarded_change_counts_once_and_one_without_a_first_line_counts(
    tmp_path: Path, say: Said
) -> None:
    def creation(topic: str, number: int, *, forwarded: bool) -> str:
        request = {"topics": [{"name": topic, "numPartitions": 3, "assignments": []}]}
        answer = {"throttleTimeMs": 0, "topics": [{"name": topic, "errorCode": 0}]}
        return line(
            key=19,
            version=7,
            request=request,
            response=answer,
            forwarded=forwarded,
            correlation_id=number,
        )

    for node, lines in {
        1: [creation("a", 1, forwarded=False)],
        2: [creation("a", 1, forwarded=True), creation("auto", 2, forwarded=True)],
    }.items():
        folder = tmp_path / f"logs/broker-{node}"
        folder.mkdir(parents=True)
        (folder / "kafka-request.log").write_text("\n".join(lines) + "\n")

    _, out, err = say(
        "usage", "--request-log", tmp_path / "logs", "--log-zone", "UTC", "--output", "json"
    )

    mutations = [
        row for row in json.loads(out)["rows"] if row["quota_type"] == "CONTROLLER_MUTATION"
    ]
    assert sum(row["value_sum"] for row in mutations) == 6
    assert "2 requests that a controller logs a second time" in err


def test_a_log_without_charges_is_no_record(tmp_path: Path, say: Said) -> None:
    (tmp_path / "kafka-request.log").write_text(line(key=63, request={}, response={}) + "\n")

    code, _, err = say("usage", "--request-log", tmp_path, "--log-zone", "UTC")

    assert code == 1
    assert "no request of a client that is charged on a quota" in err


def test_replay_and_recommend_take_a_log(log: Path, say: Said) -> None:
    place = ("--request-log", log, "--log-zone", "UTC")

    replayed, out, _ = say("replay", *place, "--candidates", "100B/s", "--output", "json")
    planned, plan, _ = say(
        "recommend", *place, "--capacity", "PRODUCE=1MB/s", "--min-hours", "0", "--min-events", "10"
    )

    assert replayed == planned == 0
    assert {row["quota_per_s"] for row in json.loads(out)["rows"]} == {100}
    assert "user-0" in plan


def test_the_hour_that_clocks_put_back_and_a_client_that_calls_itself_a_script(
    tmp_path: Path, say: Said
) -> None:
    name = "<script>alert(1)</script>\x1b[2J"
    hours = ("01:59:00", "02:30:00", "02:59:00", "02:30:00", "03:00:00")
    lines = [line(at=f"2026-10-25 {hour},000", client_id=name) for hour in hours]
    (tmp_path / "kafka-request.log").write_text("\n".join(lines) + "\n")
    place = (
        "--request-log",
        tmp_path,
        "--log-zone",
        "Europe/Berlin",
        "--keep-events",
        tmp_path / "kept",
    )

    code, out, err = say("usage", *place, "--by", "client")
    _, of_events, _ = say(
        "usage", "--events", tmp_path / "kept", "--by", "client", "--output", "json"
    )

    assert code == 0, err
    assert "clocks were put back" in err
    assert "5 lines became 10 events; 0 could not be read" in err
    assert "\x1b" not in out + err
    assert {row["client_id"] for row in json.loads(of_events)["rows"]} == {name}
    (file,) = find_events([tmp_path / "kept"]).files
    times = [row["ts_us"] for row in pq.read_table(file.path).to_pylist()][::2]
    minutes = [round((time - times[0]) / 60e6) for time in times]
    assert minutes == [0, 31, 60, 91, 121]
