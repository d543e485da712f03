"""Bandwidth quotas: the way from one connection to the counter it is charged on."""

from collections.abc import Callable

from kvota.engine.arithmetic import INT32_MAX, saturate_to_int32


def _observe(_value: float, _now_ms: int, /) -> int:
    """A charge while no quota of the type exists: nothing is recorded, nobody is throttled."""
    return 0


def _everything(_now_ms: int, /) -> int:
    return INT32_MAX


class BandwidthLane:
    """What a connection keeps to charge one quota type; stale when the engine's version moved.

    ``charge(value, now_ms)`` records, then checks: 0, or Kafka's throttle in ms (<= 0 does not
    throttle). ``allowance(now_ms)``: whole bytes the window still takes, 0 to 2**31-1.
    ``refuse(value, now_ms)``: what a charge would be told, and nothing counted. All are bound methods
    of the counter, so that nothing stands between the hot path and it.
    """

    __slots__ = (
        "allowance",
        "charge",
        "limit",
        "refuse",
        "sample_ms",
        "samples",
        "tags",
        "window_bytes",
        "window_ms",
    )

    def __init__(  # noqa: PLR0913  (keywords, one per field)
        self,
        *,
        tags: str,
        limit: float | None = None,
        samples: int = 0,
        sample_ms: int = 0,
        charge: Callable[[float, int], int] = _observe,
        allowance: Callable[[int], int] = _everything,
        refuse: Callable[[float, int], int] = _observe,
    ) -> None:
        """Without a counter's methods: the lane of a type that has no quota."""
        self.tags = tags
        self.limit = limit
        self.samples = samples
        self.sample_ms = sample_ms
        # How long an empty window is, and what fits into it (Kafka's maxValueInQuotaWindow).
        self.window_ms = (samples - 1) * sample_ms
        self.window_bytes = (
            INT32_MAX if limit is None else saturate_to_int32(limit * (self.window_ms / 1000))
        )
        self.charge = charge
        self.allowance = allowance
        self.refuse = refuse
