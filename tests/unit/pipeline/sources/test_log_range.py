"""A range of a log becomes tables; what cannot be read is set aside with its place and the reason."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.sources.log_text import line, produced

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.pipeline.sources.log_range import (
    LogRange,
    LogReading,
    RangeFound,
    RangeReader,
    found_text,
    parsed_found,
)

UTC = LogReading(zone="UTC")


def write(folder: Path, *lines: str, name: str = "kafka-request.log", end: str = "\n") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + end)
    return path


def read(
    part: LogRange, folder: Path, reading: LogReading = UTC
) -> tuple[RangeFound, list[dict[str, object]]]:
    found = RangeReader(reading, folder).read(part)
    rows: list[dict[str, object]] = []
    for name in found.tables:
        rows += pa.ipc.open_file(name).read_all().to_pylist()
    return found, rows


def of_path(path: Path) -> LogRange:
    return LogRange(0, str(path), node_id=3, gateway="broker-3", run_id="log-1")


def test_a_line_becomes_a_row_for_each_quota(tmp_path: Path) -> None:
    found, rows = read(of_path(write(tmp_path, line())), tmp_path)

    produce, request = sorted(rows, key=lambda row: str(row["quota_type"]))
    assert {
        "ts_us": 1795221741114000 - 750,
        "gateway": "broker-3",
        "node_id": 3,
        "quota_type": "PRODUCE",
        "user": "alice",
        "client_id": "app",
        "tags": "client-id=,user=alice",
        "value": 1039.0,
        "limit": None,
        "samples": 0,
        "outcome": "admitted",
        "enforced": True,
    }.items() <= produce.items()
    assert request["quota_type"] == "REQUEST"
    assert request["value"] == 2.0
    assert (found.lines, found.rows, found.bad_count) == (1, 2, 0)


def test_quotas_in_force_say_limit_and_counter(tmp_path: Path) -> None:
    quotas = ConfiguredQuotas({QuotaEntity("alice", "app"): {QuotaType.PRODUCE: 5000.0}})

    _, rows = read(
        of_path(write(tmp_path, line())), tmp_path, LogReading(zone="UTC", quotas=quotas)
    )

    produce = next(row for row in rows if row["quota_type"] == "PRODUCE")
    assert (produce["tags"], produce["limit"], produce["samples"], produce["sample_ms"]) == (
        "client-id=app,user=alice",
        5000.0,
        11,
        1000,
    )


def test_rows_are_in_the_order_of_their_charges(tmp_path: Path) -> None:
    slow = line(at="2026-11-21 00:42:23,000", sendTimeMs=1500.0)
    quick = line(at="2026-11-21 00:42:22,000")

    found, rows = read(of_path(write(tmp_path, quick, slow)), tmp_path)

    times = [row["ts_us"] for row in rows]
    assert times == sorted(times, key=lambda time: int(str(time)))
    assert [row["seq"] for row in rows] == list(range(4))
    assert found.steps_back == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("java.lang.IllegalStateException: no", "does not begin as the log4j pattern says"),
        ('[2026-11-21 00:42:21,114] DEBUG Completed request:{"a"', "line 1 column"),
        ("[2026-11-21 00:42:21,114] DEBUG Completed request:{}", "its JSON has no 'requestHeader'"),
        ("[2026-11-21 00:42:21,114] DEBUG Completed request:[]", ""),
        ("[2026-13-21 00:42:21,114] DEBUG Completed request:{}", "month must be in 1..12"),
        (line(version="x"), "is not what Kafka writes"),  # type: ignore[arg-type]
        (line(request={"topicData": None}), ""),
    ],
)
def test_a_bad_line_is_set_aside(text: str, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, line(), text, line())

    found, _ = read(of_path(path), tmp_path)

    (bad,) = found.bad
    assert (bad.path, bad.offset) == (str(path), len(line()) + 1)
    assert reason in bad.reason
    assert bad.sample == text[:1024]
    assert (found.bad_count, found.lines, found.rows) == (1, 3, 4)


def test_lines_of_other_loggers_are_counted(tmp_path: Path) -> None:
    other = "[2026-11-21 00:42:21,114] INFO Rolled new log segment (kafka.log.UnifiedLog)"

    found, _ = read(of_path(write(tmp_path, other, line())), tmp_path)

    assert (found.bad_count, found.other) == (0, {"lines of other loggers": 1})


def test_a_log_of_kafka_2_7_is_recognised(tmp_path: Path) -> None:
    old = (
        "[2020-11-21 00:42:21,114] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=8, "
        "clientId=app, correlationId=4) -- {acks=-1} from connection 1;totalTime:4.2 (kafka.request.logger)"
    )

    found, _ = read(of_path(write(tmp_path, old)), tmp_path)

    assert found.is_old


def test_a_step_of_the_clock_is_told(tmp_path: Path) -> None:
    lines = [line(at=f"2026-11-21 00:42:{second},000") for second in (20, 21, 17, 18)]

    found, _ = read(of_path(write(tmp_path, *lines)), tmp_path)

    assert found.steps_back == 1


def test_a_damaged_packed_file_gives_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "kafka-request.log.1.gz"
    packed = gzip.compress("\n".join(line(correlation_id=n) for n in range(4000)).encode())
    path.write_bytes(packed[: len(packed) // 2])

    found, _ = read(of_path(path), tmp_path)

    assert found.rows > 0
    assert "cannot be read further" in found.bad[-1].reason


def test_a_script_as_a_client_id_stays_what_it_is(tmp_path: Path) -> None:
    name = "<script>alert('x')</script>"

    _, rows = read(of_path(write(tmp_path, line(client_id=name))), tmp_path)

    assert {row["client_id"] for row in rows} == {name}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(cut=st.integers(1, 3 * 800), packed=st.booleans())
def test_a_line_that_was_cut_at_a_roll_is_whole_again(
    cut: int, packed: bool, tmp_path: Path
) -> None:
    lines = [line(request=produced(1000 + number)) for number in range(3)]
    content = "".join(text + "\n" for text in lines).encode()
    cut = min(cut, len(content) - 1)
    first = tmp_path / ("kafka-request.log.1.gz" if packed else "kafka-request.log.1")
    second = tmp_path / "kafka-request.log"
    first.write_bytes(gzip.compress(content[:cut]) if packed else content[:cut])
    second.write_bytes(content[cut:])

    found, rows = read(LogRange(0, str(first), behind=str(second)), tmp_path)
    others, more = read(LogRange(1, str(second), before=str(first)), tmp_path)

    sizes = [row["value"] for row in [*rows, *more] if row["quota_type"] == "PRODUCE"]
    assert sizes == [1039.0, 1040.0, 1041.0]
    assert found.bad_count + others.bad_count == 0


def test_the_end_of_a_log_that_is_being_written(tmp_path: Path) -> None:
    path = write(tmp_path, line(), line()[:300], end="")

    found, _ = read(of_path(path), tmp_path)

    assert found.rows == 2
    assert "it has no end" in found.bad[0].reason


def test_of_two_hours_of_one_name_the_second_one_begins_at_an_offset(tmp_path: Path) -> None:
    text = line(at="2026-10-25 02:30:00,000")
    path = write(tmp_path, text, text)
    part = LogRange(0, str(path), second_from=len(text) + 1)

    _, rows = read(part, tmp_path, LogReading(zone="Europe/Berlin"))

    first, second = (row["ts_us"] for row in rows if row["quota_type"] == "PRODUCE")
    assert int(str(second)) - int(str(first)) == 3_600_000_000


def test_what_was_found_goes_through_json(tmp_path: Path) -> None:
    fields = {
        "key": 19,
        "version": 7,
        "request": {"topics": [{"name": "a", "numPartitions": 2, "assignments": []}]},
        "response": {"throttleTimeMs": 0, "topics": [{"name": "a", "errorCode": 0}]},
    }
    path = write(tmp_path, "no line", line(**fields, forwarded=True), line(**fields), line())  # type: ignore[arg-type]
    found, _ = read(of_path(path), tmp_path)

    assert found.forwarded
    assert found.first_lines
    assert parsed_found(found_text(found)) == found
    assert json.loads(found_text(found))["bad_count"] == 1
