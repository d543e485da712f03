"""Hides the addresses among a broker's settings, in whole DescribeConfigs answers.

These settings are those that brokers of Kafka 4.3 and 3.9 answer with, and ``host.name``, ``port``
and their like, which older brokers had. A setting that a broker has no definition of, such as a
plugin's, is sensitive to it, so its value is never in an answer (KIP-226).
"""

import struct
from collections.abc import Container
from dataclasses import dataclass

from kvota.wire.address_rewrite import AddressRewrite
from kvota.wire.apis import DESCRIBE_CONFIGS
from kvota.wire.encode import encode_text
from kvota.wire.headers import request_scanner
from kvota.wire.scanner import Scanner
from kvota.wire.steps import STEP_BYTES, Steps
from kvota.wire.varint import Bytes, read_uvarint

ADDRESS_CONFIGS = frozenset(
    {
        "advertised.host.name",
        "advertised.listeners",
        "advertised.port",
        "controller.quorum.voters",
        "host.name",
        "listeners",
        "port",
        "zookeeper.connect",
    }
)
# controller.quorum.bootstrap.servers, and those of clients that run inside a broker.
_BOOTSTRAP = "bootstrap.servers"

# Of an answer in which a broker's settings are: a broker has some 400, with 1,500 synonyms, and tells its own only.
BROKER_CONFIGS_MAX = 10_000
BROKER_CONFIGS_BYTES_MAX = 4 * 2**20
# Resources, and settings asked for by name, in one request.
ASKED_MAX = 30_000

BROKER_RESOURCE = 4  # the other resource types have no such settings
_SENSITIVE = b"\1"
_NULL = 0xFFFF
_INT32 = struct.Struct(">i").unpack_from

# A name stands in an answer with its length in front, as brokers encode it.
_TRACES = {
    flexible: (
        _BOOTSTRAP.encode(),
        *(encode_text(name, flexible=flexible) for name in sorted(ADDRESS_CONFIGS)),
    )
    for flexible in (False, True)
}

_ASKED_BYTES_MIN = 1 + 1 + 1  # type, name, settings
_RESOURCE_BYTES_MIN = 2 + 1 + 1 + 1 + 1  # error code, message, type, name, count
_CONFIG_BYTES_MIN = 1 + 1 + 1 + 1 + 1  # name, value, read only, source, sensitive
_SYNONYM_BYTES_MIN = 1 + 1 + 1  # name, value, source


@dataclass(frozen=True, slots=True)
class AskedBrokers:
    """What a DescribeConfigs request asks of brokers.

    Attributes:
        brokers: in their order, each resource's name, empty for all brokers, and which of some settings are asked
            for, None: all. One name may be there several times, and each has an answer of its own.
        has_synonyms: each value is wanted from every source.
    """

    brokers: tuple[tuple[str, frozenset[str] | None], ...]
    has_synonyms: bool


def is_address(name: str | None) -> bool:
    """Returns whether the setting's value contains addresses of the cluster's nodes."""
    return name is not None and (name in ADDRESS_CONFIGS or name.endswith(_BOOTSTRAP))


def asked_brokers(request: Bytes, version: int, names: Container[str]) -> AskedBrokers | None:
    """Returns what a whole DescribeConfigs request frame asks of brokers; None: nothing.

    ``names``: of the settings that matter to whoever asks here; others are not kept.

    Raises:
        ProtocolError: it is no such request, or asks for more than ``ASKED_MAX`` resources and settings.
    """
    scanner = request_scanner(request, DESCRIBE_CONFIGS, items_max=ASKED_MAX)
    resources = scanner.count(_ASKED_BYTES_MIN)
    try:
        found = _asked_of_brokers(scanner, resources, names)
    except (IndexError, struct.error) as fault:
        problem = "it ends within its resources"
        raise scanner.fault(problem) from fault
    if not found:
        return None
    return AskedBrokers(tuple(found), has_synonyms=version >= 1 and scanner.boolean())


