"""A report's content, made up: names that want to be markup, and as many lines as are wanted."""

from math import exp, sin

from kvota.app.report.content import (
    Content,
    Drawn,
    LimitRow,
    Line,
    Plan,
    Planned,
    Tried,
    VolumePlot,
    Window,
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<svg onload=alert(2)>",
    "</title></svg><b>",
    "{{ 7 * 7 }}{% raw %}",
    "x\x1b[2J\u202e",
    "]]><!--",
    "&lt;p&gt; & 'more'",
    "$\\frac{1}{2}$",
)
START_US = 1_763_596_800_000_000
HOUR_US = 3_600_000_000
TYPES = ("PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION")


def line(number: int, name: str | None = None) -> Line:
    """Smaller numbers are nearer to their limit."""
    quota_type = TYPES[number % len(TYPES)]
    mean = 1e6 * exp(-number / 2_000)
    limit = None if number % 11 == 10 else 2e6
    return Line(
        counter_id=2**60 + number,
        quota_type=quota_type,
        user=f"tenant-{number:05}" if name is None else name,
        client_id=None,
        node_id=-1 if quota_type == "CONTROLLER_MUTATION" else number % 3,
        requests=10_000 + number,
        mean=mean,
        p50=mean * 0.8,
        p95=mean * 2,
        most=mean * 3,
        limit=limit,
        limit_is_shared=False,
        of_limit=None if limit is None else mean * 3 / limit,
        throttled=0.25 if number % 3 == 0 else 0.0,
        is_enforced=number % 2 == 0,
    )


def drawn(of: Line, *, windows: int = 100) -> Drawn:
    rates = [of.mean * (1 + 0.5 * sin(hour / 4)) for hour in range(windows)]
    return Drawn(
        of,
        [
            Window(START_US + HOUR_US * hour, rate, rate * 2, rate * 3, of.limit)
            for hour, rate in enumerate(rates)
            if hour % 20 != 19  # quiet hours have no window
        ],
        [Tried(of.mean * 1.3**step, 0.9 / (step + 1), 0.8 / (step + 1)) for step in range(16)],
        of.mean * 2,
    )


def volume(name: str = "broker 1 /data") -> VolumePlot:
    return VolumePlot(
        name=name,
        total_bytes=1e12,
        seen_us=[START_US + HOUR_US * hour for hour in range(200)],
        seen_bytes=[4e11 + 1e9 * hour for hour in range(200)],
        ahead_us=[START_US + HOUR_US * (200 + hour) for hour in range(72)],
        low=[6e11 + 8e8 * hour for hour in range(72)],
        middle=[6e11 + 1e9 * hour for hour in range(72)],
        high=[6e11 + 1.2e9 * hour for hour in range(72)],
        growth="24.0 GB (20.0 GB to 28.0 GB)",
        history_h=200,
        is_short=False,
        resets=0,
        limits=[LimitRow("soft", 6.5e11, "50 h", "(40 h to 60 h)", "93%", is_likely=True)],
    )


def content(*, lines: int = 40, plots: int = 3, hidden_lines: int = 0) -> Content:
    names = [*HOSTILE, *[None] * (lines - len(HOSTILE))]
    of_lines = [line(number, name) for number, name in enumerate(names)]
    changes = [
        Planned(each, each.limit, 1e6, Tried(2e6, 0.1, 0.2), Tried(1e6, 0.3, 0.4))
        for each in of_lines[:30]
    ]
    return Content(
        sources=["record/</p>"],
        made_us=START_US,
        version="0.1.0",
        by="user",
        first_us=START_US,
        last_us=START_US + 100 * HOUR_US,
        decisions=123_456,
        gateways=["gateway <1>"],
        window_s=3_600,
        lines=of_lines,
        hidden_lines=hidden_lines,
        drawn=[drawn(each) for each in of_lines[:plots]],
        plan=Plan("plan<.yaml", changes, lines - 30),
        volumes=[volume(), volume("broker 2 </title><script>alert(3)</script>")],
        notes=["a <b>file</b> cannot be read"],
    )
