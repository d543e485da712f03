"""The report as one HTML file that loads nothing from elsewhere.

Every name in it was chosen by somebody else: the template escapes all texts, the plots theirs, and the numbers are JSON
that cannot end its element.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from math import isfinite
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from kvota.app.report.canvas import Canvas
from kvota.app.report.content import Content, Drawn, Line, Plan, Planned, VolumePlot
from kvota.app.report.plots import plan_plot, quota_plot, usage_plot, volume_plot
from kvota.app.report.wording import (
    broker_of,
    byte_scale,
    limit_text,
    name_of,
    rate_text,
    scale_of,
    share_text,
    span_text,
    whole_name,
)
from kvota.model.plain_text import name_on_screen
from kvota.model.units import format_bytes, format_moment

# Rows of the plan's plot, and lines of the large table on paper.
PLAN_ROWS_MAX = 24
_ON_PAPER_MAX = 60
# Numbers beside a plot are of so many points at most.
_NUMBERS_MAX = 120
# Beside whom a limit is tight.
_NEAR = 0.8


class Plot(NamedTuple):
    """One plot with what has to stand beside it."""

    svg: Markup
    caption: str
    unit: str
    window: str
    source: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Cell(NamedTuple):
    """A number as it is sorted and as it is read."""

    value: float
    text: str


class Row(NamedTuple):
    """One line of the large table."""

    name: str
    quota_type: str
    node_id: int
    broker: str
    cells: Sequence[Cell]
    of_limit: float
    of_limit_text: str
    throttled: float
    throttled_text: str


class Column(NamedTuple):
    """One column of it."""

    name: str
    is_text: bool = False


class Tile(NamedTuple):
    """One number at a glance."""

    value: str
    words: str
    is_alert: bool = False


COLUMNS = (
    Column("Tenant", is_text=True),
    Column("Quota", is_text=True),
    *map(
        Column,
        ("Broker", "Requests", "Mean", "95 %", "Most in 10 s", "Limit", "Of limit", "Held back"),
    ),
)


def page(content: Content) -> str:
    """Return the report."""
    return _Page(content).text()


@dataclass(frozen=True, slots=True)
class _Page:
    """A report in the making, with what its three kinds of plots are drawn on."""

    content: Content
    usages: Canvas = field(default_factory=Canvas)
    tried: Canvas = field(default_factory=Canvas)
    volumes: Canvas = field(default_factory=Canvas)

    def text(self) -> str:
        content = self.content
        script = _asset("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        environment = Environment(autoescape=True, undefined=StrictUndefined)
        return environment.from_string(_asset("page.html.j2")).render(
            content=content,
            title=self._title(),
            lead=self._lead(),
            made=format_moment(content.made_us),
            sources=self._source(),
            script=Markup(script),  # noqa: S704  (ours)
            script_hash=digest,
            style=Markup(_asset("page.css")),  # noqa: S704  (ours)
            numbers=island(content),
            tiles=list(self._tiles()),
            horizon=span_text(content.horizon_h * 3600),
            volumes=[
                {"name": volume.name, "plot": self._volume_plot(number, volume)}
                for number, volume in enumerate(content.volumes)
            ],
            limit_rows=[row for volume in content.volumes for row in _limit_rows(volume)],
            plan=None if content.plan is None else self._plan(content.plan),
            drawn=[self._drawn(number, drawn) for number, drawn in enumerate(content.drawn)],
            drawn_words=self._drawn_words(),
            table_words=self._table_words(),
            table_caption=f"Every line, {span_text(self._span_s())}; nearest to its limit first",
            columns=COLUMNS,
            rows=[_row(line) for line in content.lines],
            deep=_ON_PAPER_MAX if len(content.lines) > _ON_PAPER_MAX else 0,
        )

    def _span_s(self) -> float:
        return (self.content.last_us - self.content.first_us) / 1e6

    def _title(self) -> str:
        return f"{span_text(self._span_s())} until {format_moment(self.content.last_us, until='minutes')} UTC"

    def _lead(self) -> str:
        content = self.content
        gateways = ", ".join(map(name_on_screen, content.gateways[:5]))
        more = f" and {len(content.gateways) - 5} more" if len(content.gateways) > 5 else ""
        word = "gateway" if len(content.gateways) == 1 else "gateways"
        return (
            f"{content.decisions:,} decisions of {word} {gateways}{more}, {format_moment(content.first_us)} to "
            f"{format_moment(content.last_us)} UTC, counted by {content.by}. Who uses how much of which quota, and what others would do."
        )

    def _source(self) -> str:
        return ", ".join(self.content.sources)

    def _tiles(self) -> Iterator[Tile]:
        content, lines = self.content, self.content.lines
        held = [line for line in lines if line.throttled > 0]
        enforced = sum(line.is_enforced for line in held)
        over = sum(line.of_limit is not None and line.of_limit > 1 for line in lines)
        near = sum(line.of_limit is not None and _NEAR < line.of_limit <= 1 for line in lines)
        unlimited = sum(line.limit is None and not line.limit_is_shared for line in lines)
        yield Tile(
            f"{len(lines) + content.hidden_lines:,}",
            f"lines: tenants by {content.by}, quota and broker",
        )
        yield Tile(f"{enforced:,}", "of them were held back", is_alert=enforced > 0)
        yield Tile(f"{len(held) - enforced:,}", "would have been held back (shadow)")
        yield Tile(f"{over:,}", "used more than their limit for ten seconds")
        yield Tile(f"{near:,}", "more came within 20 % of it")
        yield Tile(f"{unlimited:,}", "have no limit")
        if content.volumes:
            reached = sum(
                any(limit.is_likely for limit in volume.limits) for volume in content.volumes
            )
            words = (
                f"disks are likely to reach a limit within {span_text(content.horizon_h * 3600)}"
            )
            yield Tile(f"{reached:,}", words, is_alert=reached > 0)
        if content.plan is not None:
            worse = sum(_is_worse(line) for line in content.plan.lines)
            yield Tile(f"{worse:,}", "would be held back more by the plan", is_alert=worse > 0)

    def _drawn_words(self) -> str:
        shown, all_ = len(self.content.drawn), len(self.content.lines) + self.content.hidden_lines
        if shown >= all_:
            return "Every line with its rates, and what other quotas would have done to it."
        return (
            f"{shown:,} of {all_:,} lines, those that used the largest share of their limit. The others are in the table below; "
            "--plots N draws more."
        )

    def _table_words(self) -> str:
        hidden = self.content.hidden_lines
        words = "A click on the head of a column sorts by it."
        return (
            words
            if not hidden
            else f"{words} {hidden:,} lines further from their limit are not in this file."
        )

    def _drawn(self, number: int, drawn: Drawn) -> dict[str, object]:
        line = drawn.line
        plots = []
        if drawn.windows:
            plots.append(self._usage_plot(f"u{number}", drawn))
        if drawn.tried:
            plots.append(self._quota_plot(f"q{number}", drawn))
        held = "held back" if line.is_enforced else "would have been held back"
        of_limit = "" if line.of_limit is None else f"; most of it used: {line.of_limit:.0%}"
        words = (
            f"{line.requests:,} requests, mean {rate_text(line.quota_type, line.mean)}, limit {limit_text(line)}{of_limit}; "
            f"{share_text(line.throttled)} of its decisions {held}."
        )
        return {"name": whole_name(line), "words": words, "plots": plots}

    def _usage_plot(self, name: str, drawn: Drawn) -> Plot:
        line = drawn.line
        rates = [window.most for window in drawn.windows]
        window = span_text(self.content.window_s)
        return Plot(
            Markup(usage_plot(self.usages, name, drawn, self.content.window_s)),  # noqa: S704  (escaped where it is drawn)
            "Rates over time.",
            scale_of(line.quota_type, rates)[1],
            f"{window} each, of one-second sums",
            self._source(),
            ("From (UTC)", "Median", "95 %", "Most", "Limit"),
            [
                (
                    format_moment(each.start_us),
                    *(rate_text(line.quota_type, rate) for rate in (each.p50, each.p95, each.most)),
                    "" if each.limit is None else rate_text(line.quota_type, each.limit),
                )
                for each in drawn.windows[:_NUMBERS_MAX]
            ],
        )

    def _quota_plot(self, name: str, drawn: Drawn) -> Plot:
        line = drawn.line
        return Plot(
            Markup(quota_plot(self.tried, name, drawn)),  # noqa: S704
            "Requests over each quota.",
            f"% of requests, against {scale_of(line.quota_type, [each.quota for each in drawn.tried])[1]}",
            f"all of the time, {span_text(self._span_s())}",
            f"{self._source()}, replayed",
            ("Quota", "As they came", "Clients wait"),
            [
                (
                    rate_text(line.quota_type, each.quota),
                    share_text(each.as_recorded),
                    share_text(each.waiting),
                )
                for each in sorted(drawn.tried, key=lambda each: each.quota)
            ],
        )

    def _volume_plot(self, number: int, volume: VolumePlot) -> Plot:
        step = max(1, len(volume.ahead_us) // 24)
        places = range(step - 1, len(volume.ahead_us), step)
        short = " Short: fewer than 72 h of looks." if volume.is_short else ""
        resets = f" Hours left out: {volume.resets}." if volume.resets else ""
        return Plot(
            Markup(volume_plot(self.volumes, f"v{number}", volume)),  # noqa: S704
            f"Used, and the forecast.{short}{resets}",
            f"{byte_scale([volume.total_bytes / 2])[1]}, the line at the top is its size",
            f"{span_text(volume.history_h * 3600)} of looks, {span_text(self.content.horizon_h * 3600)} ahead",
            self._source(),
            ("At (UTC)", "10 % below", "Middle", "90 % below"),
            [
                (
                    format_moment(volume.ahead_us[place]),
                    *(
                        format_bytes(values[place])
                        for values in (volume.low, volume.middle, volume.high)
                    ),
                )
                for place in places
            ],
        )

    def _plan(self, plan: Plan) -> dict[str, object]:
        shown = plan.lines[:PLAN_ROWS_MAX]
        hidden = len(plan.lines) - len(shown)
        worse = sum(_is_worse(line) for line in plan.lines)
        words = (
            f"The plan {plan.source} changes the limit of {len(plan.lines):,} lines and keeps that of {plan.unchanged:,}. "
            f"{worse:,} would have had more requests over their limit than before."
        )
        if hidden:
            words += f" The {len(shown)} that it throttles most are shown, {hidden:,} are not."
        plot = None
        if shown:
            plot = Plot(
                Markup(plan_plot("plan", shown)),  # noqa: S704
                "Requests over the limit, before and after; the numbers are those of the table.",
                "% of requests",
                f"all of the time, {span_text(self._span_s())}",
                f"{self._source()}, replayed under {plan.source}",
                (),
                (),
            )
        return {
            "words": words,
            "plot": plot,
            "caption": "Share of requests over the limit, by the loop (as they came, or clients wait) that throttles more",
            "rows": [_plan_row(line) for line in shown],
        }


def island(content: Content) -> Markup:
    """Return the numbers as JSON for a script element; no text in it can end the element, or begin a comment."""
    kept = {
        "schema": 1,
        "by": content.by,
        "first_us": content.first_us,
        "last_us": content.last_us,
        "decisions": content.decisions,
        "window_s": content.window_s,
        "hidden_lines": content.hidden_lines,
        "lines": [_line_json(line) for line in content.lines],
        "drawn": [
            {
                "counter_id": str(drawn.line.counter_id),
                "planned_per_s": drawn.planned,
                "windows": [asdict(window) for window in drawn.windows],
                "tried": [asdict(tried) for tried in drawn.tried],
            }
            for drawn in content.drawn
        ],
        "plan": None
        if content.plan is None
        else [
            {
                "counter_id": str(line.line.counter_id),
                "before_per_s": line.before,
                "after_per_s": line.after,
                "over_before_ratio": None if line.before_tried is None else line.throttled_before,
                "over_after_ratio": None if line.after_tried is None else line.throttled_after,
            }
            for line in content.plan.lines
        ],
        "volumes": [asdict(volume) for volume in content.volumes],
    }
    try:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
    except ValueError:  # seldom, and to look at every number takes as long as to write it
        text = json.dumps(_finite(kept), separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704  (escaped above)


def _line_json(line: Line) -> dict[str, object]:
    return {
        "counter_id": str(line.counter_id),
        "quota_type": line.quota_type,
        "user": line.user,
        "client_id": line.client_id,
        "node_id": line.node_id,
        "events": line.requests,
        "rate_mean_per_s": line.mean,
        "rate_p50_per_s": line.p50,
        "rate_p95_per_s": line.p95,
        "rate_10s_max_per_s": line.most,
        "limit_per_s": line.limit,
        "limit_is_shared": line.limit_is_shared,
        "limit_ratio": line.of_limit,
        "throttled_ratio": line.throttled,
        "enforced": line.is_enforced,
    }


def _finite(value: object) -> object:
    """What is no number (NaN, an infinity) is null."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _row(line: Line) -> Row:
    rates = [
        Cell(rate, rate_text(line.quota_type, rate)) for rate in (line.mean, line.p95, line.most)
    ]
    mode = "" if line.is_enforced or not line.throttled else "would be "
    return Row(
        name_of(line),
        line.quota_type,
        line.node_id,
        broker_of(line.node_id),
        (
            Cell(line.requests, f"{line.requests:,}"),
            *rates,
            Cell(-1.0 if line.limit is None else line.limit, limit_text(line)),
        ),
        -1.0 if line.of_limit is None else line.of_limit,
        "" if line.of_limit is None else f"{line.of_limit:.0%}",
        line.throttled,
        f"{mode}{share_text(line.throttled)}",
    )


def _limit_rows(volume: VolumePlot) -> Iterator[dict[str, object]]:
    for limit in volume.limits:
        yield {
            "name": volume.name,
            "kind": limit.kind,
            "at": format_bytes(limit.limit_bytes),
            "used": format_bytes(volume.seen_bytes[-1]),
            "growth": volume.growth,
            "reached": f"{limit.reached} {limit.interval}".strip(),
            "likely": limit.likely,
            "is_likely": limit.is_likely,
        }


def _is_worse(line: Planned) -> bool:
    return line.throttled_after > line.throttled_before


def _plan_row(planned: Planned) -> dict[str, object]:
    line = planned.line

    def quota(value: float | None) -> str:
        return "none" if value is None else rate_text(line.quota_type, value)

    return {
        "name": name_of(line),
        "quota_type": line.quota_type,
        "broker": broker_of(line.node_id),
        "before": quota(planned.before),
        "after": quota(planned.after),
        "over_before": share_text(planned.throttled_before),
        "over_after": share_text(planned.throttled_after),
        "is_worse": _is_worse(planned),
    }


def _asset(name: str) -> str:
    return files("kvota.app.report").joinpath(name).read_text(encoding="utf-8")
