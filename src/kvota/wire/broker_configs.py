"""Hides the addresses among a broker's settings, in whole DescribeConfigs answers.

These settings are those that brokers of Kafka 4.3 and 3.9 answer with, and ``host.name``, ``port``
and their like, which older brokers had. A setting that a broker has no definition of, such as a
plugin's, is sensitive to it, so its value is never in an answer (KIP-226).
"""

from kvota.wire.address_rewrite import AddressRewrite
from kvota.wire.apis import DESCRIBE_CONFIGS
from kvota.wire.encode import encode_text
from kvota.wire.headers import request_scanner
from kvota.wire.varint import Bytes

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


def is_address(name: str | None) -> bool:
    """Returns whether the setting's value contains addresses of the cluster's nodes."""
    return name is not None and (name in ADDRESS_CONFIGS or name.endswith(_BOOTSTRAP))


def asks_for_brokers(request: Bytes) -> bool:
    """Returns whether a whole DescribeConfigs request frame asks for settings of brokers.

    Raises:
        ProtocolError: it is no such request, or asks for more than ``ASKED_MAX`` resources and settings.
    """
    scanner = request_scanner(request, DESCRIBE_CONFIGS, items_max=ASKED_MAX)
    for _ in range(scanner.count(_ASKED_BYTES_MIN)):
        if scanner.int8() == BROKER_RESOURCE:
            return True
        scanner.skip_text()  # resource name
        for _ in range(scanner.count(1)):  # settings
            scanner.skip_text()
        scanner.skip_tags()
    return False


def names_addresses(answer: Bytes, *, flexible: bool) -> bool:
    """Returns whether such a setting may be in the answer.

    Topics' settings have none, and the answer for all topics of a cluster can be megabytes: this
    looks through them some thirty times faster than a scan of every field.
    """
    return any(trace in answer for trace in _TRACES[flexible])


def hide_addresses(rewrite: AddressRewrite, version: int) -> None:
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
            _config(rewrite, version, of_broker=resource_type == BROKER_RESOURCE)
        scanner.skip_tags()
    scanner.skip_tags()
    scanner.finish()


def _config(rewrite: AddressRewrite, version: int, *, of_broker: bool) -> None:
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
    if version >= 3:
        scanner.skip(1)  # type
        scanner.skip_text()  # documentation
    scanner.skip_tags()


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
