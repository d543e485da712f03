"""What a report shows, as plain values; where they come from, and how they look, is decided elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One tenant's use of one quota at one broker, over the whole time.

    Attributes:
        counter_id: names the line.
        quota_type: of the quota.
        user: of the tenant; None: not part of the name.
        client_id: of the tenant; None: not part of the name.
        node_id: the broker; -1: all of them together.
        requests: how many there were.
        mean: rate, in the unit of the type.
        p50: of the whole seconds.
        p95: of the whole seconds.
        most: the largest mean of ten seconds.
        limit: the last one in force; None: none, or not this line's own.
        limit_is_shared: there is one, on a counter that others share.
        of_limit: the largest share of it in ten seconds; None: it had none of its own.
        throttled: share of its decisions that were throttled or rejected.
        is_enforced: whether it was held back, or only would have been.
    """

    counter_id: int
    quota_type: str
    user: str | None
    client_id: str | None
    node_id: int
    requests: int
    mean: float
    p50: float
    p95: float
    most: float
    limit: float | None
    limit_is_shared: bool
    of_limit: float | None
    throttled: float
    is_enforced: bool


@dataclass(frozen=True, slots=True)
class Window:
    """A line's rates in one window: quantiles of its whole seconds, and the limit in force at its end."""

    start_us: int
    p50: float
    p95: float
    most: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class Tried:
    """What one quota would have done to a line: the share of its requests over it.

    Attributes:
        quota: that was tried.
        as_recorded: had the requests come when they came (open loop).
        waiting: had clients waited (backlog).
    """

    quota: float
    as_recorded: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line with what its plots are made of."""

    line: Line
    windows: Sequence[Window]
    tried: Sequence[Tried]
    planned: float | None


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan changes for a line; None: no quota, or none that was replayed."""

    line: Line
    before: float | None
    after: float | None
    before_tried: Tried | None
    after_tried: Tried | None

    @property
    def is_change(self) -> bool:
        """Whether it has another limit after the plan."""
        return self.before != self.after

    @property
    def throttled_before(self) -> float:
        """The share that would be over, by the loop that throttles more; 0 without a quota."""
        return _larger(self.before_tried)

    @property
    def throttled_after(self) -> float:
        """The same after the plan."""
        return _larger(self.after_tried)


def _larger(tried: Tried | None) -> float:
    return 0.0 if tried is None else max(tried.as_recorded, tried.waiting)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan's consequences.

    Attributes:
        source: the file.
        lines: whom it changes something for, those it throttles most first.
        unchanged: how many lines keep their limit.
    """

    source: str
    lines: Sequence[Planned]
    unchanged: int


@dataclass(frozen=True, slots=True)
class LimitRow:
    """When a volume reaches a limit, in words."""

    kind: str
    limit_bytes: float
    reached: str
    interval: str
    likely: str
    is_likely: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlot:
    """One volume, with its forecast.

    Attributes:
        name: broker and log directories.
        total_bytes: its size.
        seen_us: when it was looked at (thinned out).
        seen_bytes: what was used then.
        ahead_us: hours to come.
        low: what is used then, the lower end of the 80 % interval.
        middle: the middle of the paths.
        high: the upper end.
        growth: a day, in words.
        history_h: hours of looks.
        is_short: too few for more than the least and largest growth.
        resets: hours that were left out.
        limits: of it.
    """

    name: str
    total_bytes: float
    seen_us: Sequence[int]
    seen_bytes: Sequence[float]
    ahead_us: Sequence[int]
    low: Sequence[float]
    middle: Sequence[float]
    high: Sequence[float]
    growth: str
    history_h: int
    is_short: bool
    resets: int
    limits: Sequence[LimitRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All of a report.

    Attributes:
        sources: where the decisions were read.
        is_sample: they were made up, for a first look.
        made_us: when the report was made.
        version: of kvota.
        by: what its lines are: user, client or user-client.
        first_us: the first moment that it tells of.
        last_us: the last one.
        decisions: recorded in that time.
        gateways: that recorded them.
        window_s: of the plots.
        lines: all of them, those nearest to their limit first.
        hidden_lines: how many more there are.
        drawn: the lines with plots.
        plan: the consequences of one, if it was given.
        horizon_h: of the forecasts.
        volumes: with a forecast.
        notes: what the reader has to know.
    """

    sources: Sequence[str]
    is_sample: bool = False
    made_us: int
    version: str
    by: str
    first_us: int
    last_us: int
    decisions: int
    gateways: Sequence[str]
    window_s: int
    lines: Sequence[Line]
    hidden_lines: int
    drawn: Sequence[Drawn]
    plan: Plan | None = None
    horizon_h: int = 72
    volumes: Sequence[VolumePlot] = ()
    hidden_volumes: int = 0
    notes: Sequence[str] = field(default=())
