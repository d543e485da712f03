"""Which files are a request log, whose, in which order, and from when to when."""

import gzip
from pathlib import Path

import pytest
from tests.unit.pipeline.sources.log_text import line

from kvota.model.errors import UsageError
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_files import FoundLog, find_request_log
from kvota.pipeline.sources.log_layout import layout_of, zone_of
from kvota.pipeline.sources.log_twice import with_second_hours


def find(*places: Path, zone: str = "UTC") -> FoundLog:
    layout = layout_of()
    clock = LogClock(layout, zone_of(zone))
    return with_second_hours(find_request_log(places, layout, clock), layout, clock)


def write(path: Path, *times: str, user: str = "alice") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(line(at=time, principal=f"User:{user}") + "\n" for time in times)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_rolled_files_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    folder = tmp_path / "broker-7"
    write(folder / "kafka-request.log", "2026-11-21 03:00:00,000", "2026-11-21 03:30:00,000")
    write(folder / "kafka-request.log.1", "2026-11-21 02:00:00,000", user="bob")
    write(folder / "kafka-request.log.2.gz", "2026-11-21 01:00:00,000")
    write(folder / "kafka-request.log.2026-11-20-23", "2026-11-20 23:00:00,000")

    found = find(tmp_path)

    (broker,) = found.brokers
    assert (broker.name, broker.node_id) == ("broker-7", 7)
    assert [file.path.name for file in broker.files] == [
        "kafka-request.log.2026-11-20-23",
        "kafka-request.log.2.gz",
        "kafka-request.log.1",
        "kafka-request.log",
    ]
    assert (found.lines, found.users) == (5, {"alice", "bob"})
    assert found.last_us - found.first_us == 4.5 * 3_600_000_000


def test_each_folder_is_a_broker(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / f"broker-{number}" / "kafka-request.log", "2026-11-21 03:00:00,000")

    assert {broker.name: broker.node_id for broker in find(tmp_path).brokers} == {
        "broker-1": 1,
        "broker-2": 2,
    }


def test_brokers_that_names_do_not_tell_get_numbers_that_are_none(tmp_path: Path) -> None:
    for name in ("east/logs", "west/logs"):
        write(tmp_path / name / "kafka-request.log", "2026-11-21 03:00:00,000")

    brokers = find(tmp_path).brokers

    assert [broker.node_id for broker in brokers] == [-2, -3]
    assert len({broker.name for broker in brokers}) == 2


def test_other_logs_of_a_folder_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path / "kafka-request.log", "2026-11-21 03:00:00,000")
    (tmp_path / "server.log").write_text("[2026-11-21 03:00:00,000] INFO started (kafka)\n")

    found = find(tmp_path)

    assert [file.path.name for file in found.files] == ["kafka-request.log"]
    assert "server.log" in found.others[0]


def test_a_log_without_requests_is_refused_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-11-21 03:00:00,000] INFO started (kafka)\n")

    with pytest.raises(UsageError, match=r"server\.log: no line of a completed request"):
        find(path)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no request log in"):
        find(tmp_path)


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        find(tmp_path / "nowhere")


def test_another_pattern_is_asked_for_with_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "kafka-request.log"
    path.write_text(line().replace("[", "", 1) + "\n")

    with pytest.raises(UsageError, match="--log-pattern") as refused:
        find(path)

    assert "2026-11-21 00:42:21,114] DEBUG" in str(refused.value)


def test_a_log_of_kafka_2_7_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "kafka-request.log"
    path.write_text(
        "[2020-11-21 00:42:21,114] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=11) -- {} "
        "from connection 1;totalTime:1,principal:User:x (kafka.request.logger)\n"
    )

    with pytest.raises(UsageError, match=r"Kafka 2\.7 or earlier") as refused:
        find(tmp_path)

    assert "\n" not in str(refused.value)


def test_the_second_hour_of_one_name_begins_where_times_step_back(tmp_path: Path) -> None:
    times = [
        f"2026-10-25 {time},000"
        for time in ("01:59:59", "02:10:00", "02:59:00", "02:00:01", "02:59:59", "03:00:00")
    ]
    folder = tmp_path / "broker-1"
    first = write(folder / "kafka-request.log.1", *times[:4])
    write(folder / "kafka-request.log", *times[4:])

    found = find(tmp_path, zone="Europe/Berlin")

    (broker,) = found.brokers
    offset = sum(len(text) + 1 for text in first.read_text().splitlines()[:3])
    assert [file.second_from for file in broker.files] == [offset, 0]


def test_an_ordinary_night_has_no_second_hour(tmp_path: Path) -> None:
    write(tmp_path / "kafka-request.log", "2026-10-24 02:10:00,000", "2026-10-24 02:05:00,000")

    assert [file.second_from for file in find(tmp_path, zone="Europe/Berlin").files] == [None]
