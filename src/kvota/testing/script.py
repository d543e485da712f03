"""How a scripted broker behaves."""

from collections.abc import Sequence


class Script:
    """How a broker behaves; this one obliges. Override what shall be otherwise: each is asked once a request."""

    def delay_ms(self, key: int) -> int:  # noqa: ARG002
        """How long it takes to answer a request of this API."""
        return 0

    def throttle_ms(self, key: int) -> int:  # noqa: ARG002
        """The broker's own throttle time in the answer."""
        return 0

    def produce_error(self) -> int:
        """The error code of a Produce's partition."""
        return 0

    def authenticate_error(self) -> int:
        """The error code of a SaslAuthenticate."""
        return 0

    def fetched_bytes(self) -> int:
        """Records in each partition of a Fetch answer."""
        return 100

    def fetched_partitions(self) -> int:
        """Partitions of a Fetch answer."""
        return 1

    def named_nodes(self, key: int) -> Sequence[int]:  # noqa: ARG002
        """The nodes whose addresses stand at the end of a Produce or Fetch answer that is new enough."""
        return ()
