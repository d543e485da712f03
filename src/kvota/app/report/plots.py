"""The four kinds of plots of the report."""

from collections.abc import Sequence
from math import floor, log10, nan

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from kvota.app.report import canvas as c
from kvota.app.report.content import Drawn, Planned, VolumePlot
from kvota.app.report.wording import (
    byte_scale,
    name_of,
    rate_text,
    scale_of,
    share_text,
    whole_name,
)
from kvota.model.units import format_bytes

# Windows further apart than this many of them are not joined by a line.
_APART = 1.5
# So many numbers stand below an axis at most.
_MARKS_MAX = 9


def usage_plot(canvas: c.Canvas, name: str, drawn: Drawn, window_s: int) -> str:
    """Draw how a line's rates went: median, 95th percentile, most, and the limit."""
    line, windows = drawn.line, drawn.windows
    limits = [window.limit for window in windows]
    rates = [window.most for window in windows] + [limit for limit in limits if limit is not None]
    factor, unit = scale_of(line.quota_type, rates)

    def draw(axes: Axes) -> None:
        times, bands = _with_gaps(drawn, window_s, factor)
        p50, p95, most, limit = bands
        axes.fill_between(
            times, p95, most, color=c.MAIN, alpha=0.16, linewidth=0, label="95 % to most"
        )
        axes.fill_between(
            times, p50, p95, color=c.MAIN, alpha=0.38, linewidth=0, label="median to 95 %"
        )
        axes.plot(times, p50, color=c.MAIN, label="median")
        if any(value == value for value in limit):  # noqa: PLR0124  (not NaN)
            axes.plot(
                times,
                limit,
                color=c.LIMIT,
                linestyle=(0, (5, 3)),
                label="limit",
                drawstyle="steps-post",
            )
        c.time_axis(axes)
        c.from_zero(axes, unit)
        axes.margins(x=0.01)
        c.legend_above(axes, 4)

    most = max((window.most for window in windows), default=0.0)
    limit_words = (
        "no limit of its own"
        if line.limit is None
        else f"limit {rate_text(line.quota_type, line.limit)}"
    )
    said = c.Said(
        f"Rates of {whole_name(line)}",
        f"Median {rate_text(line.quota_type, line.p50)}, 95th percentile {rate_text(line.quota_type, line.p95)}, largest second "
        f"{rate_text(line.quota_type, most)}, {limit_words}; {len(windows)} windows.",
    )
    return canvas.drawn(name, said, draw)


def _with_gaps(
    drawn: Drawn, window_s: int, factor: float
) -> tuple[list[float], tuple[list[float], list[float], list[float], list[float]]]:
    """The bands as lists; windows without traffic are rates of 0, and no limit is known of them."""
    times: list[float] = []
    bands: tuple[list[float], list[float], list[float], list[float]] = ([], [], [], [])
    step_us = window_s * 1_000_000
    before_us: int | None = None
    for window in drawn.windows:
        if before_us is not None and window.start_us - before_us > _APART * step_us:
            for quiet_us in (before_us + step_us, window.start_us - step_us):
                times.append(quiet_us / c.US_PER_DAY)
                for band, value in zip(bands, (0.0, 0.0, 0.0, nan), strict=True):
                    band.append(value)
        times.append(window.start_us / c.US_PER_DAY)
        limit = nan if window.limit is None else window.limit / factor
        values = (window.p50 / factor, window.p95 / factor, window.most / factor, limit)
        for band, value in zip(bands, values, strict=True):
            band.append(value)
        before_us = window.start_us
    return times, bands


def quota_plot(canvas: c.Canvas, name: str, drawn: Drawn) -> str:
    """Draw which share of a line's requests would be over which quota."""
    line, tried = drawn.line, sorted(drawn.tried, key=lambda each: each.quota)
    factor, unit = scale_of(line.quota_type, [each.quota for each in tried])

    def draw(axes: Axes) -> None:
        quotas = [log10(each.quota / factor) for each in tried]
        for values, colour, style, label in (
            ([each.as_recorded for each in tried], c.MAIN, "-", "as they came"),
            ([each.waiting for each in tried], c.SECOND, (0, (1, 1.5)), "clients wait"),
        ):
            axes.plot(
                quotas,
                [100 * value for value in values],
                color=colour,
                linestyle=style,
                label=label,
            )
        if line.limit:  # a full disk makes it 0, and the axis has none
            axes.axvline(
                log10(line.limit / factor), color=c.LIMIT, linestyle=(0, (5, 3)), label="limit"
            )
        if drawn.planned:
            axes.axvline(
                log10(drawn.planned / factor), color=c.PLANNED, linestyle="-.", label="planned"
            )
        marks = _marks(tried[0].quota / factor, tried[-1].quota / factor)
        axes.set_xticks([log10(mark) for mark in marks], [f"{mark:g}" for mark in marks])
        axes.set_xlabel(f"quota, {unit}", labelpad=1)
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_ylabel("% of requests")
        c.legend_above(axes, 4)

    at_limit = next((each for each in tried if each.quota == line.limit), None)
    said = c.Said(
        f"Throttled share against quota, {whole_name(line)}",
        f"{len(tried)} quotas from {rate_text(line.quota_type, tried[0].quota)} to "
        f"{rate_text(line.quota_type, tried[-1].quota)}: from {share_text(tried[0].as_recorded)} to "
        f"{share_text(tried[-1].as_recorded)} of the requests are over."
        + ("" if at_limit is None else f" At the limit it is {share_text(at_limit.as_recorded)}."),
    )
    return canvas.drawn(name, said, draw)


