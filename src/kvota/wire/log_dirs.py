"""Reads how full a broker's volumes are out of a DescribeLogDirs answer, a little at a time.

A broker names all topics of each log directory, also where it was asked for none: the answer grows with the broker.
"""

from typing import NamedTuple

from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps

DESCRIBE_LOG_DIRS = 35
# The one version that is read: the first that tells sizes (Kafka 3.3, KIP-827).
VERSION_WITH_SIZES = 4
# Of one broker; nobody has as many.
LOG_DIRS_MAX = 1_000

# Error, name, topics, two sizes, tags.
_LOG_DIR_BYTES_MIN = 21
# Name, partitions, tags.
_TOPIC_BYTES_MIN = 3
# Index, size, lag, whether it is a future one.
_PARTITION_BYTES = 4 + 8 + 8 + 1


class LogDirSizes(NamedTuple):
    """What is told of one log directory; sizes below 0: they are not known."""

    error_code: int
    log_dir: str
    total_bytes: int
    usable_bytes: int


class DescribedLogDirs(NamedTuple):
    """An answer."""

    error_code: int
    log_dirs: list[LogDirSizes]


def read_log_dirs_in_steps(frame: bytes) -> Steps[DescribedLogDirs]:
    """Read an answer of ``VERSION_WITH_SIZES``, without the size before it.

    Raises:
        ProtocolError: it is no such answer, or names more than ``LOG_DIRS_MAX`` directories.
    """
    what = f"DescribeLogDirs v{VERSION_WITH_SIZES} answer"
    scanner = Scanner(frame, 4, len(frame), flexible=True, what=what)
    scanner.skip_tags()
    scanner.skip(4)  # throttle
    error_code = scanner.int16()
    count = scanner.count(_LOG_DIR_BYTES_MIN)
    if count > LOG_DIRS_MAX:
        problem = f"{count} log directories; at most {LOG_DIRS_MAX} are taken"
        raise scanner.fault(problem)
    log_dirs: list[LogDirSizes] = []
    for _ in range(count):
        error_of_dir, log_dir = scanner.int16(), scanner.name()
        yield from _skip_topics(scanner)
        log_dirs.append(LogDirSizes(error_of_dir, log_dir, scanner.int64(), scanner.int64()))
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
    scanner.skip_tags()
    scanner.finish()
    return DescribedLogDirs(error_code, log_dirs)


def _skip_topics(scanner: Scanner) -> Steps[None]:
    for _ in range(scanner.count(_TOPIC_BYTES_MIN)):
        scanner.skip_text()
        for _ in range(scanner.count(_PARTITION_BYTES + 1)):
            scanner.skip(_PARTITION_BYTES)
            scanner.skip_tags()
            if scanner.is_step_done():
                yield
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
