"""Puts the gateway's addresses in the place of the brokers', in every answer that carries some.

Metadata, FindCoordinator, DescribeCluster, and the node endpoints of Produce v10+ and Fetch v16+
(KIP-951), ShareFetch and ShareAcknowledge (KIP-932); among a broker's settings, which DescribeConfigs answers with, they are hidden. Only the
addresses change; all other bytes pass through, tags and error codes that nobody knows yet included.
An answer that cannot be read is refused and never forwarded.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvota.model.errors import ProtocolError
from kvota.wire import fetch, produce, share_fetch
from kvota.wire.address_rewrite import (
    ADDRESS_BYTES_MIN,
    COORDINATORS_MAX,
    AddressOf,
    AddressRewrite,
)
from kvota.wire.apis import (
    APIS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from kvota.wire.broker_configs import (
    BROKER_CONFIGS_BYTES_MAX,
    BROKER_CONFIGS_MAX,
    hide_addresses,
    names_addresses,
)
from kvota.wire.headers import (
    ANSWER_HEAD,
    answer_body_offset,
    answer_header_version,
    answer_scanner,
    is_flexible,
    with_size,
)
from kvota.wire.node_endpoints import (
    rewrite_endpoint_array,
    rewrite_endpoints,
    skip_endpoints,
)
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes, Frame

# (answer, key, version, address_of) → the answer with the gateway's addresses.
Rewrite = Callable[[Frame, int, int, AddressOf], Steps[Frame]]
_REWRITES: dict[int, Rewrite] = {}

# Within so much of a Metadata answer its brokers stand: 1,000 of them, with host names and racks.
METADATA_FRONT_BYTES_MAX = 2**20


class ProduceRewrite(NamedTuple):
    """A Produce answer with the gateway's addresses.

    Attributes:
        throttle_at: offset of its throttle time, -1 where it has none.
    """

    frame: Frame
    throttle_at: int


class MetadataFront(NamedTuple):
    """The beginning of a Metadata answer, with the gateway's addresses.

    Attributes:
        frame: with the size that the whole answer will have.
        replaced_bytes: of the broker's answer; what stands behind them passes.
    """

    frame: bytes
    replaced_bytes: int


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


def rewrite(answer: Frame, key: int, version: int, address_of: AddressOf) -> Frame:
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
    return at_once(rewrite_in_steps(answer, key, version, address_of))


def rewrite_in_steps(answer: Frame, key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    """Returns the same as ``rewrite``, made a little at a time.

    Raises:
        UnknownNodeError: from ``address_of``.
        ProtocolError: the bytes are not such an answer.
    """
    api = APIS.get(key)
    if api is None or version < api.addresses_from:
        return answer
    return (yield from _REWRITES[key](answer, key, version, address_of))


def rewrite_produce_in_steps(
    answer: Frame, version: int, address_of: AddressOf
) -> Steps[ProduceRewrite]:
    """Returns a Produce answer with the gateway's addresses, and where its throttle time stands.

    Raises:
        UnknownNodeError: from ``address_of``.
        ProtocolError: the bytes are not such an answer.
    """
    if not version:
        return ProduceRewrite(answer, -1)
    throttle_at = yield from produce.throttle_offset_in_steps(answer, version)
    if version >= APIS[PRODUCE].addresses_from and not answer.endswith(produce.PLAIN_TAIL):
        what = f"Produce v{version} answer"
        answer = _with_endpoints(answer, throttle_at + 4, address_of, what)
    return ProduceRewrite(answer, throttle_at)


def metadata_front(part: Bytes, version: int, address_of: AddressOf) -> MetadataFront | None:
    """Returns the beginning of a Metadata answer; None: not all brokers are in ``part``, its first bytes.

    Raises:
        UnknownNodeError: from ``address_of``.
        ProtocolError: the bytes are not such an answer, or its brokers take too much of it.
    """
    size_bytes, _ = ANSWER_HEAD.unpack_from(part)
    header_version = answer_header_version(METADATA, version)
    try:
        body_at = answer_body_offset(part, 0, len(part), header_version)
        assert body_at is not None, "there are many more bytes than a header has"
        what = f"Metadata v{version} answer, its first {len(part)} bytes"
        flexible = is_flexible(METADATA, version)
        scanner = Scanner(part, body_at, len(part), flexible=flexible, what=what)
        rewrite_ = _metadata_brokers(scanner, version, address_of)
    except UnknownNodeError:
        raise
    except ProtocolError:
        if len(part) < METADATA_FRONT_BYTES_MAX:
            return None
        raise
    front = b"".join((*rewrite_.replaced(), part[rewrite_.copied_to : scanner.at]))
    size_bytes += len(front) - scanner.at
    return MetadataFront(size_bytes.to_bytes(4, "big") + front[4:], scanner.at)


@_rewrites(PRODUCE)
def _produce(answer: Frame, _key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    return (yield from rewrite_produce_in_steps(answer, version, address_of)).frame


@_rewrites(FETCH)
def _fetch(answer: Frame, _key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    if fetch.tail_has_no_endpoints(answer) or fetch.has_no_topics(answer):
        return answer
    tags_at = yield from fetch.tags_offset_in_steps(answer, version)
    return _with_endpoints(answer, tags_at, address_of, f"Fetch v{version} answer")


def _with_endpoints(answer: Frame, tags_at: int, address_of: AddressOf, what: str) -> Frame:
    section = rewrite_endpoints(answer[tags_at:], address_of, what=what)
    return answer if section is None else with_size([answer[:tags_at], section])


@_rewrites(SHARE_FETCH)
def _share_fetch(answer: Frame, _key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    if answer.endswith(share_fetch.PLAIN_TAIL):
        return answer
    at = yield from share_fetch.endpoints_offset_in_steps(answer, version)
    what = f"ShareFetch v{version} answer"
    section = rewrite_endpoint_array(answer[at:], address_of, what=what)
    return answer if section is None else with_size([answer[:at], section])


@_rewrites(SHARE_ACKNOWLEDGE)
def _share_acknowledge(
    answer: Frame, key: int, version: int, address_of: AddressOf
) -> Steps[Frame]:
    scanner = answer_scanner(answer, key, version)
    rewrite_ = AddressRewrite(scanner, address_of)
    scanner.skip(4 + 2)  # throttle, error code
    scanner.skip_text()  # error message
    if version >= 2:
        scanner.skip(4)  # how long records are locked
    for _ in range(scanner.count(TOPIC_ID_BYTES + 1 + 1)):
        scanner.skip(TOPIC_ID_BYTES)
        for _ in range(scanner.count(4 + 2 + 1 + 8 + 1 + 1)):
            scanner.skip(4 + 2)  # index, error code
            scanner.skip_text()  # error message
            scanner.skip(4 + 4)  # leader, epoch
            scanner.skip_tags()
            scanner.skip_tags()
            if scanner.is_step_done():
                yield
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
    skip_endpoints(rewrite_)
    scanner.skip_tags()
    scanner.finish()
    return _joined(rewrite_, answer)


@_rewrites(METADATA)
def _metadata(answer: Frame, key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    yield from ()
    return _joined(
        _metadata_brokers(answer_scanner(answer, key, version), version, address_of), answer
    )


def _metadata_brokers(scanner: Scanner, version: int, address_of: AddressOf) -> AddressRewrite:
    if version >= 3:
        scanner.skip(4)  # throttle
    return _brokers(scanner, address_of, rack=version >= 1, fenced=False)


@_rewrites(DESCRIBE_CLUSTER)
def _describe_cluster(answer: Frame, key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    yield from ()
    scanner = answer_scanner(answer, key, version)
    scanner.skip(4 + 2)  # throttle, error code
    scanner.skip_text()  # error message
    if version >= 1:
        scanner.skip(1)  # endpoint type
    scanner.skip_text()  # cluster id
    scanner.skip(4)  # controller id
    return _joined(_brokers(scanner, address_of, rack=True, fenced=version >= 2), answer)


def _brokers(
    scanner: Scanner, address_of: AddressOf, *, rack: bool, fenced: bool
) -> AddressRewrite:
    """Rewrites the array at the scanner's position and looks at nothing behind it."""
    rewrite_ = AddressRewrite(scanner, address_of)
    for _ in range(rewrite_.count(ADDRESS_BYTES_MIN)):
        rewrite_.address()
        if rack:
            scanner.skip_text()
        if fenced:
            scanner.skip(1)
        scanner.skip_tags()
    return rewrite_


