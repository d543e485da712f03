"""Answers that name brokers: the client gets the gateway's addresses instead."""

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.wire import addresses
from kvota.wire.apis import DESCRIBE_CONFIGS
from kvota.wire.broker_configs import asks_for_brokers


class Addresses(Exchange):
    """Metadata, FindCoordinator, DescribeCluster, DescribeConfigs: ``wire.apis`` says where they stand."""

    __slots__ = ("_key", "_version")

    def __init__(self, key: int, version: int) -> None:
        self._key = key
        self._version = version

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The request goes on as it is.

        Raises:
            ProtocolError: it asks for more settings than one request may.
        """
        if head.key == DESCRIBE_CONFIGS and not asks_for_brokers(frame):
            caller.expect((head.correlation, Due.PASS))  # other resources have no addresses
            return frame
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.key, head.version)))
        return frame

    def answered(self, caller: Caller, frame: bytes, now_us: int) -> bytes:  # noqa: ARG002
        """Rewrite the addresses, and learn them.

        Raises:
            ProtocolError: it cannot be read, or names a node outside the range.
        """
        rewritten = addresses.rewrite(
            frame, self._key, self._version, caller.shared.topology.address_of
        )
        caller.learn_own_node()
        return rewritten
