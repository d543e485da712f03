"""How full volumes are, out of DescribeLogDirs answers: as kio reads them, a little at a time, and hostile ones."""

import struct

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.frames import answer, parts
from kvota.wire.log_dirs import (
    DESCRIBE_LOG_DIRS,
    LOG_DIRS_MAX,
    VERSION_WITH_SIZES,
    LogDirSizes,
    read_log_dirs_in_steps,
)
from kvota.wire.steps import STEP_PARTS, at_once
from kvota.wire.varint import uvarint

OF = (DESCRIBE_LOG_DIRS, VERSION_WITH_SIZES, "response")
# Behind the size: correlation id, tags, throttle, error.
HEAD = struct.pack(">ibih", 7, 0, 0, 0)


def described(dirs: int, topics: int, partitions: int, error_code: int = 0) -> bytes:
    """An answer, without the size before it."""
    indexes = [
        {"partition_index": index, "partition_size": 9, "offset_lag": 8, "is_future_key": False}
        for index in range(partitions)
    ]
    of_topic = parts(*OF, "DescribeLogDirsPartition", *indexes)
    names = [{"name": f"topic-{number}", "partitions": of_topic} for number in range(topics)]
    of_dir = parts(*OF, "DescribeLogDirsTopic", *names)
    rows = [
        {"error_code": ErrorCode(56 if number == 1 else 0), "log_dir": f"/d{number}", "topics": of_dir}
        | {"total_bytes": 2**40 + number, "usable_bytes": number - 1}
        for number in range(dirs)
    ]  # fmt: skip
    results = parts(*OF, "DescribeLogDirsResult", *rows)
    told = answer(*OF[:2], correlation=7, results=results, error_code=ErrorCode(error_code))
    return bytes(told[4:])


def test_it_is_read_as_kio_writes_it() -> None:
    found = at_once(read_log_dirs_in_steps(described(3, 2, 2, 31)))

    assert found == (
        31,
        [
            LogDirSizes(0, "/d0", 2**40, -1),
            LogDirSizes(56, "/d1", 2**40 + 1, 0),
            LogDirSizes(0, "/d2", 2**40 + 2, 1),
        ],
    )


@pytest.mark.parametrize(("dirs", "topics", "partitions"), [(1, 5_000, 0), (2, 1, 5_000), (999, 9, 0)])  # fmt: skip
def test_it_is_read_a_little_at_a_time(dirs: int, topics: int, partitions: int) -> None:
    steps = list(read_log_dirs_in_steps(described(dirs, topics, partitions)))

    assert len(steps) >= dirs * topics * max(partitions, 1) // STEP_PARTS


def test_a_count_is_refused_before_anything_is_read_of_it() -> None:
    # The bytes would suffice for them, and are of no directory.
    frame = HEAD + uvarint(LOG_DIRS_MAX + 2) + b"\xff" * 21 * (LOG_DIRS_MAX + 1)

    with pytest.raises(ProtocolError, match="1001 log directories; at most 1000 are taken"):
        at_once(read_log_dirs_in_steps(frame))


def test_each_answer_that_is_cut_off_is_refused() -> None:
    whole = described(2, 2, 2)

    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            at_once(read_log_dirs_in_steps(whole[:end]))
    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        at_once(read_log_dirs_in_steps(whole + b"\0"))
