"""Reads the brokers out of a Metadata answer, and leaves its topics unread: whoever asks about none has no use for any."""

from typing import NamedTuple

from kvota.model.cluster_view import BrokerView
from kvota.wire.address_rewrite import ADDRESS_BYTES_MIN, BROKERS_MAX
from kvota.wire.apis import METADATA
from kvota.wire.headers import is_flexible
from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps

_RACK_FROM, _CLUSTER_ID_FROM, _THROTTLE_FROM = 1, 2, 3


class ClusterBrokers(NamedTuple):
    """The head of an answer; ``controller_id`` is below 0 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerView]


def read_brokers_in_steps(frame: bytes, version: int) -> Steps[ClusterBrokers]:
    """Read an answer of any version, without the size before it, up to its topics.

    Raises:
        ProtocolError: as ``brokers_in_steps``.
    """
    what = f"Metadata v{version} answer"
    flexible = is_flexible(METADATA, version)
    scanner = Scanner(frame, 4, len(frame), flexible=flexible, what=what)
    scanner.skip_tags()
    if version >= _THROTTLE_FROM:
        scanner.skip(4)
    return (yield from brokers_in_steps(scanner, version))


def brokers_in_steps(scanner: Scanner, version: int) -> Steps[ClusterBrokers]:
    """Read on from behind the throttle time up to the topics.

    Raises:
        ProtocolError: it is no such answer, or names more than ``BROKERS_MAX`` brokers.
    """
    count = scanner.count(ADDRESS_BYTES_MIN)
    if count > BROKERS_MAX:
        problem = f"{count} brokers; at most {BROKERS_MAX} are taken"
        raise scanner.fault(problem)
    brokers: list[BrokerView] = []
    for _ in range(count):
        node_id, host, port = scanner.int32(), scanner.name(), scanner.int32()
        rack = scanner.text() if version >= _RACK_FROM else None
        scanner.skip_tags()
        brokers.append(BrokerView(node_id, (host, port), rack))
        if scanner.is_step_done():
            yield
    cluster_id = scanner.text() if version >= _CLUSTER_ID_FROM else None
    controller_id = scanner.int32() if version >= _RACK_FROM else -1
    return ClusterBrokers(cluster_id, controller_id, brokers)
