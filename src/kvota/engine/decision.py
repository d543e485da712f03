"""What the engine answers to one charge."""

from dataclasses import dataclass

from kvota.model.event import Outcome


@dataclass(frozen=True, slots=True)
class Decision:
    """One charge decided.

    ``throttle_ms`` is Kafka's number, narrowed as Kafka narrows it; <= 0 does not throttle (a
    rejection with a tiny debt has 0). ``limit`` is the one it was held against, None: unlimited.
    """

    outcome: Outcome
    throttle_ms: int
    limit: float | None
