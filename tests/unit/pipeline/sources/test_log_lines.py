"""Lines are the same however a file is cut into ranges; long ones take no memory."""

import gzip
import io
import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.pipeline.sources import log_lines
from kvota.pipeline.sources.log_lines import Ending, Line, lines_of, open_log

LONGEST = 12

texts = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")), max_size=12)


def whole(content: bytes) -> list[Line]:
    """Return the lines in the simplest way."""
    *ended, last = content.split(b"\n")
    offsets = [0]
    for text in ended:
        offsets.append(offsets[-1] + len(text) + 1)
    lines = [(text, Ending.WHOLE) for text in ended] + ([(last, Ending.OPEN)] if last else [])
    return [
        Line(offset, text, ending) if len(text) <= LONGEST else Line(offset, text, Ending.TOO_LONG)
        for offset, (text, ending) in zip(offsets, lines, strict=False)
    ]


def told(line: Line) -> tuple[int, bytes, Ending]:
    """Return what is told of a line: of a long one how much is kept depends on how it was read."""
    return line.offset, line.text[:LONGEST], line.ending


@given(lines=texts, ends=st.booleans(), cuts=st.sets(st.integers(0, 200)), read=st.integers(1, 40))
def test_ranges_have_each_line_once(
    lines: list[bytes], ends: bool, cuts: set[int], read: int
) -> None:
    content = b"\n".join(lines) + b"\n" * ends
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(content)), None]
    before = log_lines._READ_BYTES
    log_lines._READ_BYTES = read
    try:
        found = [
            line
            for start, end in itertools.pairwise(edges)
            for line in lines_of(io.BytesIO(content), start or 0, end, longest=LONGEST)
        ]
    finally:
        log_lines._READ_BYTES = before

    assert [told(line) for line in found] == [told(line) for line in whole(content)]


def test_a_packed_log_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "kafka-request.log.1.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))

    with open_log(path) as stream:
        assert [line.text for line in lines_of(stream)] == [b"one", b"two"]


class Endless(io.RawIOBase):
    """A line of 50 MB that nobody has in memory, and a short one."""

    def __init__(self) -> None:
        self.left = 50_000_000
        self.behind = b"\nshort\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self.left:
            count = min(size, self.left)
            self.left -= count
            return b"x" * count
        found, self.behind = self.behind, b""
        return found


def test_a_line_of_50_mb_is_passed_over_in_little_memory() -> None:
    tracemalloc.start()
    found = list(lines_of(Endless()))  # type: ignore[arg-type]  # all that is needed of a stream
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [(line.offset, line.ending) for line in found] == [
        (0, Ending.TOO_LONG),
        (50_000_001, Ending.WHOLE),
    ]
    assert len(found[0].text) <= 1024
    assert peak_bytes < 45_000_000


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_file_without_text(content: bytes) -> None:
    assert [line.text for line in lines_of(io.BytesIO(content)) if line.text] == []
