"""What decisions come to, counted row by row: what is kept of usage is held against it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.usage_sums import LEVELS, minute_of
from kvota.testing.recorded_traffic import EventRow

# minute (Unix seconds), quota type, user, client id, node, enforced
Key = tuple[int, str, str | None, str | None, int, bool]


@dataclass
class Line:
    """A minute of a tenant."""

    events: int = 0
    decisions: int = 0
    throttled: int = 0
    rejected: int = 0
    throttle_ms_sum: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    taken: dict[int, float] = field(default_factory=dict)  # the same without what was given back
    last: tuple[int, float | None] = (-(2**63), None)

    @property
    def sums(self) -> tuple[float, ...]:
        """All that is summed."""
        counts = (self.events, self.decisions, self.throttled, self.rejected, self.throttle_ms_sum)
        return (*counts, sum(self.seconds.values()))

    @property
    def rate_max(self) -> float:
        """The busiest second."""
        return max(self.seconds.values())


def lines_of(rows: Iterable[EventRow], level: str) -> Mapping[Key, Line]:
    """Count rows, each of which is one decision."""
    names = LEVELS[level]
    lines: dict[Key, Line] = {}
    for row in rows:
        event = dict(zip(EVENT_SCHEMA.names, row, strict=True))
        second = event["ts_us"] // 1_000_000
        user, client_id = (event[n] if n in names else None for n in ("user", "client_id"))
        key = (second // 60 * 60, event["quota_type"], user, client_id, event["node_id"], event["enforced"])  # fmt: skip
        _count(lines.setdefault(key, Line()), event, second)
    return lines


def _count(line: Line, event: dict[str, object], second: int) -> None:
    outcome, kind, value = event["outcome"], event["quota_type"], event["value"]
    assert isinstance(value, float)
    rejected = outcome == "rejected"
    if rejected and kind == "FETCH":  # it waits for room
        line.throttled += 1
        line.decisions += 1
        line.throttle_ms_sum += event["throttle_ms"]
    elif (
        rejected and kind == "PRODUCE" and event["enforced"]
    ):  # it waits for its turn, and has another row
        pass
    else:
        line.throttled += outcome == "throttled"
        line.rejected += rejected
        line.events += value >= 0
        line.decisions += value >= 0 or outcome != "admitted"
        line.throttle_ms_sum += max(0, event["throttle_ms"])
    used = 0.0 if rejected and event["enforced"] else value
    line.seconds[second] = line.seconds.get(second, 0.0) + used
    line.taken[second] = line.taken.get(second, 0.0) + max(0.0, used)
    line.last = max(line.last, (event["ts_us"], event["limit"]), key=lambda pair: pair[0])


def assert_maxima(lines: pa.Table, by_hand: Mapping[Key, Line]) -> None:
    """The busiest second of each line is exact, or where something came late within what is possible."""
    columns = (lines[name].to_pylist() for name in ("rate_max", "parts"))
    for key, most, parts in zip(keys_of(lines), *columns, strict=True):
        line = by_hand[key]
        assert most == line.rate_max if parts == 1 else most <= max(line.taken.values())


def kept(lines: pa.Table) -> dict[Key, tuple[float, ...]]:
    """The same sums of lines that were kept; each key is there once."""
    columns = ("events", "decisions", "throttled", "rejected", "throttle_ms_sum", "value_sum")
    found = {
        key: tuple(line[name] for name in columns)
        for key, line in zip(keys_of(lines), _rows(lines), strict=True)
    }
    assert len(found) == lines.num_rows
    return found


def keys_of(lines: pa.Table) -> list[Key]:
    """The key of each line."""
    names = ("quota_type", "user", "client_id", "node_id", "enforced")
    parts = (lines[name].to_pylist() for name in names)
    return list(zip(minute_of(lines).tolist(), *parts, strict=True))


def _rows(lines: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lines.drop_columns(["window_start"]).to_pylist()
    return rows


def expected(rows: Iterable[EventRow], level: str) -> dict[Key, tuple[float, ...]]:
    """The sums of ``lines_of``."""
    return {key: line.sums for key, line in lines_of(rows, level).items()}
