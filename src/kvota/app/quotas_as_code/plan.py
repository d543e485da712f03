"""A plan: what a file wants, what is in force, what would change, and what speaks against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, inf

from kvota.app.quotas_as_code.alterable_quotas import InForce, LeftOut
from kvota.app.quotas_as_code.difference_lines import entity_words, shown_lines
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import NegativeError, UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.units import format_duration_ms
from kvota.planning.lowering import Lowering, lowerings, too_far
from kvota.planning.wanted_quotas import Difference, moved
from kvota.store.quota_document import named_parts
from kvota.store.quota_limit import value_text
from kvota.store.quotas_yaml import PlanHead, QuotasDocument

# By default no limit is lowered by more than this at a time.
LOWER_PERCENT_MAX = 50.0
# A plan says what was right when it was made: tenants change, though the quotas in force have not.
AGE_MAX_MS = 86_400_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    """What a file would change.

    Attributes:
        in_force: the quotas as they are.
        differences: what would change.
        unmentioned: how many values in force the file says nothing of; they stay.
        lowered: limits that would go down too far.
        removes_all: the file wants nothing, and so everything would go.
        left_out: values in force that no file of quotas can have; they stay.
        lower_percent_max: what was too far.
    """

    in_force: ClientQuotas
    differences: Sequence[Difference]
    unmentioned: int = 0
    lowered: Sequence[Lowering] = field(default_factory=tuple)
    removes_all: bool = False
    left_out: Sequence[LeftOut] = field(default_factory=tuple)
    lower_percent_max: float = LOWER_PERCENT_MAX

    @property
    def after(self) -> ClientQuotas:
        """The quotas as they would be."""
        return self.in_force.with_changes(each.change for each in self.differences)

    def objections(self) -> list[str]:
        """What guardrails have against it, a sentence each."""
        found = [_objection(each) for each in self.lowered]
        if self.removes_all:
            found.append(
                f"the file wants no quota at all, and all {len(self.differences)} values in force would go"
            )
        return found


def make_plan(
    document: QuotasDocument, found: InForce, *, prunes: bool, lower_percent_max: float
) -> QuotaPlan:
    """Compare a file with what is in force.

    Args:
        document: the file.
        found: what is in force.
        prunes: values go that the file does not mention.
        lower_percent_max: no limit goes down further than by this, in percent.

    Raises:
        UsageError: a value would change that could not be brought back.
    """
    wanted = document.wanted
    differences = wanted.differences(found.quotas, prunes=prunes)
    strange = {(each.entity, each.key): each for each in found.left_out}
    for difference in differences:
        if (difference.entity, difference.key) in strange:
            sentence = strange[difference.entity, difference.key].sentence
            msg = f"{sentence}. No file could bring that value back: remove it with kafka-configs.sh first"
            raise UsageError(msg)
    after = found.quotas.with_changes(each.change for each in differences)
    lowered = lowerings(differences, found.quotas, after)
    wants_nothing = not wanted.quotas and not wanted.removed
    return QuotaPlan(
        in_force=found.quotas,
        differences=differences,
        unmentioned=0 if prunes else len(wanted.unmentioned(found.quotas)),
        lowered=too_far(lowered, percent_max=lower_percent_max),
        removes_all=bool(prunes and differences and wants_nothing),
        left_out=found.left_out,
        lower_percent_max=lower_percent_max,
    )


def plan_document(
    document: QuotasDocument, plan: QuotaPlan, *, made_at: str, cluster_id: str | None, prunes: bool
) -> QuotasDocument:
    """The file with what it was compared with: what ``apply`` takes instead of the file."""
    head = PlanHead(made_at=made_at, cluster_id=cluster_id, prunes=prunes, in_force=plan.in_force)
    return QuotasDocument(wanted=document.wanted, plan=head)


def check_fresh(head: PlanHead, found: InForce, cluster_id: str | None) -> None:
    """Refuse a plan that was computed from other quotas than those in force.

    Raises:
        NegativeError: it is stale; tells the difference.
        UsageError: it is of another cluster.
    """
    if None not in (head.cluster_id, cluster_id) and head.cluster_id != cluster_id:
        msg = f"the plan is of cluster {head.cluster_id}, and this is {cluster_id}"
        raise UsageError(msg)
    differences = moved(head.in_force, found.quotas)
    if differences:
        of = f"the plan of {head.made_at} is stale" if head.made_at else "the plan is stale"
        what = f"{of}: meanwhile somebody has changed"
        raise moved_since(what, differences)


def check_age(head: PlanHead, *, now_ms: int, age_max_ms: float) -> None:
    """Refuse a plan that is too old, whatever is in force.

    Args:
        head: of the plan.
        now_ms: Unix milliseconds.
        age_max_ms: infinite: it may be as old as it likes.

    Raises:
        NegativeError: it is, or does not say when it was made.
    """
    if age_max_ms == inf:
        return
    most = f"apply takes none older than {format_duration_ms(age_max_ms)}; nothing was changed"
    try:
        made_at = datetime.fromisoformat(head.made_at)
    except ValueError as error:
        msg = f'the plan does not say when it was made (made_at: "{head.made_at}"), and {most}: plan again, or say --max-age none'
        raise NegativeError(msg) from error
    made_at = made_at if made_at.tzinfo is not None else made_at.replace(tzinfo=UTC)
    age_ms = now_ms - made_at.timestamp() * 1000
    if age_ms > age_max_ms:
        hours = ceil(age_ms / 3_600_000)
        msg = (
            f"the plan of {head.made_at} is {format_duration_ms(age_ms)} old, and {most}: plan again, "
            f"or say --max-age {hours}h"
        )
        raise NegativeError(msg)


def moved_since(
    what: str,
    differences: Sequence[Difference],
    *,
    so: str = "nothing was changed; plan again",
) -> NegativeError:
    """What to raise where quotas are not any more what a decision was based on."""
    return NegativeError("\n  ".join((what, *shown_lines(differences), so)))


def plan_json(plan: QuotaPlan, *, cluster_id: str | None) -> dict[str, object]:
    """What ``--output json`` prints."""
    return {
        "cluster_id": cluster_id,
        "changes": [difference_json(each) for each in plan.differences],
        "refused_without_force": plan.objections(),
        "not_in_the_file": plan.unmentioned,
        "left_out": [each.sentence for each in plan.left_out],
    }


def difference_json(difference: Difference) -> Mapping[str, object]:
    """One change, for programs; an entity's default has the name null."""
    return {
        "entity": entity_json(difference.entity),
        "key": difference.key,
        "old_per_s": difference.old,
        "new_per_s": difference.new,
    }


def entity_json(entity: QuotaEntity) -> Mapping[str, str | None]:
    """An entity by its parts, as Kafka calls them; null is the default."""
    return named_parts(entity)


def _objection(lowering: Lowering) -> str:
    key = lowering.difference.key
    held, holds = (value_text(key, value) for value in (lowering.held, lowering.holds))
    line = f"{entity_words(lowering.difference.entity)}: {key} goes from {held} to {holds}, {lowering.percent:.3g} % lower"
    return line if lowering.difference.new is not None else f"{line} (that of the next level)"
