"""One plot as SVG that stands in an HTML page: coloured by the page's style sheet, read aloud by its title.

Matplotlib draws; texts stay texts, and colours are names that become the page's variables, so that one drawing is right
in light, in dark and on paper.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

US_PER_DAY = 86_400_000_000.0

# What matplotlib draws with, and what the page has in its place. Each has to be found in the drawing's text again.
INK, FAINT, GRID = "#010a01", "#020a02", "#030a03"
MAIN, SECOND, LIMIT, PLANNED = "#040a04", "#050a05", "#060a06", "#070a07"
_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    MAIN: "var(--main)",
    SECOND: "var(--second)",
    LIMIT: "var(--limit)",
    PLANNED: "var(--planned)",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts are texts: they can be searched, read aloud and have the page's font
    "svg.hashsalt": "kvota",  # the same numbers give the same file
    "path.simplify": True,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "text.color": INK,
    "text.parse_math": False,
    "font.size": 9,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.3,
    "legend.borderaxespad": 0.0,
    "timezone": "UTC",
}
# Inches between the plot and its legend.
_LEGEND_ABOVE = 0.06
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_HEAD = re.compile(r".*?<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>", re.DOTALL)
_ID = re.compile(r" id=\"([^\"]*)\"")
_REFERENCE = re.compile(r"(url\(#|href=\"#)([^\")]+)")
_FONT = re.compile(r"font: ([0-9.]+)px [^;\"]*")
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_BLANKS = re.compile(r">\s+<")
_DECIMALS = re.compile(r"(\d\.\d\d)\d+")


@dataclass(frozen=True, slots=True)
class Said:
    """What a plot tells those who do not see it.

    Attributes:
        title: what it is of.
        description: what it shows, in one sentence or two.
    """

    title: str
    description: str


class Canvas:
    """Where plots of one kind are drawn, one after the other: its axes are made once, which takes as long as a plot.

    What a plot does to the axes themselves (marks, limits, names), every plot of the kind has to do.

    Args:
        size: inches, as for matplotlib; the page scales it.
    """

    def __init__(self, size: tuple[float, float] = (6.2, 2.6)) -> None:
        self._size = size
        self._axes: Axes | None = None

    def drawn(self, name: str, said: Said, draw: Callable[[Axes], None]) -> str:
        """Return a plot as an SVG element.

        Args:
            name: of this plot; all its ids begin with it, so that no two in a page are the same.
            said: for screen readers.
            draw: draws into the axes.
        """
        with mpl.rc_context(_STYLE):
            if self._axes is None:
                self._axes = _axes(self._size)
            else:
                _wipe(self._axes)
            draw(self._axes)
            out = StringIO()
            figure = self._axes.get_figure(root=True)
            FigureCanvasSVG(figure).print_svg(out, metadata=_NO_METADATA)  # type: ignore[no-untyped-call]
        return _for_a_page(out.getvalue(), name, said)


def _axes(size: tuple[float, float]) -> Axes:
    figure = Figure(figsize=size)
    figure.subplots_adjust(**_margins(size))
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return axes


def _wipe(axes: Axes) -> None:
    """Take away what was drawn; its marks and names stay, and are given other places and texts."""
    for artist in (*axes.lines, *axes.collections, *axes.texts):
        artist.remove()
    axes.relim()
    axes.autoscale()


def _margins(size: tuple[float, float]) -> dict[str, float]:
    """Room for numbers, units and the legend, the same in all plots; to measure it each time takes twice as long."""
    width, height = size
    return {
        "left": 0.66 / width,
        "right": 1 - 0.16 / width,
        "bottom": 0.42 / height,
        "top": 1 - 0.34 / height,
    }


def time_axis(axes: Axes) -> None:
    """Let the horizontal axis show times, UTC."""
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, show_offset=True)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def from_zero(axes: Axes, unit: str) -> None:
    """Let the vertical axis begin at 0, with few numbers and its unit."""
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylabel(unit)


def legend_above(axes: Axes, columns: int) -> None:
    """Write the legend in a line above the plot."""
    height = axes.get_position().height * axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1 + _LEGEND_ABOVE / height), ncols=columns)


def days(times_us: Sequence[int]) -> list[float]:
    """Times as matplotlib has them: days since 1970."""
    return [time_us / US_PER_DAY for time_us in times_us]


def _for_a_page(svg: str, name: str, said: Said) -> str:
    """Make an element of a page of what matplotlib has written: no prologue, ids of its own, the page's colours."""
    head = _HEAD.match(svg)
    assert head is not None, "matplotlib writes an svg element with a viewBox"
    body = svg[head.end() :]
    referred = {found[1] for found in _REFERENCE.findall(body)}
    body = _ID.sub(lambda found: f' id="{name}-{found[1]}"' if found[1] in referred else "", body)
    body = _REFERENCE.sub(lambda found: f"{found[1]}{name}-{found[2]}", body)
    body = _STYLE_SHEET.sub("", body)  # it would hold for the whole page
    body = _FONT.sub(lambda found: f"font-size: {found[1]}px", body)
    body = _FAMILY.sub("", body)
    body = _DECIMALS.sub(r"\1", body)
    body = _BLANKS.sub("><", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    return (
        f'<svg role="img" aria-labelledby="{name}-t {name}-d" {head[1]}>'
        f'<title id="{name}-t">{escape(said.title)}</title>'
        f'<desc id="{name}-d">{escape(said.description)}</desc>{body.strip()}'
    )
