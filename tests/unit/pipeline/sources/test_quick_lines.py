"""What a kernel reads of many lines at once is what is read of them one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.sources.log_text import line

from kvota.pipeline.sources.log_line import LineReader
from kvota.pipeline.sources.log_range import LogRange, LogReading, RangeFound, RangeReader
from kvota.pipeline.sources.quick_lines import QuickReader

# Most of them as they nearly always are: what is odd anywhere is not read by the kernel.
names = st.sampled_from(
    [*["app", "", "<script>", "x" * 200, "a,b"] * 5, 'a"b', "a\\", "müller", "CONTROLLER"]
)
numbers = st.sampled_from([0, 1, 126, 127, 128, 16_383, 16_384, 2_000_000, 2**31 - 1])
times = st.sampled_from([*[0.0, 0.5, 1.25, 24.31, 12345.678] * 5, 1e-4, 3])
minutes, seconds, fractions = st.sampled_from([0, 0, 0, 1]), st.integers(0, 59), st.integers(0, 999)
TOPIC_ID = "7Xg_UzSDTVyndBdb0Zc6Ww"


@st.composite
def produces(draw: st.DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from([0, 3, 7, 8, 9, 10, 11, 12, 13]))
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = [
            {"index": index, "recordsSizeInBytes": size}
            for index, size in enumerate(draw(st.lists(numbers, max_size=3)))
        ]
        name = {"topicId": TOPIC_ID} if version >= 13 else {"name": draw(names)}
        topics.append({**name, "partitionData": partitions})
    request = {
        "transactionalId": draw(st.sampled_from([None, None, None, None, "t"])),
        "acks": draw(st.sampled_from([0, 1, -1])),
        "timeoutMs": 30_000,
        "topicData": topics,
    }
    answer = {"responses": [{"name": draw(names)}], "throttleTimeMs": draw(numbers)}
    return {
        "key": 0,
        "version": version,
        "request": request,
        "response": draw(st.sampled_from([answer, ""])),
    }


@st.composite
def fetches(draw: st.DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from([4, *range(11, 19)]))
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = []
        for index, size in enumerate(draw(st.lists(numbers, max_size=3))):
            plain = {
                "partitionIndex": index,
                "errorCode": 0,
                "highWatermark": 9,
                "lastStableOffset": -1,
            }
            aborted = draw(
                st.sampled_from([*[[], None] * 5, [{"producerId": 1, "firstOffset": 2}]])
            )
            tags = draw(
                st.sampled_from([*[{}] * 9, {"currentLeader": {"leaderId": 1, "leaderEpoch": 2}}])
            )
            rest = {"abortedTransactions": aborted, "preferredReadReplica": -1}
            partitions.append(
                {**plain, "logStartOffset": 0, **tags, **rest, "recordsSizeInBytes": size}
            )
        name = {"topicId": TOPIC_ID} if version >= 13 else {"topic": draw(names)}
        topics.append({**name, "partitions": partitions})
    who = draw(st.sampled_from([{}, {"replicaId": -1}, {"replicaId": -1}, {"replicaId": 3}]))
    request = {**who, "maxWaitMs": 500, "topics": [{"topic": draw(names)}], "rackId": ""}
    answer = {"throttleTimeMs": draw(numbers), "errorCode": 0, "sessionId": 7, "responses": topics}
    return {"key": 1, "version": version, "request": request, "response": answer}


@st.composite
def others(draw: st.DrawFn) -> dict[str, Any]:
    request = draw(st.sampled_from([{}, {"groupId": "g", "topics": [{"name": "a", "b": [1]}]}]))
    answer = draw(
        st.sampled_from(
            [
                {"throttleTimeMs": 0},
                {"errorCode": 0, "throttleTimeMs": 250, "topics": [{"n": 1}]},
                {},
                "",
            ]
        )
    )
    key = draw(st.sampled_from([*[3, 8, 12, 18] * 3, *range(19, 30), 56, 83, 126, 127, 128, 1000]))
    return {"key": key, "version": 4, "request": request, "response": answer}


@st.composite
def texts(draw: st.DrawFn) -> str:
    fields = draw(st.one_of(produces(), fetches(), others()))
    minute, second, fraction = (draw(each) for each in (minutes, seconds, fractions))
    return line(
        at=f"2026-11-21 00:{minute:02}:{second:02},{fraction:03}",
        client_id=draw(st.none() | names | names | names),
        principal=draw(st.sampled_from([*["User:"] * 9, "Group:"])) + draw(names),
        listener=draw(names),
        throttleTimeMs=draw(numbers),
        localTimeMs=draw(times),
        sendTimeMs=draw(times),
        responseQueueTimeMs=draw(times),
        **fields,
    )


@contextmanager
def one_by_one() -> Iterator[None]:
    """Have lines read without the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        never = property(lambda _: None, lambda *_: None)
        patch.setattr(LineReader, "begin", never, raising=False)
        yield


def read(content: bytes) -> tuple[RangeFound, list[dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kafka-request.log"
        path.write_bytes(content)
        found = RangeReader(LogReading(zone="UTC"), Path(folder)).read(LogRange(0, str(path)))
        rows = [
            row for name in found.tables for row in pa.ipc.open_file(name).read_all().to_pylist()
        ]
    found.tables = []
    for bad in found.bad:
        object.__setattr__(bad, "path", "")
    return found, rows


@given(lines=st.lists(texts(), min_size=1, max_size=8))
def test_lines_are_the_same_by_the_kernel(lines: list[str]) -> None:
    ordinary = line(at="2026-11-21 00:00:00,000")
    content = ("\n".join([ordinary, *lines]) + "\n").encode()

    with one_by_one():
        expected = read(content)

    assert read(content) == expected


@given(
    text=texts(),
    place=st.integers(0, 3000),
    byte=st.sampled_from(list(b'0-.,"\\{}[]e1 ')),
)
def test_a_damaged_line_that_both_can_read_is_the_same(text: str, place: int, byte: int) -> None:
    damaged = bytearray(text.encode())
    damaged[place % len(damaged)] = byte
    content = line().encode() + b"\n" + bytes(damaged) + b"\n"

    with one_by_one():
        found, rows = read(content)
    found_by_kernel, rows_by_kernel = read(content)

    if not found.bad_count:
        assert (found_by_kernel, rows_by_kernel) == (found, rows)


def test_ordinary_lines_are_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = QuickReader.read

    def counted(self: QuickReader, *arguments: Any) -> Any:
        found = plain(self, *arguments)
        seen.append(len(found.places))
        return found

    monkeypatch.setattr(QuickReader, "read", counted)
    lines = [
        line(at=f"2026-11-21 00:{at // 60:02}:{at % 60:02},042", key=12 if at % 4 else 0)
        for at in range(0, 120, 2)
    ]

    found, rows = read(("\n".join(lines) + "\n").encode())

    # The first line of each minute says how the others of it begin.
    assert (sum(seen), found.rows) == (58, 90)
    assert len({row["ts_us"] for row in rows}) == 60
