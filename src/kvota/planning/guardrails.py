"""Guardrails bound what a plan may change, and by how much at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvota.model.quota_type import QuotaType

# Below these a quota stops being usable at all: less than a request a second.
FLOORS: Mapping[QuotaType, float] = {
    QuotaType.PRODUCE: 16_384.0,  # one batch of the Java producer's default size
    QuotaType.FETCH: 16_384.0,
    QuotaType.REQUEST: 0.1,  # 10 requests of 100 µs in a second
    QuotaType.CONTROLLER_MUTATION: 0.1,  # a topic of six partitions in a minute
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """The bounds of one plan; the defaults are for a cluster that people depend on."""

    hours_min: float = 24.0
    events_min: int = 1000
    step_up_max: float = 2.0
    step_down_max: float = 0.5
    changes_max: int = 100
    keeps_median: bool = (
        True  # never below a tenant's median rate, however much it is above its share
    )
    floors: Mapping[QuotaType, float] = field(default_factory=lambda: FLOORS)
    exempt_users: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse steps that would go the wrong way."""
        if not (self.step_up_max >= 1 and 0 < self.step_down_max <= 1):
            msg = (
                f"steps of x{self.step_down_max} down and x{self.step_up_max} up: "
                "the first is above 0 and at most 1, the second at least 1"
            )
            raise ValueError(msg)
