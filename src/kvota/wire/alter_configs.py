"""AlterConfigs and IncrementalAlterConfigs: read resource by resource, and made of what is left of them.

A request is scanned into slices, never decoded and encoded again: one for fewer resources, or fewer of their
settings, is made of the original's bytes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvota.wire.apis import INCREMENTAL_ALTER_CONFIGS
from kvota.wire.encode import encode_count, encode_int16, encode_int32, encode_text, encode_words
from kvota.wire.headers import (
    answer_scanner,
    encode_answer,
    is_flexible,
    read_request_head,
    request_scanner,
    with_size,
)
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Bytes, Frame

# Resources and settings together, of a request that is looked into; others may have more.
ITEMS_MAX = 10_000
SET, DELETE, APPEND, SUBTRACT = range(4)

_RESOURCE_BYTES_MIN = 1 + 1 + 1  # type, name, settings
_CONFIG_BYTES_MIN = 1 + 1  # name, value
_RESULT_BYTES_MIN = 2 + 1 + 1 + 1  # error code, message, resource type, name

ResourceKey = tuple[int, str]


class Operation(NamedTuple):
    """What one setting of a resource shall be.

    Attributes:
        name: of the setting.
        value: may be null.
        operation: ``SET``, ``DELETE``, ``APPEND`` or ``SUBTRACT``; AlterConfigs only sets.
        at, end: its bytes in the frame.
    """

    name: str
    value: str | None
    operation: int
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class ResourceAsk:
    """The part of a request that is about one resource."""

    key: ResourceKey
    operations: tuple[Operation, ...]
    at: int  # its bytes in the frame
    configs_at: int  # of the array of its settings
    configs_end: int
    end: int


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """One request, with the places of its resources in it.

    Attributes:
        replaces: what is not named is deleted (AlterConfigs), instead of staying as it is.
    """

    frame: bytes
    flexible: bool
    replaces: bool
    resources: tuple[ResourceAsk, ...]
    resources_at: int  # of the array's count
    resources_end: int
    validate_only: bool


class Result(NamedTuple):
    """What has become of a resource; an error code of 0 is none."""

    key: ResourceKey
    error_code: int
    message: str | None


def announced_items(head: Bytes) -> int:
    """Returns how much memory the request takes at most that begins so while it is looked into, in topics."""
    size_bytes = int.from_bytes(head[:4], "big")
    # A setting takes 4 bytes or more, and half of what a topic takes.
    return min(size_bytes // 4, ITEMS_MAX) // 2


def scan_request(frame: bytes, key: int) -> Steps[AlterConfigsRequest]:
    """Reads a whole request frame, size field included, a little at a time.

    Raises:
        ProtocolError: it is no such request, or has more than ``ITEMS_MAX`` resources and settings.
    """
    is_incremental = key == INCREMENTAL_ALTER_CONFIGS
    head = read_request_head(frame, key)
    scanner = request_scanner(frame, key, items_max=ITEMS_MAX)
    resources = []
    for _ in range(scanner.count(_RESOURCE_BYTES_MIN)):
        at = scanner.at
        resource = (scanner.int8(), scanner.name())
        configs_at = scanner.at
        operations = []
        for _ in range(scanner.count(_CONFIG_BYTES_MIN)):
            config_at = scanner.at
            name = scanner.name()
            operation = scanner.int8() if is_incremental else SET
            value = scanner.text()
            scanner.skip_tags()
            operations.append(Operation(name, value, operation, config_at, scanner.at))
            if scanner.is_step_done():
                yield
        configs_end = scanner.at
        scanner.skip_tags()
        resources.append(
            ResourceAsk(resource, tuple(operations), at, configs_at, configs_end, scanner.at)
        )
        if scanner.is_step_done():
            yield
    resources_end = scanner.at
    validate_only = scanner.boolean()
    scanner.skip_tags()
    scanner.finish()
    return AlterConfigsRequest(
        frame=frame,
        flexible=is_flexible(key, head.version),
        replaces=not is_incremental,
        resources=tuple(resources),
        resources_at=head.body_at,
        resources_end=resources_end,
        validate_only=validate_only,
    )


def request_for(
    request: AlterConfigsRequest,
    *,
    left_out: Collection[ResourceKey],
    without: Mapping[ResourceKey, Callable[[str], bool]],
) -> bytes | None:
    """Makes the request frame that is left; None: no resource is.

    Args:
        request: all of it.
        left_out: these resources.
        without: tells which settings of a resource are left out.
    """
    kept: list[Bytes] = []
    count = 0
    for resource in request.resources:
        if resource.key not in left_out:
            count += 1
            kept += _resource(request, resource, without.get(resource.key))
    if not count:
        return None
    frame = request.frame
    return with_size(
        [
            frame[: request.resources_at],
            encode_count(count, flexible=request.flexible),
            *kept,
            frame[request.resources_end :],
        ]
    )


def _resource(
    request: AlterConfigsRequest,
    resource: ResourceAsk,
    is_left_out: Callable[[str], bool] | None,
) -> list[Bytes]:
    frame = request.frame
    if is_left_out is None:
        return [frame[resource.at : resource.end]]
    operations = [each for each in resource.operations if not is_left_out(each.name)]
    return [
        frame[resource.at : resource.configs_at],
        encode_count(len(operations), flexible=request.flexible),
        *(frame[each.at : each.end] for each in operations),
        frame[resource.configs_end : resource.end],
    ]


def own_answer(
    key: int, version: int, correlation_id: int, results: Sequence[Result], *, throttle_ms: int
) -> Steps[bytes]:
    """Makes a whole answer frame, a little at a time."""
    flexible = is_flexible(key, version)
    encoded = yield from _encoded(results, flexible=flexible)
    body = b"".join(
        (
            encode_int32(throttle_ms),
            encode_count(len(encoded), flexible=flexible),
            *encoded,
            b"\0" if flexible else b"",
        )
    )
    return encode_answer(key, version, correlation_id, body)


def with_results(answer: Frame, key: int, version: int, results: Sequence[Result]) -> Steps[bytes]:
    """Returns a broker's whole answer frame with further results before its own, a little at a time.

    Raises:
        ProtocolError: the bytes are not such an answer.
    """
    scanner = answer_scanner(answer, key, version)
    scanner.skip(4)  # throttle
    count_at = scanner.at
    count = scanner.count(_RESULT_BYTES_MIN)
    flexible = scanner.flexible
    encoded = yield from _encoded(results, flexible=flexible)
    return with_size(
        [
            bytes(answer[:count_at]),
            encode_count(max(0, count) + len(encoded), flexible=flexible),
            *encoded,
            memoryview(answer)[scanner.at :],
        ]
    )


def _encoded(results: Sequence[Result], *, flexible: bool) -> Steps[list[bytes]]:
    encoded: list[bytes] = []
    for at in range(0, len(results), STEP_PARTS):
        encoded += [_result(each, flexible=flexible) for each in results[at : at + STEP_PARTS]]
        yield
    return encoded


def _result(result: Result, *, flexible: bool) -> bytes:
    (resource_type, name), error_code, message = result
    return b"".join(
        (
            encode_int16(error_code),
            encode_words(message, flexible=flexible),
            resource_type.to_bytes(1, "big", signed=True),
            encode_text(name, flexible=flexible),
            b"\0" if flexible else b"",
        )
    )
