"""Draws the table of ``hold`` as docs/quotas-that-hold.svg, from the figures that were kept.

python bench/hold_plot.py
"""

import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
PLOT = HERE.parent / "docs" / "quotas-that-hold.svg"
NAMES = {
    "broker": "Kafka 4.3.1's own quota",
    "sampled_rate": "kvota, sampled_rate",
    "token_bucket": "kvota, token_bucket",
}
# Told apart without colour, too: by lightness.
FILLS = {"broker": "#9aa5b1", "sampled_rate": "#f0b429", "token_bucket": "#0b6e4f"}
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 50, 740, 70, 340


def draw(result: Path, plot: Path = PLOT) -> None:
    kept = json.loads(result.read_text())
    cases = kept["cases"]
    highest = max(f["x_quota"] for ways in cases.values() for f in ways.values())
    top = max(1.5, (int(highest / 0.25) + 1) * 0.25)
    quota = f"{kept['quota_bytes_per_s'] / 1e6:g} MB/s"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13" fill="#1f2933">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 22, f"What a user got of a quota of {quota}, as a multiple of it", size=16),
        *legend(),
        *grid(top),
    ]
    step = (RIGHT - LEFT) / len(cases)
    for number, (name, ways) in enumerate(cases.items()):
        parts += group(LEFT + number * step, step, top, ways)
        connections, value_bytes = name.split("x")
        middle = LEFT + (number + 0.5) * step
        parts.append(text(middle, BOTTOM + 20, connections_text(int(connections)), anchor="middle"))
        parts.append(text(middle, BOTTOM + 37, f"x {int(value_bytes) // 1000} KB", anchor="middle"))
    y = height_of(1.0, top)
    parts.append(
        f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" stroke="#1f2933" stroke-width="1.5"/>'
    )
    source = f"rate over {kept['seconds']:g} s, from {kept['settle']:g} s after the start; {kept['command']}"
    parts.append(text(LEFT, HEIGHT - 6, source, size=11))
    parts.append("</svg>")
    plot.write_text("\n".join(parts) + "\n")


def connections_text(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def legend() -> list[str]:
    parts = []
    for number, (way, name) in enumerate(NAMES.items()):
        x = LEFT + number * 210
        parts.append(f'<rect x="{x}" y="38" width="14" height="14" fill="{FILLS[way]}"/>')
        parts.append(text(x + 20, 50, name))
    return parts


def grid(top: float) -> list[str]:
    parts = []
    for number in range(int(top / 0.25) + 1):
        y = height_of(number * 0.25, top)
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" stroke="#e4e7eb"/>')
        parts.append(text(LEFT - 6, y + 4, f"{number * 0.25:.2f}", anchor="end"))
    return parts


def group(left: float, step: float, top: float, ways: dict[str, dict[str, float]]) -> list[str]:
    """The bars of one case, each with its figure."""
    parts = []
    width = step * 0.8 / len(ways)
    for number, (way, figures) in enumerate(ways.items()):
        x, y = left + step * 0.1 + number * width, height_of(figures["x_quota"], top)
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width - 3:.1f}" height="{BOTTOM - y:.1f}" '
            f'fill="{FILLS[way]}"/>'
        )
        figure = f"{figures['x_quota']:.2f}"
        parts.append(text(x + (width - 3) / 2, y - 4, figure, anchor="middle", size=11))
    return parts


def height_of(value: float, top: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * value / top, 1)


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if sys.argv[1:] else HERE / "results" / "hold_table.json")
