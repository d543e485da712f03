"""Which changes take more away from somebody than may be taken at once.

What counts is the limit that holds for an entity's clients: its own, or, where it has none, that of the next of Kafka's levels
which reaches all of them. So a removed quota is a lowering where a smaller default takes its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import Difference


class Lowering(NamedTuple):
    """A limit that goes down; ``percent`` of what held before is taken away."""

    difference: Difference
    held: float
    holds: float
    percent: float


def lowerings(
    differences: Sequence[Difference], before: ClientQuotas, after: ClientQuotas
) -> list[Lowering]:
    """Every limit that goes down; where none held before, a first one takes no share of it away."""
    found = []
    for difference in differences:
        held = limit_of(before, difference.entity, difference.key)
        holds = limit_of(after, difference.entity, difference.key)
        if held is not None and holds is not None and holds < held:
            found.append(Lowering(difference, held, holds, 100 * (1 - holds / held)))
    return found


def too_far(found: Sequence[Lowering], *, percent_max: float) -> list[Lowering]:
    """Those of more than ``percent_max`` percent; what is this much to the last digit passes."""
    return [each for each in found if each.percent > percent_max * (1 + 1e-12)]


def limit_of(quotas: ClientQuotas, entity: QuotaEntity, key: str) -> float | None:
    """The limit that holds for all clients which have none of a level above this entity's; None: there is none."""
    for level in (entity, *_levels_below(entity)):
        value = quotas.value(level, key)
        if value is not None:
            return value
    return None


def _levels_below(entity: QuotaEntity) -> list[QuotaEntity]:
    """In Kafka's order, without those that are for some names among the entity's clients."""
    user, client_id, ip = entity
    if ip is not None:
        return [] if ip is DEFAULT else [QuotaEntity(ip=DEFAULT)]
    users = dict.fromkeys((user, DEFAULT, None)) if user is not None else dict.fromkeys((user,))
    names = (client_id,) if isinstance(client_id, str) else ()
    levels = [(one, other) for one in users for other in (*names, DEFAULT, None)]
    below = levels[levels.index((user, client_id)) + 1 :]
    return [QuotaEntity(*level) for level in below if level != (None, None)]
