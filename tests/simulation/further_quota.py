"""A further quota on Produce requests: every fifth is refused, the others cost one."""

from collections.abc import Callable

from tests.simulation.asks import Ask
from tests.simulation.watch import TimedRows

from kvota.model.decision_sink import ADMITTED, THROTTLED, ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.session.produce_quota import Charge, ProduceRequest
from kvota.testing.scripted_broker import produced

# Its rows are told by their tags; they are no part of the law.
TAGS = "further"
_THROTTLE_MS = 250
_ERROR = 89


def refusal(version: int, correlation: int) -> bytes:
    """What a client gets whose Produce was refused."""
    return produced(version, correlation, throttle_ms=_THROTTLE_MS, error=_ERROR)


class FurtherQuota:
    """A ``ProduceQuota`` for the door that session has for more of them."""

    def __init__(self, rows: TimedRows, find: Callable[[int, int], Ask]) -> None:
        self._rows = rows
        self._find = find  # by number of the connection, and correlation id
        self._asked = 0

    def charge(self, request: ProduceRequest, now_us: int) -> Charge | bytes:
        self._asked += 1
        if self._asked % 5 == 0:
            correlation = int.from_bytes(request.frame[8:12], "big", signed=True)
            ask = self._find(request.connection, correlation)
            ask.is_refused = True
            return refusal(request.version, correlation) if ask.is_answered else b""
        memo = ChargeMemo(
            node_id=request.node_id,
            quota_type=QuotaType.PRODUCE,
            connection=request.connection,
            user=request.user,
            client_id=request.client_id,
            tags=TAGS,
            api_key=0,
            api_version=request.version,
            limit=None,
            samples=0,
            sample_ms=0,
            algorithm=Algorithm.SAMPLED_RATE,
            enforced=True,
        )
        throttle_ms = _THROTTLE_MS if self._asked % 3 == 0 else 0
        outcome = THROTTLED if throttle_ms else ADMITTED
        return Charge(memo, self._rows.next_seq(), now_us, 1, throttle_ms, outcome)
