"""Compares the quotas in force with those of a plan: which change, and which clients notice."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.plain_text import name_on_screen
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.plan import Plan
from kvota.planning.plan_line import format_quota


@dataclass(frozen=True, slots=True)
class Change:
    """One configured quota before and after the change; None means that it is not configured."""

    entity: QuotaEntity
    quota_type: QuotaType
    old: float | None
    new: float | None

    def __str__(self) -> str:
        """Returns one line: ``~ user-principal 'a' PRODUCE 4.00 MB/s -> 8.00 MB/s``."""
        sign = "+" if self.old is None else "-" if self.new is None else "~"
        old, new = (_text(self.quota_type, quota) for quota in (self.old, self.new))
        entity = name_on_screen(str(self.entity))
        return f"{sign} {entity} {self.quota_type} {old} -> {new}"


@dataclass(frozen=True, slots=True)
class Effect:
    """One client's limits before and after changed quotas; a limit of None is unlimited."""

    user: str
    client_id: str
    quota_type: QuotaType
    old_limit: float | None
    new_limit: float | None
    moves: bool  # it is charged on another counter, which it may share with others

    def __str__(self) -> str:
        """Returns one line for people."""
        old, new = (_text(self.quota_type, limit) for limit in (self.old_limit, self.new_limit))
        moved = ", on another counter" if self.moves else ""
        user, client_id = map(name_on_screen, (self.user, self.client_id or "(no client id)"))
        return f"{user} / {client_id}: {self.quota_type} {old} -> {new}{moved}"


def with_plan(quotas: ConfiguredQuotas, plan: Plan) -> ConfiguredQuotas:
    """The quotas after the plan; those the plan leaves alone stay as configured."""
    return quotas.with_changes(
        QuotaChange(line.entity, line.quota_type, line.proposed)
        for line in plan.lines
        if line.is_change
    )


def changes(old: ConfiguredQuotas, new: ConfiguredQuotas) -> tuple[Change, ...]:
    """Every configured quota that is not the same in both, sorted by entity and type."""
    found = [
        Change(
            change.entity,
            change.quota_type,
            old.limit(change.entity, change.quota_type),
            change.limit,
        )
        for change in old.changes_to(new)
    ]
    return tuple(sorted(found, key=lambda change: (str(change.entity), change.quota_type)))


def effects(
    old: ClientQuotaCallback,
    new: ClientQuotaCallback,
    clients: Iterable[tuple[str, str]],
    quota_types: Iterable[QuotaType],
) -> tuple[Effect, ...]:
    """Returns the clients (user, client id) to whom the two callbacks give another limit or counter.

    Setting the first quota of a kind moves everybody to other counters (Kafka's rule), so a plan
    can reach clients it does not name.
    """
    types = tuple(quota_types)
    found = []
    for user, client_id in sorted(set(clients)):
        for quota_type in types:
            old_tags = old.quota_metric_tags(quota_type, user, client_id)
            new_tags = new.quota_metric_tags(quota_type, user, client_id)
            effect = Effect(
                user,
                client_id,
                quota_type,
                old.quota_limit(quota_type, old_tags),
                new.quota_limit(quota_type, new_tags),
                old_tags != new_tags,
            )
            if effect.moves or effect.old_limit != effect.new_limit:
                found.append(effect)
    return tuple(found)


def _text(quota_type: QuotaType, quota: float | None) -> str:
    return "none" if quota is None else format_quota(quota_type, quota)
