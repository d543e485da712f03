"""The frames of a consumer in a fetch session, made and read by hand: a hundred of them in one process must cost little."""

import struct

MAX_BYTES = 52_428_800  # as Java has it by default
PARTITION_BYTES = 1_048_576
_FETCH, _LIST_OFFSETS = 1, 2
_FETCH_VERSION, _LIST_OFFSETS_VERSION = 11, 1
_LATEST = -1


def _frame(key: int, version: int, body: bytes, client_id: str) -> bytes:
    head = struct.pack(">hhi", key, version, 1) + _text(client_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def fetch(
    topic: str,
    offset: int,
    *,
    client_id: str,
    max_wait_ms: int = 500,
    max_bytes: int = MAX_BYTES,
    partition_bytes: int = PARTITION_BYTES,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """Fetch v11 of partition 0; ``session``: id and epoch, (0, 0) asks for one, (0, -1) for none."""
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, 1)  # read committed
    body += struct.pack(">iii", *session, 1) + _text(topic)
    body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, partition_bytes)
    body += struct.pack(">ih", 0, 0)
    return _frame(_FETCH, _FETCH_VERSION, body, client_id)


def list_offsets(topic: str, *, client_id: str) -> bytes:
    """ListOffsets v1: where partition 0 ends."""
    body = struct.pack(">ii", -1, 1) + _text(topic) + struct.pack(">iiq", 1, 0, _LATEST)
    return _frame(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, body, client_id)


def end_offset_of(frame: bytes, topic: str) -> int:
    """Of an answer to ``list_offsets``."""
    # size, correlation id, count, name, count, partition, error, time
    at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    error, _, offset = struct.unpack_from(">hqq", frame, at)
    assert not error, f"ListOffsets: error {error}"
    return int(offset)


class FetchAnswer:
    """A whole Fetch v11 answer with one partition at most.

    Attributes:
        error: of the answer, else of its partition; 0: none.
        session_id: of the session it belongs to.
        records_at: where the records begin; at the frame's end where there are none.
    """

    def __init__(self, frame: bytes, topic: str) -> None:
        # size, correlation id, throttle time, error, session id, count of topics
        self._frame = frame
        self.error, self.session_id, topics = struct.unpack_from(">hii", frame, 12)
        self.records_at = len(frame)
        if not topics:
            return
        at = 22 + 2 + len(topic.encode()) + 4 + 4
        # error, high watermark, last stable offset, log start offset
        error, _, _, _, aborted = struct.unpack_from(">hqqqi", frame, at)
        self.error = self.error or error
        at += 30 + 16 * max(0, aborted)
        _, size = struct.unpack_from(">ii", frame, at)  # preferred replica, size of the records
        if size > 0:
            self.records_at = at + 8

    def next_offset(self, offset: int) -> int:
        """The one behind its records; ``offset`` where there are none."""
        at, frame = self.records_at, self._frame
        while at + 61 <= len(frame):
            base_offset, length = struct.unpack_from(">qi", frame, at)
            (last_delta,) = struct.unpack_from(">i", frame, at + 23)
            if at + 12 + length > len(frame):
                break
            offset = base_offset + last_delta + 1
            at += 12 + length
        return offset
