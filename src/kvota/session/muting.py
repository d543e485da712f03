"""For whose counter a client is muted, and what of it is left when limits change."""

from dataclasses import dataclass

from kvota.engine import Lane
from kvota.model.quota_type import Algorithm, QuotaType


@dataclass(frozen=True, slots=True)
class Muting:
    """One quota's part in a mute.

    Attributes:
        lane: whose throttle it is.
        version: of the lane then.
        algorithm: of the counter then.
        limit: in force then, per second.
        client_id: as it stands in the row.
        until_ms: when it is over, by the wall clock.
        at_most_ms: how long it was; a clock that steps back makes it no longer.
    """

    lane: Lane
    version: int
    algorithm: Algorithm
    limit: float | None
    client_id: str
    until_ms: int
    at_most_ms: int

    @classmethod
    def begun(cls, lane: Lane, client_id: str, throttle_ms: int, now_ms: int) -> "Muting":
        """From now on."""
        until_ms = now_ms + throttle_ms
        return cls(lane, lane.version, lane.algorithm, lane.limit, client_id, until_ms, throttle_ms)

    def left_ms(self, now: Lane, now_ms: int) -> int:
        """How long it lasts still, where ``now`` is the lane of today.

        A sampled rate forgets what was charged a window ago, while a long throttle goes on: it is what the
        limit in force has still to pay for of what was charged then. Another algorithm counts from nothing.
        """
        peek_ms = now.peek(now_ms)
        is_same = (now.tags, now.node_id) == (self.lane.tags, self.lane.node_id)
        is_sampled = self.algorithm is now.algorithm is Algorithm.SAMPLED_RATE
        if not (is_same and is_sampled) or now.limit is None or now.is_blocked:
            return peek_ms
        left_ms = min(self.until_ms - now_ms, self.at_most_ms)
        if left_ms > 0 and self.limit is not None and self.limit != now.limit:
            # Kafka's throttle of a charge: value / limit, and no window.
            left_ms = int((left_ms + now.window_ms) * self.limit / now.limit) - now.window_ms
        left_ms = max(peek_ms, left_ms)
        return min(left_ms, now.sample_ms) if now.quota_type is QuotaType.REQUEST else left_ms
