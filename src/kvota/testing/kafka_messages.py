"""Whole Kafka frames with random contents, of every API and version that kio knows.

kio's classes are generated from Kafka's own message definitions, so they are an oracle that shares
no code with ``kvota.wire``. Everything comes from the random numbers passed in: a seed repeats it.
"""

import datetime
import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from random import Random
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import TZAware, i32, i32Timedelta, i64Timedelta

Kind = Literal["request", "response"]

_TYPES: dict[Kind, Literal[EntityType.request, EntityType.response]] = {
    "request": EntityType.request,
    "response": EntityType.response,
}
_TEXTS = ("", "a", "orders", "müller", "node-3.example", "x" * 127, "y" * 300)
_HOSTS = ("broker-1.inside", "10.1.2.3", "127.0.0.2", "b" * 130, "::1")
_INT_RANGES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ITEMS_MAX = 3
_MAKERS: dict[str, Callable[[Random], object]] = {
    "bytes": lambda rng: rng.choice((b"", bytes(20), rng.randbytes(rng.randrange(300)))),
    "records": lambda rng: rng.choice((b"", bytes(20), rng.randbytes(rng.randrange(300)))),
    "uuid": lambda rng: uuid.UUID(bytes=rng.randbytes(16)),
    "bool": lambda rng: rng.random() < 0.5,
    "error_code": lambda rng: rng.choice(list(ErrorCode)),
    "timedelta_i32": lambda rng: throttle(rng.choice((0, 1, 255, 2**31 - 1))),
    "timedelta_i64": lambda rng: i64Timedelta.parse(milliseconds(rng.randrange(2**40))),
    "datetime_i64": lambda rng: TZAware.parse(
        datetime.datetime.fromtimestamp(rng.randrange(2**31), tz=datetime.UTC)
    ),
    "uint16": lambda rng: rng.randrange(2**16),
    "float64": lambda rng: rng.random(),
}


def versions(key: int) -> list[int]:
    """The versions of an API that kio knows."""
    return sorted(schema_name_map[api_key_map[key]])


@cache
def payload_type(key: int, version: int, kind: Kind) -> Any:
    """The class of kio for one message."""
    module = load_payload_module(key, version, _TYPES[kind])
    return next(
        found
        for found in vars(module).values()
        if isinstance(found, type) and getattr(found, "__type__", None) is _TYPES[kind]
    )


@cache
def part_type(payload: Any, name: str) -> Any:
    """The class of kio for a part of a message, e.g. ``NodeEndpoint``; ``payload``: its class."""
    module = load_payload_module(payload.__api_key__, payload.__version__, payload.__type__)
    return getattr(module, name)