def _marks(low: float, high: float) -> list[float]:
    """Round numbers between two others: 1, 2 and 5 of each power of ten, or fewer where there are many.

    >>> _marks(0.9, 12.0)
    [1.0, 2.0, 5.0, 10.0]
    """
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    marks = [
        mark
        for power in powers
        for digit in (1, 2, 5)
        if low <= (mark := float(f"{digit}e{power}")) <= high
    ]
    if len(marks) > _MARKS_MAX:
        marks = [mark for mark in marks if f"{mark:e}".startswith("1")]
    return marks


def plan_plot(name: str, lines: Sequence[Planned]) -> str:
    """Draw the share over the limit before and after a plan, a row for each line."""

    def draw(axes: Axes) -> None:
        rows = range(len(lines))
        before = [100 * line.throttled_before for line in lines]
        after = [100 * line.throttled_after for line in lines]
        axes.hlines(rows, before, after, color=c.GRID, linewidth=3)
        axes.plot(before, rows, "o", color=c.MAIN, markersize=6, label="before", fillstyle="none")
        axes.plot(after, rows, "o", color=c.PLANNED, markersize=6, label="after the plan")
        axes.set_yticks(rows, [f"{number + 1}" for number in rows])
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_ylabel("row of the table")
        axes.set_xlim(-2, 102)
        axes.set_xlabel("% of requests over the limit", labelpad=1)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        c.legend_above(axes, 2)

    worst = max(lines, key=lambda line: line.throttled_after)
    said = c.Said(
        "Requests over the limit before and after the plan",
        f"{len(lines)} lines. Most of all after the plan: {name_of(worst.line)} with {share_text(worst.throttled_after)}, "
        f"before {share_text(worst.throttled_before)}.",
    )
    return c.Canvas((7.4, 0.95 + 0.2 * len(lines))).drawn(name, said, draw)


def volume_plot(canvas: c.Canvas, name: str, volume: VolumePlot) -> str:
    """Draw how full a volume was, and the fan of its forecast."""
    factor, unit = byte_scale([volume.total_bytes / 2])
    limits = [limit for limit in volume.limits if limit.kind != "full"]

    def draw(axes: Axes) -> None:
        axes.plot(
            c.days(volume.seen_us),
            [each / factor for each in volume.seen_bytes],
            color=c.MAIN,
            label="used",
        )
        ahead = c.days([volume.seen_us[-1], *volume.ahead_us])
        now = volume.seen_bytes[-1]
        low, middle, high = (
            [each / factor for each in (now, *values)]
            for values in (volume.low, volume.middle, volume.high)
        )
        axes.fill_between(
            ahead, low, high, color=c.SECOND, alpha=0.28, linewidth=0, label="80 % interval"
        )
        axes.plot(ahead, middle, color=c.SECOND, linestyle=(0, (1, 1.5)), label="forecast")
        for limit in limits:
            axes.axhline(
                limit.limit_bytes / factor, color=c.LIMIT, linestyle=(0, (5, 3)), linewidth=1.2
            )
            axes.annotate(
                limit.kind,
                (0.005, limit.limit_bytes / factor),
                xycoords=("axes fraction", "data"),
                xytext=(0, 2),
                textcoords="offset points",
                color=c.LIMIT,
                fontsize=8,
            )
        axes.axhline(volume.total_bytes / factor, color=c.INK, linewidth=1)
        c.time_axis(axes)
        axes.margins(x=0.01)
        top = volume.total_bytes / factor
        low_end = min(*volume.seen_bytes, *volume.low) / factor
        axes.set_ylim(max(0.0, low_end - 0.15 * (top - low_end)), top + 0.03 * (top - low_end))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_ylabel(unit)
        c.legend_above(axes, 3)

    said = c.Said(
        f"Used and forecast, {volume.name}",
        f"{format_bytes(volume.seen_bytes[-1])} of {format_bytes(volume.total_bytes)} are used; it grows by {volume.growth} a day. "
        + " ".join(
            f"The limit {limit.kind}: reached in {limit.reached}." for limit in volume.limits
        ),
    )
    return canvas.drawn(name, said, draw)
