"""Amounts, names and times as the report writes them."""

from collections.abc import Iterable

from kvota.app.report.content import Line
from kvota.model.plain_text import name_on_screen
from kvota.model.quota_type import FACTS, QuotaType, Unit
from kvota.planning.plan_line import format_quota

_BYTE_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def name_of(line: Line) -> str:
    """Return what a tenant is called."""
    names = [name_on_screen(name) for name in (line.user, line.client_id) if name is not None]
    return ", ".join(name or "(no name)" for name in names) or "(everybody)"


def broker_of(node_id: int) -> str:
    """Return which broker a line is of."""
    return "all" if node_id == -1 else str(node_id)


def whole_name(line: Line) -> str:
    """Return a line's tenant, quota and broker."""
    where = "all brokers" if line.node_id == -1 else f"broker {line.node_id}"
    mode = "" if line.is_enforced else ", shadow"
    return f"{name_of(line)}: {line.quota_type}, {where}{mode}"


def rate_text(quota_type: str, rate: float) -> str:
    """Return a rate with its unit.

    >>> rate_text("PRODUCE", 1_900_000)
    '1.90 MB/s'
    """
    if quota_type not in FACTS:  # of a newer gateway
        return f"{rate:.3g} /s"
    return format_quota(QuotaType(quota_type), rate)


def limit_text(line: Line) -> str:
    """Return a line's own limit."""
    if line.limit is None:
        return "shared" if line.limit_is_shared else "none"
    return rate_text(line.quota_type, line.limit)


def scale_of(quota_type: str, rates: Iterable[float]) -> tuple[float, str]:
    """Return by what rates are divided on an axis, and the unit then.

    >>> scale_of("PRODUCE", [2.5e6])
    (1000000.0, 'MB/s')
    """
    unit = FACTS[QuotaType(quota_type)].unit if quota_type in FACTS else None
    if unit is Unit.PERCENT:
        return 1.0, "% of a thread"
    if unit is Unit.BYTES_PER_S:
        factor, name = byte_scale(rates)
        return factor, f"{name}/s"
    return 1.0, "per second"


def byte_scale(sizes: Iterable[float]) -> tuple[float, str]:
    """Return by what sizes are divided on an axis, and the unit then."""
    most = max(sizes, default=0.0)
    return next(((factor, name) for factor, name in _BYTE_STEPS if most >= factor), (1.0, "B"))


def share_text(share: float) -> str:
    """Return a share; a small one is not nothing.

    >>> share_text(0.0), share_text(0.00004), share_text(0.123)
    ('0 %', '< 0.1 %', '12.3 %')
    """
    if not share:
        return "0 %"
    return "< 0.1 %" if share < 0.001 else f"{share * 100:.1f} %"


def span_text(seconds: float) -> str:
    """Return how long something is, roughly.

    >>> span_text(90), span_text(7200), span_text(8 * 86400)
    ('90 s', '2 h', '8 d')
    """
    for step, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * step:
            return f"{seconds / step:.3g} {unit}"
    return f"{seconds:.0f} s"
