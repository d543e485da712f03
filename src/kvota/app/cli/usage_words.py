"""How commands over a record write what was used."""

from kvota.model.quota_type import FACTS, QuotaType, Unit
from kvota.planning.plan_line import format_quota

_RAW_UNITS = {Unit.BYTES_PER_S: " B/s", Unit.PERCENT: " %"}


def amount(quota_type: str, rate: float, *, raw: bool) -> str:
    """Write a rate with its unit; ``raw``: all its figures instead of three."""
    if quota_type not in FACTS:  # of a newer gateway
        return f"{rate!r}/s" if raw else f"{rate:.6g}/s"
    if raw:
        return f"{rate!r}{_RAW_UNITS.get(FACTS[QuotaType(quota_type)].unit, '/s')}"
    return format_quota(QuotaType(quota_type), rate)


def unit_of(quota_type: str) -> str:
    """Return what a value of this quota type counts."""
    return FACTS[QuotaType(quota_type)].value_unit if quota_type in FACTS else ""
