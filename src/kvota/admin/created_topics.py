"""Reads the answer to a CreateTopics, in which a broker repeats all settings for each topic.

Those of topics created alike are the same bytes: they are read once and shared. For 1,000 topics that is
1.1 MB and 36,000 settings.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kvota.client import Answer
from kvota.client.messages import decode
from kvota.wire.apis import CREATE_TOPICS
from kvota.wire.headers import answer_scanner
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner

_SETTINGS_FROM, _IDS_FROM = 5, 7
_SETTINGS_ERROR_TAG = 0
_NO_ID = bytes(TOPIC_ID_BYTES)

Settings = Mapping[str, str | None]


class CreatedRow(NamedTuple):
    """What an answer says of one topic; ``settings`` is None where they are not told."""

    name: str
    topic_id: UUID | None
    error_code: int
    error_message: str | None
    num_partitions: int
    replication_factor: int
    settings: Settings | None


class CreationAnswer(NamedTuple):
    """A whole answer."""

    throttle_time: timedelta
    rows: Sequence[CreatedRow]


def read_creation(version: int, frame: bytes) -> CreationAnswer:
    """Read an answer of any version, without the size before it.

    Raises:
        ProtocolError: it is no such answer.
    """
    if version < _SETTINGS_FROM:
        return _of(decode(CREATE_TOPICS, version, frame))
    whole = len(frame).to_bytes(4, "big") + frame
    scanner = answer_scanner(whole, CREATE_TOPICS, version)
    throttle_time = timedelta(milliseconds=scanner.int32())
    reader = _SettingsReader(whole)
    rows = [_row(scanner, version, reader) for _ in range(scanner.count(3))]
    scanner.skip_tags()
    scanner.finish()
    return CreationAnswer(throttle_time, rows)


def _of(answer: Answer) -> CreationAnswer:
    rows = [
        CreatedRow(
            str(topic.name), None, int(topic.error_code), topic.error_message, -1, -1, settings=None
        )
        for topic in answer.topics
    ]
    return CreationAnswer(answer.throttle_time, rows)


def _row(scanner: Scanner, version: int, reader: "_SettingsReader") -> CreatedRow:
    name = scanner.name()
    topic_id = scanner.take(TOPIC_ID_BYTES) if version >= _IDS_FROM else _NO_ID
    error_code = scanner.int16()
    message = scanner.text()
    partitions, replicas = scanner.int32(), scanner.int16()
    settings = reader.read(scanner)
    settings_error = _settings_error(scanner)
    return CreatedRow(
        name,
        None if topic_id == _NO_ID else UUID(bytes=topic_id),
        error_code,
        message,
        partitions,
        replicas,
        settings if partitions >= 0 and not settings_error else None,
    )


def _settings_error(scanner: Scanner) -> int:
    """The tags behind a topic: one says why its settings are not told."""
    found = 0
    for _ in range(scanner.tag_count()):
        tag = scanner.uvarint()
        size_bytes = scanner.uvarint()
        if tag == _SETTINGS_ERROR_TAG and size_bytes == 2:
            found = scanner.int16()
        else:
            scanner.skip(size_bytes)
    return found


class _SettingsReader:
    """Reads settings, and knows those before them again."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._encoded = b""
        self._settings: Settings = {}

    def read(self, scanner: Scanner) -> Settings:
        """Read the array at the scanner's place."""
        at = scanner.at
        if self._encoded and self._frame.startswith(self._encoded, at):
            scanner.skip(len(self._encoded))
            return self._settings
        settings: dict[str, str | None] = {}
        for _ in range(scanner.count(6)):
            name = scanner.name()
            settings[name] = scanner.text()
            scanner.skip(3)  # read only, source, sensitive
            scanner.skip_tags()
        self._encoded = self._frame[at : scanner.at]
        self._settings = MappingProxyType(settings)
        return self._settings
