"""Further quotas that a Produce may be charged on, beside the one on its bytes."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvota.model.decision_sink import ChargeMemo


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """What a further quota gets to see of one request.

    Attributes:
        connection: number of the client's connection.
        user: the authenticated name.
        client_id: as the client stated it.
        node_id: the broker it goes to.
        version: of Produce.
        frame: the part that is here, from the size field on; at least the head.
    """

    connection: int
    user: str
    client_id: str
    node_id: int
    version: int
    frame: bytes


class Charge(NamedTuple):
    """One charge of one Produce: a row, once its answer is here.

    ``outcome`` is a code of ``model.decision_sink``.
    """

    memo: ChargeMemo
    seq: int
    ts_us: int
    value: float
    throttle_ms: int
    outcome: int

    @property
    def mute_ms(self) -> int:
        """How long its quota keeps the client back; 0 in shadow mode."""
        return self.throttle_ms if self.memo.enforced else 0


class ProduceQuota(Protocol):
    """A further quota; ``Shared.produce_quotas`` lists those in use."""

    def charge(self, request: ProduceRequest, now_us: int) -> Charge | bytes:
        """Charge one request, or refuse it.

        Returns:
            The charge; or the answer that the client gets in place of the broker's (empty with
            acks = 0), and then nothing of the request is forwarded.
        """
        ...
