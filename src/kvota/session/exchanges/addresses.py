"""Answers that name brokers: the client gets the gateway's addresses instead."""

from kvota.session.caller import Caller
from kvota.session.exchanges.rewriting import Rewriting
from kvota.wire import addresses
from kvota.wire.apis import METADATA
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame


class Addresses(Rewriting):
    """Metadata, FindCoordinator, DescribeCluster, and settings: ``wire.apis`` says where they stand."""

    __slots__ = ()

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:  # noqa: ARG002
        """Rewrite the addresses, and learn them.

        Raises:
            ProtocolError: it cannot be read, or names a node outside the range.
        """
        rewritten = yield from addresses.rewrite_in_steps(
            frame, self._key, self._version, caller.address_of
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
        address_of = caller.address_of
        front = addresses.metadata_front(part, self._version, address_of)
        if front is not None:
            caller.learn_own_node()
        return front
