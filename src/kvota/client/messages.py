"""Kafka's messages as kio has them, by key and version."""

import io
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from kvota.model.errors import ProtocolError, UsageError
from kvota.wire.headers import encode_request

Fields = Mapping[str, object]
# What a request holds: its fields, or its bytes behind the header, made elsewhere.
Content = Fields | bytes
# A message of kio's: its class follows from key and version, its attributes are the schema's fields.
Answer = Any


@cache
def known_versions(key: int) -> tuple[int, int]:
    """Return the lowest and the highest version of an API that can be spoken; (0, -1): none."""
    versions = [
        version
        for version, entities in schema_name_map.get(api_key_map.get(key, ""), {}).items()
        if EntityType.request in entities and EntityType.response in entities
    ]
    return (min(versions), max(versions)) if versions else (0, -1)


def api_name(key: int) -> str:
    """Return an API's name for people, e.g. ``describe_client_quotas``."""
    return api_key_map.get(key, f"API {key}")


def encode(key: int, version: int, content: Content, *, correlation: int, client_id: str) -> bytes:
    """Return a request as a frame with its size.

    Args:
        key: of the API.
        version: of the API.
        content: values by the schema's field names; nested ones are mappings, or lists of them. Or bytes.
        correlation: the answer's.
        client_id: as the broker's quotas see it.

    Raises:
        UsageError: the version has no such field, needs one that is missing, or a value is of
            another type.
    """
    if isinstance(content, bytes):
        return encode_request(key, version, correlation, content, client_id=client_id)
    schema: Any = load_request_schema(key, version)
    what = f"{api_name(key)} v{version}"
    try:
        request = _entity(schema, content, what)
        header_schema = schema.__header_schema__
        header = {"request_api_key": key, "request_api_version": version}
        optional = {"correlation_id": correlation, "client_id": client_id}
        head = header_schema(**header, **optional)
        frame = io.BytesIO()
        frame.write(bytes(4))
        entity_writer(header_schema)(frame, head)
        entity_writer(schema)(frame, request)
    except (SerialError, TypeError, ValueError, OverflowError) as error:
        msg = f"{what}: {error}"
        raise UsageError(msg) from error
    size = frame.tell() - 4
    frame.seek(0)
    frame.write(size.to_bytes(4, "big"))
    return frame.getvalue()


def decode(key: int, version: int, frame: bytes) -> Answer:
    """Return an answer from its frame, without the size.

    Raises:
        ProtocolError: it is no such answer.
    """
    schema: Any = load_response_schema(key, version)
    try:
        _, header_bytes = entity_reader(schema.__header_schema__)(frame, 0)
        return entity_reader(schema)(frame, header_bytes)[0]
    # kio raises what its parts raise on bytes that it does not understand.
    except (SerialError, ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        msg = f"{api_name(key)} v{version}: the answer cannot be read: {error}"
        raise ProtocolError(msg) from error


class _Shape(NamedTuple):
    """What a schema's fields are: all names, those without a default, and those that hold other entities."""

    names: frozenset[str]
    required: frozenset[str]
    nested: Mapping[str, Any]


def _entity(schema: Any, content: Fields, what: str) -> Any:
    shape = _shape_of(schema)
    if not content.keys() <= shape.names:
        unknown = next(name for name in content if name not in shape.names)
        msg = f"{what} has no {unknown}: the broker is too old for it"
        raise UsageError(msg)
    if not content.keys() >= shape.required:
        missing = next(field.name for field in fields(schema) if field.name in shape.required - content.keys())  # fmt: skip
        msg = f"{what} needs {missing}"
        raise UsageError(msg)
    values = dict(content)
    for name, value in content.items():
        if name in shape.nested:
            values[name] = _nested(value, shape.nested[name], f"{what}.{name}")
        elif isinstance(value, list):
            values[name] = tuple(value)
    return schema(**values)


def _nested(value: object, schema: Any, what: str) -> object:
    if isinstance(value, list | tuple):
        return tuple(_entity(schema, item, what) for item in value)
    return _entity(schema, value, what) if isinstance(value, Mapping) else value


@cache
def _shape_of(schema: Any) -> _Shape:
    hints = get_type_hints(schema)
    found = {field.name: _entity_in(hints[field.name]) for field in fields(schema)}
    return _Shape(
        names=frozenset(found),
        required=frozenset(
            field.name
            for field in fields(schema)
            if field.default is MISSING and field.default_factory is MISSING
        ),
        nested={name: entity for name, entity in found.items() if entity is not None},
    )


def _entity_in(hint: Any) -> Any:
    if hasattr(hint, "__dataclass_fields__"):
        return hint
    if get_origin(hint) in {tuple, Union, types.UnionType}:
        return next((found for part in get_args(hint) if (found := _entity_in(part))), None)
    return None
