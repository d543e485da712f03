"""Puts the gateway's addresses in the place of the brokers', in every answer that carries some.

Metadata, FindCoordinator, DescribeCluster, and the node endpoints of Produce v10+ and Fetch v16+
(KIP-951); among a broker's settings, which DescribeConfigs answers with, they are hidden. Only the
addresses change; all other bytes pass through, tags and error codes that nobody knows yet included.
An answer that cannot be read is refused and never forwarded.
"""

from collections.abc import Callable

from kvota.model.errors import ProtocolError
from kvota.wire import fetch, produce
from kvota.wire.address_rewrite import ADDRESS_BYTES_MIN, AddressOf, AddressRewrite
from kvota.wire.apis import (
    APIS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
)
from kvota.wire.broker_configs import hide_addresses, names_addresses
from kvota.wire.headers import answer_scanner, is_flexible, with_size
from kvota.wire.node_endpoints import rewrite_endpoints
from kvota.wire.scanner import Scanner

# (answer, key, version, address_of) → the answer with the gateway's addresses.
Rewrite = Callable[[bytes, int, int, AddressOf], bytes]
_REWRITES: dict[int, Rewrite] = {}


class UnknownNodeError(ProtocolError):
    """An answer names a node the gateway has no address for; nothing of it may be forwarded.

    Attributes:
        is_repeated: true where the same was said before.
    """

    is_repeated = False


def _rewrites(key: int) -> Callable[[Rewrite], Rewrite]:
    """Register a function for the answers of one API, whose row in ``apis`` has addresses."""

    def register(function: Rewrite) -> Rewrite:
        _REWRITES[key] = function
        return function

    return register


def rewrite(answer: bytes, key: int, version: int, address_of: AddressOf) -> bytes:
    """Returns the answer frame with the gateway's addresses; ``answer`` itself if it has none.

    Args:
        answer: a whole frame, size field included.
        key: of the request it answers.
        version: of the request it answers.
        address_of: (node id, host, port) of each address in the answer, in its order → the
            gateway's (host, port) instead. Entries without a host (a coordinator that is not
            known) are not asked for and stay. Controllers listed by DescribeCluster with endpoint
            type 2 are asked for like brokers. Not called for settings: their addresses are hidden.

    Raises:
        UnknownNodeError: from ``address_of``.
        ProtocolError: the bytes are not such an answer.
    """
    api = APIS.get(key)
    if api is None or version < api.addresses_from:
        return answer
    return _REWRITES[key](answer, key, version, address_of)


@_rewrites(PRODUCE)
def _produce(answer: bytes, _key: int, version: int, address_of: AddressOf) -> bytes:
    if answer.endswith(produce.PLAIN_TAIL):
        return answer
    tags_at = produce.tags_offset(answer, version)
    return _with_endpoints(answer, tags_at, address_of, f"Produce v{version} answer")


@_rewrites(FETCH)
def _fetch(answer: bytes, _key: int, version: int, address_of: AddressOf) -> bytes:
    if fetch.tail_has_no_endpoints(answer) or fetch.has_no_topics(answer):
        return answer
    tags_at = fetch.tags_offset(answer, version)
    return _with_endpoints(answer, tags_at, address_of, f"Fetch v{version} answer")


def _with_endpoints(answer: bytes, tags_at: int, address_of: AddressOf, what: str) -> bytes:
    section = rewrite_endpoints(answer[tags_at:], address_of, what=what)
    return answer if section is None else with_size([answer[:tags_at], section])


@_rewrites(METADATA)
def _metadata(answer: bytes, key: int, version: int, address_of: AddressOf) -> bytes:
    scanner = answer_scanner(answer, key, version)
    if version >= 3:
        scanner.skip(4)  # throttle
    return _with_brokers(scanner, address_of, rack=version >= 1, fenced=False)


@_rewrites(DESCRIBE_CLUSTER)
def _describe_cluster(answer: bytes, key: int, version: int, address_of: AddressOf) -> bytes:
    scanner = answer_scanner(answer, key, version)
    scanner.skip(4 + 2)  # throttle, error code
    scanner.skip_text()  # error message
    if version >= 1:
        scanner.skip(1)  # endpoint type
    scanner.skip_text()  # cluster id
    scanner.skip(4)  # controller id
    return _with_brokers(scanner, address_of, rack=True, fenced=version >= 2)


def _with_brokers(scanner: Scanner, address_of: AddressOf, *, rack: bool, fenced: bool) -> bytes:
    """Rewrites the array at the scanner's position and looks at nothing behind it."""
    rewrite_ = AddressRewrite(scanner, address_of)
    for _ in range(scanner.count(ADDRESS_BYTES_MIN)):
        rewrite_.address()
        if rack:
            scanner.skip_text()
        if fenced:
            scanner.skip(1)
        scanner.skip_tags()
    return _joined(rewrite_)


@_rewrites(FIND_COORDINATOR)
def _find_coordinator(answer: bytes, key: int, version: int, address_of: AddressOf) -> bytes:
    scanner = answer_scanner(answer, key, version)
    rewrite_ = AddressRewrite(scanner, address_of)
    if version >= 1:
        scanner.skip(4)  # throttle
    if version >= 4:
        for _ in range(scanner.count(1 + ADDRESS_BYTES_MIN + 2)):
            scanner.skip_text()  # key
            rewrite_.address()
            scanner.skip(2)  # error code
            scanner.skip_text()  # error message
            scanner.skip_tags()
    else:
        scanner.skip(2)  # error code
        if version >= 1:
            scanner.skip_text()  # error message
        rewrite_.address()
    scanner.skip_tags()
    scanner.finish()
    return _joined(rewrite_)


@_rewrites(DESCRIBE_CONFIGS)
def _describe_configs(answer: bytes, key: int, version: int, address_of: AddressOf) -> bytes:
    if not names_addresses(answer, flexible=is_flexible(key, version)):
        return answer
    rewrite_ = AddressRewrite(answer_scanner(answer, key, version), address_of)
    hide_addresses(rewrite_, version)
    return _joined(rewrite_)


def _joined(rewrite_: AddressRewrite) -> bytes:
    parts = rewrite_.parts()
    if parts is None:
        whole = rewrite_.scanner.data
        return whole if isinstance(whole, bytes) else bytes(whole)
    return with_size(parts)
