"""Answers that name brokers: the client gets the gateway's addresses instead."""

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.rewriting import Rewriting
from kvota.wire import addresses
from kvota.wire.apis import DESCRIBE_CONFIGS, METADATA
from kvota.wire.broker_configs import asks_for_brokers
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame


class Addresses(Rewriting):
    """Metadata, FindCoordinator, DescribeCluster, DescribeConfigs: ``wire.apis`` says where they stand."""

    __slots__ = ()

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """The request goes on as it is.

        Raises:
            ProtocolError: it asks for more settings than one request may.
        """
        if head.key == DESCRIBE_CONFIGS and not asks_for_brokers(frame):
            route = caller.routes[head.key << 16 | head.version]
            caller.expect((head.correlation, Due.PASS, route))  # other resources have no addresses
            return frame
        return super().begin(caller, head, frame, now_us)

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:  # noqa: ARG002
        """Rewrite the addresses, and learn them.

        Raises:
            ProtocolError: it cannot be read, or names a node outside the range.
        """
        rewritten = yield from addresses.rewrite_in_steps(
            frame, self._key, self._version, caller.shared.topology.address_of
        )
        caller.is_let_in = True
        caller.learn_own_node()
        return rewritten

    @property
    def has_front(self) -> bool:
        """Metadata names its brokers first; it may be the largest of all answers."""
        return self._key == METADATA

    def front(self, caller: Caller, part: Frame) -> tuple[bytes, int] | None:
        """Rewrite the addresses at the beginning of a Metadata answer, and learn them.

        Raises:
            ProtocolError: it cannot be read, or names a node outside the range.
        """
        address_of = caller.shared.topology.address_of
        front = addresses.metadata_front(part, self._version, address_of)
        if front is not None:
            caller.learn_own_node()
        return front