@_rewrites(FIND_COORDINATOR)
def _find_coordinator(answer: Frame, key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    scanner = answer_scanner(answer, key, version)
    rewrite_ = AddressRewrite(scanner, address_of)
    if version >= 1:
        scanner.skip(4)  # throttle
    if version >= 4:
        for _ in range(rewrite_.count(1 + ADDRESS_BYTES_MIN + 2, at_most=COORDINATORS_MAX)):
            scanner.skip_text()  # key
            rewrite_.address()
            scanner.skip(2)  # error code
            scanner.skip_text()  # error message
            scanner.skip_tags()
            if scanner.is_step_done():
                yield
    else:
        scanner.skip(2)  # error code
        if version >= 1:
            scanner.skip_text()  # error message
        rewrite_.address()
    scanner.skip_tags()
    scanner.finish()
    return _joined(rewrite_, answer)


@_rewrites(DESCRIBE_CONFIGS)
def _describe_configs(answer: Frame, key: int, version: int, address_of: AddressOf) -> Steps[Frame]:
    if len(answer) > BROKER_CONFIGS_BYTES_MAX:
        msg = (
            f"DescribeConfigs v{version} answer: {len(answer)} bytes; where a broker's settings are asked for, at"
            f" most {BROKER_CONFIGS_BYTES_MAX} are taken: ask for other resources apart from brokers"
        )
        raise ProtocolError(msg)
    if not (yield from names_addresses(answer, flexible=is_flexible(key, version))):
        return answer
    scanner = answer_scanner(answer, key, version, items_max=BROKER_CONFIGS_MAX)
    rewrite_ = AddressRewrite(scanner, address_of)
    yield from hide_addresses(rewrite_, version)
    return _joined(rewrite_, answer)


def _joined(rewrite_: AddressRewrite, answer: Frame) -> Frame:
    parts = rewrite_.parts()
    return answer if parts is None else with_size(parts)
