"""One tenant's line of a plan, and the sentence that says why."""

from dataclasses import dataclass, replace
from enum import StrEnum

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import BYTE_RATE_TYPES, FACTS, QuotaType, Unit
from kvota.model.units import format_byte_rate, format_percent, format_rate
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need


class Reason(StrEnum):
    """The reason for a tenant's limit."""

    NEED = "need"  # its need and the headroom
    SHARE = "share"  # it wants more than its fair share
    FLOOR = "floor"  # not below its usual rate or the floor of the type
    STEP = "step"  # not further from the quota in force at a time
    KEPT = "kept"  # no change worth making, or none could be found
    TOO_LITTLE_DATA = "too_little_data"
    CENSORED = "censored"  # held back while it was observed, so it gets a step more than was seen
    NOT_CONFIRMED = "not_confirmed"  # what was learnt does not hold for the time that was held out
    EXEMPT = "exempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One tenant's line of the plan; no quota is set where ``proposed`` is None."""

    quota_type: QuotaType
    entity: QuotaEntity
    weight: float
    need: Need | None
    node_ids: tuple[int, ...]  # where it was seen, and so has its quota; -1: the cluster
    is_censored: bool  # it may need more than ``need``
    fair_share: float
    current: float | None
    proposed: float | None
    reason: Reason
    behaves: bool  # gets at least its need
    guardrails: tuple[str, ...]  # those that decided
    events: int
    hours: float
    share_throttled: float
    evidence: str

    @property
    def is_change(self) -> bool:
        """True when applying the plan would touch this quota."""
        return self.proposed != self.current

    @property
    def need_text(self) -> str:
        """The need for people, with ``≥`` where it may be more."""
        if self.need is None:
            return "an unknown amount"
        sign = "≥ " if self.is_censored else ""
        return f"{sign}{format_quota(self.quota_type, self.need.rate)}"


def kept(line: PlanLine, reason: Reason, rules: Guardrails) -> PlanLine:
    """Return a line that changes nothing, and what would have to be allowed for a change."""
    if reason is Reason.EXEMPT:
        return replace(
            line, reason=reason, guardrails=("exempt",), evidence="exempt from plans by --exempt"
        )
    if reason is Reason.TOO_LITTLE_DATA:
        because = (
            f"{line.events:,} requests in {line.hours:g} h with traffic of its own; a change needs "
            f"{rules.events_min:,} requests (--min-events) and {rules.hours_min:g} h (--min-hours 0 for a trial)"
        )
        return replace(line, reason=reason, guardrails=("too_little_data",), evidence=because)
    if line.need is None:
        return replace(
            line,
            reason=reason,
            evidence="nothing learnt of it was enough for a quota; "
            "--learn 90% learns from more of the record",
        )
    because = f"other changes are larger (at most {rules.changes_max} at a time; --max-changes allows more)"
    return replace(line, reason=reason, guardrails=("changes_max",), evidence=because)


def not_confirmed(line: PlanLine, found: str) -> PlanLine:
    """Return the line without its cut or its first quota, because the held-out time does not bear that out.

    A raise stands: it is not enough, but the quota as it is would be less.
    """
    is_raise = (
        line.current is not None and line.proposed is not None and line.proposed > line.current
    )
    return replace(
        line,
        proposed=line.proposed if is_raise else line.current,
        reason=Reason.NOT_CONFIRMED,
        evidence=f"needed {line.need_text} in the time learnt from, but {found} (--headroom gives more)",
    )


def evidence(reason: Reason, line: PlanLine) -> str:
    """Return why a line is as it is, in one sentence, with the option that would let it be otherwise."""

    def text(rate: float | None) -> str:
        return "no quota" if rate is None else format_quota(line.quota_type, rate)

    need, proposed = line.need_text, text(line.proposed)
    days = "" if line.need is None else f" on a busy day{_interval(line)}"
    option = {"step_up": "--step-up", "step_down": "--step-down"}.get("".join(line.guardrails), "")
    usual = f"the floor of its type; --floor {line.quota_type}=RATE sets another"
    if "median" in line.guardrails:
        usual = "its usual rate; --allow-below-median lets a plan go below"
    sentences = {
        Reason.NEED: f"needs {need}{days}; with headroom {proposed}",
        Reason.SHARE: f"would need {need}; its fair share is {text(line.fair_share)} "
        "(a larger --weight, --capacity or --overcommit gives more)"
        if not line.behaves
        else f"needs {need}; {proposed} has room for that, and not for all of the headroom "
        "(a larger --capacity or --overcommit does)",
        Reason.FLOOR: f"needs {need}; {proposed} is not below {usual}",
        Reason.STEP: f"needs {need}; one step from {text(line.current)} goes to {proposed} ({option} allows another)",
        Reason.CENSORED: f"was held back for {line.share_throttled:.0%} of the time, so it needs {need}; "
        f"a step more is {proposed} (--step-up allows another)",
    }
    return sentences[reason]


def _interval(line: PlanLine) -> str:
    need = line.need
    if need is None or need.low is None:
        return ""
    low = format_quota(line.quota_type, need.low)
    if need.high is None:
        return f" ({low} or more, of {need.days} days)"
    return f" ({low} to {format_quota(line.quota_type, need.high)}, of {need.days} days)"


def format_quota(quota_type: QuotaType, quota: float) -> str:
    """Write a quota with the unit of its type: ``8.00 MB/s``, ``5.00 /s``, ``20.0 %`` or, of producer ids, ``100 /h``."""
    if FACTS[quota_type].unit is Unit.IDS_PER_S:
        return f"{format_rate(quota * 3600).removesuffix(' /s')} /h"
    if FACTS[quota_type].unit is Unit.PERCENT:
        return format_percent(quota)
    return format_byte_rate(quota) if quota_type in BYTE_RATE_TYPES else format_rate(quota)