def _asked_of_brokers(
    scanner: Scanner, resources: int, names: Container[str]
) -> list[tuple[str, frozenset[str] | None]]:
    """Looks through so many resources; by hand, as this takes half the time of a scanner's methods."""
    data, at, flexible = scanner.data, scanner.at, scanner.flexible
    asked = resources
    found: list[tuple[str, frozenset[str] | None]] = []
    for _ in range(resources):
        of_broker = data[at] == BROKER_RESOURCE
        name_at, at = at + 1, _behind_text(data, at + 1, flexible)
        settings_at = at
        if flexible:
            settings, at = read_uvarint(data, at, scanner.end)
            settings -= 1
        else:
            settings = _INT32(data, at)[0]
            at += 4
        asked += max(0, settings)
        if asked > ASKED_MAX:
            problem = f"more than {ASKED_MAX} resources and settings in one request; send several"
            raise scanner.fault(problem)
        for _ in range(settings):
            at = _behind_text(data, at, flexible)
        if of_broker:
            scanner.at = name_at
            name = scanner.text() or ""
            scanner.at = settings_at
            keys = None
            if scanner.count(1) > 0:  # no names are all, too
                keys = frozenset(key for _ in range(settings) if (key := scanner.name()) in names)
            found.append((name, keys))
        if flexible and data[at]:
            scanner.at = at
            scanner.skip_tags()
            at = scanner.at
        else:
            at += flexible
    scanner.at = at
    return found


def _behind_text(data: Bytes, at: int, flexible: bool) -> int:  # noqa: FBT001  (a keyword costs more than the call)
    length = data[at]
    if not flexible:
        length = length << 8 | data[at + 1]
        return at + 2 if length == _NULL else at + 2 + length
    if length < 0x80:
        return at + (length or 1)
    length, at = read_uvarint(data, at, len(data))
    return at + length - 1


def names_addresses(answer: Bytes, *, flexible: bool) -> Steps[bool]:
    """Returns whether such a setting may be in the answer, looked for a little at a time.

    Topics' settings have none, and the answer for all topics of a cluster can be megabytes: this
    looks through them some thirty times faster than a scan of every field.
    """
    for trace in _TRACES[flexible]:
        if trace in answer:
            return True
        if len(answer) > STEP_BYTES:
            yield
    return False


def hide_addresses(rewrite: AddressRewrite, version: int) -> Steps[None]:
    """Makes the values null and marks them as sensitive, as a broker does with passwords.

    ``rewrite`` stands at the beginning of a DescribeConfigs answer's body.

    Raises:
        ProtocolError: the bytes are not such an answer.
    """
    scanner = rewrite.scanner
    scanner.skip(4)  # throttle
    for _ in range(scanner.count(_RESOURCE_BYTES_MIN)):
        scanner.skip(2)  # error code
        scanner.skip_text()  # error message
        resource_type = scanner.int8()
        scanner.skip_text()  # resource name
        for _ in range(scanner.count(_CONFIG_BYTES_MIN)):
            yield from _config(rewrite, version, of_broker=resource_type == BROKER_RESOURCE)
        scanner.skip_tags()
    scanner.skip_tags()
    scanner.finish()


def _config(rewrite: AddressRewrite, version: int, *, of_broker: bool) -> Steps[None]:
    scanner = rewrite.scanner
    is_hidden = is_address(scanner.text()) and of_broker
    was_blanked = _value(rewrite, is_hidden=is_hidden)
    scanner.skip(1 + 1)  # read only; source, or in v0 whether it is a default
    sensitive_at = scanner.skip(1)
    if was_blanked:
        rewrite.put(sensitive_at, _SENSITIVE)
    if version >= 1:
        for _ in range(scanner.count(_SYNONYM_BYTES_MIN)):
            is_address_too = is_address(scanner.text()) and of_broker
            _value(rewrite, is_hidden=is_hidden or is_address_too)
            scanner.skip(1)  # source
            scanner.skip_tags()
            if scanner.is_step_done():
                yield
    if version >= 3:
        scanner.skip(1)  # type
        scanner.skip_text()  # documentation
    scanner.skip_tags()
    if scanner.is_step_done():
        yield


def _value(rewrite: AddressRewrite, *, is_hidden: bool) -> bool:
    """Steps over a value; returns whether it had content, which is null now."""
    scanner = rewrite.scanner
    if not is_hidden:
        scanner.skip_text()
        return False
    value_at = scanner.at
    if not scanner.text():  # null or empty: nothing to hide
        return False
    rewrite.put(value_at, encode_text(None, flexible=scanner.flexible))
    return True
