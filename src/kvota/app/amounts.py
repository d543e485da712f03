"""Amounts of a quota as commands print them."""

from kvota.model.quota_type import FACTS, QuotaType, Unit
from kvota.model.units import format_bytes
from kvota.planning.plan_line import format_quota


def amount_of_limit(quota_type: QuotaType, rate: float, limit: float | None) -> str:
    """What is used of what is allowed, in one unit.

    >>> amount_of_limit(QuotaType.PRODUCE, 5_600_000, 2_360_000)
    '5.60/2.36 MB/s'
    >>> amount_of_limit(QuotaType.PRODUCE, 512, None)
    '512 B/s, no limit'
    """
    if limit is None:
        return f"{format_quota(quota_type, rate)}, no limit"
    if FACTS[quota_type].unit is Unit.BYTES_PER_S:
        unit = format_bytes(max(rate, limit)).split()[1]
        factor = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
        return f"{_figures(rate / factor)}/{_figures(limit / factor)} {unit}/s"
    suffix = "%" if FACTS[quota_type].unit is Unit.PERCENT else "/s"
    return f"{_figures(rate)}/{_figures(limit)} {suffix}"


def room_text(quota_type: QuotaType, room: int) -> str:
    """How much may still be used at once.

    >>> room_text(QuotaType.FETCH, 1_500_000), room_text(QuotaType.CONTROLLER_MUTATION, 3)
    ('1.50 MB', '3 partitions')
    """
    facts = FACTS[quota_type]
    if facts.unit is Unit.BYTES_PER_S:
        return format_bytes(room)
    return f"{room} {facts.value_unit}"


def _figures(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