@dataclass(frozen=True, slots=True)
class RandomMessages:
    """Makes messages from one source of random numbers."""

    rng: Random

    def payload(self, key: int, version: int, kind: Kind, **given: object) -> Any:
        """A kio message; ``given`` fields are not random."""
        return self.entity(payload_type(key, version, kind), **given)

    def frame(self, key: int, version: int, kind: Kind, **given: object) -> bytes:
        """The same as a whole frame, size field and header included."""
        payload = self.payload(key, version, kind, **given)
        number = self.rng.randrange(-(2**31), 2**31)
        return to_frame(payload, correlation_id=number, client_id=self.rng.choice((None, *_TEXTS)))

    def entity(self, kind: Any, **given: object) -> Any:
        """A kio dataclass with random fields."""
        return kind(
            **{
                field.name: given[field.name]
                if field.name in given
                else self._field(field.type, field.metadata, field.name)
                for field in fields(kind)
            }
        )

    def _field(self, annotation: Any, metadata: Any, name: str) -> object:
        options = get_args(annotation) if get_origin(annotation) in {UnionType, Union} else ()
        if type(None) in options:
            if self.rng.random() < 0.2 and "tag" not in metadata:
                return None
            annotation = next(option for option in options if option is not type(None))
        if "tag" in metadata and self.rng.random() < 0.3 and get_origin(annotation) is tuple:
            return ()
        if get_origin(annotation) is tuple:
            inner = get_args(annotation)[0]
            count = self.rng.randrange(_ITEMS_MAX + 1)
            return tuple(self._value(inner, metadata, name) for _ in range(count))
        return self._value(annotation, metadata, name)

    def _value(self, annotation: Any, metadata: Any, name: str) -> object:
        kafka_type = metadata.get("kafka_type")
        if kafka_type is None:
            return self.entity(annotation)
        if kafka_type in _INT_RANGES:
            return self._integer(kafka_type, name)
        if kafka_type == "string":
            return self.rng.choice(_HOSTS if name == "host" else _TEXTS)
        return _MAKERS[kafka_type](self.rng)

    def _integer(self, kafka_type: str, name: str) -> int:
        if name == "port":
            return self.rng.choice((9092, 256, 65_280, 1, 65_535, 512, 40_000))
        if name in {"node_id", "broker_id"}:
            return self.rng.randrange(-1, 8)
        half = 1 << (_INT_RANGES[kafka_type] - 1)
        edges = (0, 1, -1, half - 1, -half)
        return self.rng.choice((*edges, self.rng.randrange(-half, half)))


def milliseconds(number: int) -> datetime.timedelta:
    """What kio holds a throttle time as."""
    return datetime.timedelta(milliseconds=number)


def throttle(number_ms: int) -> i32Timedelta:
    """A ``throttle_time`` for kio's messages."""
    return i32Timedelta.parse(milliseconds(number_ms))


def to_frame(payload: Any, *, correlation_id: int = 1, client_id: str | None = "client") -> bytes:
    """A kio message as a frame with size and header."""
    buffer = io.BytesIO()
    header = payload.__header_schema__
    if payload.__type__ is EntityType.request:
        head = header(
            request_api_key=payload.__api_key__,
            request_api_version=payload.__version__,
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
    else:
        head = header(correlation_id=i32(correlation_id))
    entity_writer(header)(buffer, head)
    entity_writer(type(payload))(buffer, payload)
    body = buffer.getvalue()
    return len(body).to_bytes(4, "big") + body


def from_frame(frame: bytes, key: int, version: int, kind: Kind) -> Any:
    """The kio message in a frame; checks that the frame is used up."""
    expected = payload_type(key, version, kind)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4, "the size does not fit"
    _header, header_bytes = entity_reader(expected.__header_schema__)(frame, 4)
    payload, payload_bytes = entity_reader(expected)(frame, 4 + header_bytes)
    assert 4 + header_bytes + payload_bytes == len(frame), "bytes behind the message"
    return payload


def body_offset(frame: bytes, key: int, version: int, kind: Kind) -> int:
    """Where the body begins, by kio's account."""
    expected = payload_type(key, version, kind)
    _header, header_bytes = entity_reader(expected.__header_schema__)(frame, 4)
    return 4 + header_bytes


class Mutation(Enum):
    """How ``mutate`` damages a frame."""

    FLIP = 0
    CUT = 1
    INSERT = 2
    HUGE = 3


def mutate(frame: bytes, rng: Random) -> bytes:
    """The frame with one to three faults; its size field is mended, so that parsers go on."""
    damaged = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(4, len(damaged)) if len(damaged) > 4 else 4
        match rng.choice(list(Mutation)):
            case Mutation.FLIP:
                damaged[at : at + 1] = rng.randbytes(1)
            case Mutation.CUT:
                del damaged[at:]
            case Mutation.INSERT:
                damaged[at:at] = rng.randbytes(rng.randrange(1, 9))
            case Mutation.HUGE:
                damaged[at : at + 5] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"))
    damaged[0:4] = (len(damaged) - 4).to_bytes(4, "big")
    return bytes(damaged)
