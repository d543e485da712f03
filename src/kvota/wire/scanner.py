"""Reads the fields of one message one after the other; every read is checked against the end.

It is for rare messages; frequent ones are read by code of their own. Nothing is allocated from an
announced count or length unless the bytes that are left suffice for it.
"""

from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.wire.steps import STEP_PARTS
from kvota.wire.varint import Bytes, read_uvarint

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_INT64 = Struct(">q").unpack_from
_FLOAT64 = Struct(">d").unpack_from

TOPIC_ID_BYTES = 16
TEXT_BYTES_MAX = 32_767  # an int16; Kafka limits compact strings to it, too
_TAG_BYTES_MIN = 2  # number, size
# Kafka's messages have at most a handful where they have any.
TAGS_MAX = 1_000
# A broker's answer may be as large as the cluster: 10 million partitions and replicas.
ITEMS_MAX = 10_000_000


class Scanner:
    """Keeps a position in a message; ``flexible`` says which encoding strings and arrays have.

    Attributes:
        data: the bytes scanned, usually a whole frame.
        at: offset of the next field.
        end: nothing is read from here on.
        flexible: compact lengths and tagged fields (KIP-482).
        items_left: so many items of arrays, and tagged fields, it may still have.
        what: the message, for errors: "CreateTopics v5 request".
    """

    __slots__ = ("_items_before", "_parts", "at", "data", "end", "flexible", "items_left", "what")

    def __init__(
        self,
        data: Bytes,
        at: int,
        end: int,
        *,
        flexible: bool,
        what: str,
        items_max: int = ITEMS_MAX,
    ) -> None:
        self.data = data
        self.at = at
        self.end = min(end, len(data))
        self.flexible = flexible
        self.items_left = items_max
        self.what = what
        self._parts = 0
        self._items_before = items_max

    def skip(self, length_bytes: int) -> int:
        """Steps over that many bytes; returns the offset where they began.

        Raises:
            ProtocolError: as all methods here: the message ends before.
        """
        at = self.at
        if length_bytes < 0 or length_bytes > self.end - at:
            problem = f"a field of {length_bytes} bytes, {max(0, self.end - at)} are left"
            raise self.fault(problem)
        self.at = at + length_bytes
        return at

    def take(self, length_bytes: int) -> bytes:
        """Reads that many bytes and copies them."""
        at = self.skip(length_bytes)
        return bytes(self.data[at : self.at])

    def int8(self) -> int:
        """Reads a signed byte."""
        byte = self.data[self.skip(1)]
        return byte - 256 if byte > 127 else byte

    def boolean(self) -> bool:
        """Reads a byte, which is true unless it is zero."""
        return self.data[self.skip(1)] != 0

    def int16(self) -> int:
        """Reads two bytes as a signed number."""
        value: int = _INT16(self.data, self.skip(2))[0]
        return value

    def int32(self) -> int:
        """Reads four bytes as a signed number."""
        value: int = _INT32(self.data, self.skip(4))[0]
        return value

    def int64(self) -> int:
        """Reads eight bytes as a signed number."""
        value: int = _INT64(self.data, self.skip(8))[0]
        return value

    def float64(self) -> float:
        """Reads eight bytes as a double."""
        value: float = _FLOAT64(self.data, self.skip(8))[0]
        return value

    def uvarint(self) -> int:
        """Reads an unsigned varint."""
        try:
            value, self.at = read_uvarint(self.data, self.at, self.end)
        except ProtocolError as fault:
            problem = "a varint without an end"
            raise self.fault(problem) from fault
        return value

    def blob(self) -> bytes | None:
        """Reads bytes (int32 length, or compact); returns None for null."""
        length_bytes = self._length() if self.flexible else self.int32()
        return self._body(length_bytes)

    def text(self) -> str | None:
        """Reads a string (int16 length, or compact); returns None for null."""
        at, data = self.at, self.data
        if (
            self.flexible
            and at < self.end
            and 0 < (behind := data[at]) < 0x80
            and at + behind <= self.end
        ):
            self.at = at + behind  # nearly all are short
            encoded: bytes | None = bytes(data[at + 1 : self.at])
        else:
            encoded = self._body(self._text_length())
        if encoded is None:
            return None
        try:
            return encoded.decode()
        except UnicodeDecodeError as fault:
            problem = f"a string that is not UTF-8: {encoded[:40]!r}"
            raise self.fault(problem) from fault

    def name(self) -> str:
        """Reads a string that must not be null."""
        text = self.text()
        if text is None:
            problem = "null where a string is required"
            raise self.fault(problem)
        return text

    def skip_text(self) -> None:
        """Steps over a string, null or not."""
        self._skip_body(self._text_length())

    def count(self, item_bytes_min: int) -> int:
        """Reads the number of items of an array (int32, or compact); returns -1 for null.

        ``item_bytes_min``: the least one item takes; a count for which the bytes left do not
        suffice is refused at once.
        """
        count = self._length() if self.flexible else self.int32()
        if count < -1 or count * item_bytes_min > self.end - self.at:
            problem = f"an array of {count} items, {self.end - self.at} bytes are left"
            raise self.fault(problem)
        self._take_items(max(0, count))
        return count

    def skip_tags(self) -> None:
        """Steps over a tag buffer, where the message has tag buffers at all."""
        if not self.flexible:
            return
        data, at = self.data, self.at
        if at < self.end and data[at] == 0:
            self.at = at + 1
            return
        for _ in range(self.tag_count()):
            self.uvarint()
            self.skip(self.uvarint())

    def tag_count(self) -> int:
        """Reads the number of tagged fields at the beginning of a tag buffer."""
        count = self.uvarint()
        if count > TAGS_MAX:
            problem = f"{count} tagged fields; at most {TAGS_MAX} are taken"
            raise self.fault(problem)
        if count * _TAG_BYTES_MIN > self.end - self.at:
            problem = f"{count} tagged fields, {self.end - self.at} bytes are left"
            raise self.fault(problem)
        self._take_items(count)
        return count

    def finish(self) -> None:
        """Refuses a message with bytes behind its last field."""
        if self.at != self.end:
            problem = f"{self.end - self.at} bytes behind the last field"
            raise self.fault(problem)

    def is_step_done(self) -> bool:
        """Asked behind each part that was read: true when others may have their turn (``wire.steps``).

        A part with many items or tagged fields is as much work as so many parts.
        """
        self._parts += 1 + self._items_before - self.items_left
        self._items_before = self.items_left
        if self._parts < STEP_PARTS:
            return False
        self._parts = 0
        return True

    def fault(self, problem: str) -> ProtocolError:
        """Makes the error to raise for a problem at the present position."""
        return ProtocolError(f"{self.what}: at byte {self.at}: {problem}")

    def _take_items(self, count: int) -> None:
        self.items_left -= count
        if self.items_left < 0:
            problem = "more items than one message may have; send several"
            raise self.fault(problem)

    def _length(self) -> int:
        return self.uvarint() - 1

    def _text_length(self) -> int:
        if not self.flexible:
            return self.int16()
        length_bytes = self._length()
        if length_bytes > TEXT_BYTES_MAX:
            problem = f"a string of {length_bytes} bytes; Kafka takes {TEXT_BYTES_MAX}"
            raise self.fault(problem)
        return length_bytes

    def _body(self, length_bytes: int) -> bytes | None:
        if length_bytes == -1:
            return None
        return self.take(length_bytes)

    def _skip_body(self, length_bytes: int) -> None:
        if length_bytes != -1:
            self.skip(length_bytes)
