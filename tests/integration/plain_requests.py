"""A plain request of every API in every version: names of things that are there, else the fields' defaults."""

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.static.primitive import TZAware, i64Timedelta

from kvota.testing.kafka_messages import milliseconds, payload_type, throttle, to_frame

_PLAIN: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": throttle(1_000),
    "timedelta_i64": i64Timedelta.parse(milliseconds(1_000)),
    "datetime_i64": TZAware.parse(datetime.datetime.fromtimestamp(1, tz=datetime.UTC)),
    "uuid": uuid.UUID(int=1),
    "float64": 1.0,
}


def plain_request(key: int, version: int, named: Mapping[str, object]) -> bytes:
    """A request frame with one item in each of its lists.

    Args:
        key: of an API that kio knows.
        version: one that kio knows.
        named: what the fields of these names have, wherever in the message they are; for a list: its items.
    """
    return to_frame(_entity(payload_type(key, version, "request"), named), correlation_id=7)


def _entity(kind: Any, named: Mapping[str, object]) -> Any:
    return kind(**{field.name: _value(field, named) for field in fields(kind)})


def _value(field: Field[Any], named: Mapping[str, object]) -> object:
    if field.name in named:
        return named[field.name]
    if "tag" in field.metadata and field.default is not MISSING:
        return field.default
    annotation: Any = field.type
    if get_origin(annotation) in {UnionType, Union}:
        annotation = next(each for each in get_args(annotation) if each is not type(None))
        if get_origin(annotation) is not tuple and field.metadata.get("kafka_type") != "uuid":
            return None if field.default is MISSING else field.default
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        kafka_type = field.metadata.get("kafka_type")
        return (_entity(inner, named) if kafka_type is None else _PLAIN.get(kafka_type, 0),)
    if field.default is not MISSING:
        return field.default
    kafka_type = field.metadata.get("kafka_type")
    return _entity(annotation, named) if kafka_type is None else _PLAIN.get(kafka_type, 0)
