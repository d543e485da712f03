"""Asks a broker what a client may see and alter: the gateway's own questions, and what answers say of rights.

DescribeAcls is asked in v1 (2.0), which every broker takes that has client quotas to alter (2.6).
"""

from typing import NamedTuple

from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_ACLS, DESCRIBE_CLIENT_QUOTAS
from kvota.wire.encode import encode_count, encode_float64, encode_text
from kvota.wire.headers import answer_scanner, encode_request, is_flexible
from kvota.wire.steps import STEP_PARTS, Steps

DESCRIBE_ACLS_VERSION = 1
# Every broker that has the API takes this one.
ALTER_VERSION = 0

_CLUSTER, _LITERAL, _ANY = 4, 3, 1
_CLUSTER_NAME = "kafka-cluster"
# No rule is for a user of this name, so the answer has none.
_NOBODY = "User:kvota asks whether there is an authorizer"
_ENTRY_BYTES_MIN = 2 + 1 + 1  # error code, message, count of parts
_PART_BYTES_MIN = 1 + 1


class Said(NamedTuple):
    """An error code, 0 for none, with the broker's words."""

    error_code: int
    message: str | None


class Answered(NamedTuple):
    """What a broker has said of each part of a question, and the throttle time it told."""

    said: tuple[Said, ...]
    throttle_ms: int


def describe_nothing(correlation_id: int, version: int) -> bytes:
    """Makes a DescribeClientQuotas request frame that no quota matches."""
    flexible = is_flexible(DESCRIBE_CLIENT_QUOTAS, version)
    strict = b"\1"
    body = encode_count(0, flexible=flexible) + strict + (b"\0" if flexible else b"")
    return encode_request(DESCRIBE_CLIENT_QUOTAS, version, correlation_id, body)


def alter_nothing(correlation_id: int) -> bytes:
    """Makes an AlterClientQuotas v0 request frame that is a mere validation, of removing what nobody has."""
    body = b"".join(
        (
            encode_count(1, flexible=False),
            encode_count(1, flexible=False),
            encode_text("user", flexible=False),
            encode_text(_NOBODY, flexible=False),
            encode_count(1, flexible=False),
            encode_text("producer_byte_rate", flexible=False),
            encode_float64(0.0),
            b"\1",  # remove
            b"\1",  # validate only
        )
    )
    return encode_request(ALTER_CLIENT_QUOTAS, ALTER_VERSION, correlation_id, body)


def describe_no_acls(correlation_id: int) -> bytes:
    """Makes a DescribeAcls request frame that no rule matches."""
    body = b"".join(
        (
            bytes((_CLUSTER,)),
            encode_text(_CLUSTER_NAME, flexible=False),
            bytes((_LITERAL,)),
            encode_text(_NOBODY, flexible=False),
            encode_text(None, flexible=False),  # host
            bytes((_ANY, _ANY)),  # operation, permission
        )
    )
    return encode_request(DESCRIBE_ACLS, DESCRIBE_ACLS_VERSION, correlation_id, body)


def scan_description(answer: bytes, version: int) -> Answered:
    """Reads the beginning of a whole DescribeClientQuotas answer frame.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(answer, DESCRIBE_CLIENT_QUOTAS, version)
    throttle_ms = scanner.int32()
    return Answered((Said(scanner.int16(), scanner.text()),), throttle_ms)


def scan_acls(answer: bytes) -> Answered:
    """Reads the beginning of a whole DescribeAcls answer frame.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(answer, DESCRIBE_ACLS, DESCRIBE_ACLS_VERSION)
    throttle_ms = scanner.int32()
    return Answered((Said(scanner.int16(), scanner.text()),), throttle_ms)


def scan_alteration(answer: bytes, version: int) -> Steps[Answered]:
    """Reads a whole AlterClientQuotas answer frame, a little at a time.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(answer, ALTER_CLIENT_QUOTAS, version)
    throttle_ms = scanner.int32()
    said = []
    for number in range(scanner.count(_ENTRY_BYTES_MIN)):
        if number % STEP_PARTS == STEP_PARTS - 1:
            yield
        said.append(Said(scanner.int16(), scanner.text()))
        for _ in range(scanner.count(_PART_BYTES_MIN)):
            scanner.skip_text()  # type, name
            scanner.skip_text()
            scanner.skip_tags()
        scanner.skip_tags()
    return Answered(tuple(said), throttle_ms)
