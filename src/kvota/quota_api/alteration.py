"""What a controller makes of an alteration: which entries it takes, and with which words it refuses others.

Source: ``ClientQuotaControlManager`` of Kafka 4.3, compared with a running controller.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fmod

from kvota.model.client_quotas import KEYS, ClientQuotas, KeyChange, Number
from kvota.model.entity_table import is_same
from kvota.model.quota_entity import CLIENT_ID, IP, USER
from kvota.quota_api.entity import (
    TYPES,
    EntityMap,
    entity_hash,
    entity_map,
    entity_text,
    quota_entity,
)
from kvota.quota_api.java_hash_map import hash_order, string_order
from kvota.wire.client_quotas import AlterResult, Entry, Part
from kvota.wire.error_code import ErrorCode
from kvota.wire.steps import STEP_PARTS, Steps

# A controller takes no more changed values in one request.
CHANGES_MAX = 10_000
_TOO_MANY = "Request parameters do not satisfy the configured policy."

# Kinds of whole numbers: the largest as a double, and what they are called.
_WHOLE = {Number.LONG: (float(2**63 - 1), "a LONG"), Number.INT: (2**31 - 1, "an INT")}
# Kafka forgives this much above a whole number.
_FRACTION_MAX = 1e-6

# Two entities are one if their maps are equal, in whatever order.
_Identity = frozenset[tuple[str, str | None]] | tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of a request.

    Attributes:
        results: for each entity, in a broker's order.
        changes: of the entries that were taken, those that change something, or may.
    """

    results: Sequence[AlterResult]
    changes: Sequence[KeyChange]


def host_names(entries: Iterable[Entry]) -> set[str]:
    """The names of ip entities; whether they can be looked up has to be found out before ``judge``."""
    names = set()
    for parts, _ in entries:
        name = parts[-1].name if parts and parts[-1].type == IP else None
        if name:
            names.add(name)
    return names


def judge(
    entries: Sequence[Entry],
    quotas: ClientQuotas,
    unknown_hosts: Collection[str],
    *,
    may_lag: bool = False,
) -> Steps[Judged]:
    """Check a request, a little at a time.

    Args:
        entries: in request order; they do not depend on each other, but for entities that repeat.
        quotas: as they are now; what they have already is no change.
        unknown_hosts: the names of ip entities that are neither addresses nor known to anybody.
        may_lag: the stored quotas may be newer than ``quotas``: all that was taken is a change.
    """
    results: dict[_Identity, AlterResult] = {}
    hashes: dict[_Identity, int] = {}
    changes: list[KeyChange] = []
    changing = 0
    for number, (parts, operations) in enumerate(entries, 1):
        entity = entity_map(parts)
        identity = parts[0] if len(parts) == 1 else _identity(entity)
        values = dict(operations)
        before = results.get(identity)
        if before is not None:
            entity = dict(before.parts)
        else:
            hashes[identity] = entity_hash(entity)
        if before is not None or len(values) < len(operations):
            # A key that is there twice is remarked upon first, and then as a repeated entity.
            message: str | None = f"Ignoring duplicate entity {entity_text(entity)}"
        else:
            message = _fault(entity, values, unknown_hosts)
            if message is None:
                for change in _changes(entity, values):
                    differs = not is_same(quotas.value(change.entity, change.key), change.value)
                    changing += differs
                    if may_lag or differs:
                        changes.append(change)
        results[identity] = AlterResult(
            parts if len(parts) == 1 else tuple(Part(*item) for item in entity.items()),
            ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST,
            message,
        )
        if number % STEP_PARTS == 0:
            yield
    if changing > CHANGES_MAX:
        return Judged(refuse_all(entries, ErrorCode.POLICY_VIOLATION, _TOO_MANY), ())
    return Judged(hash_order(list(results.values()), hashes.values()), changes)


def refuse_all(entries: Iterable[Entry], error_code: int, message: str | None) -> list[AlterResult]:
    """The request fails as a whole: every entry says so, with its parts as they came."""
    return [AlterResult(entry.parts, error_code, message) for entry in entries]


def _fault(
    entity: EntityMap, values: Mapping[str, float | None], unknown_hosts: Collection[str]
) -> str | None:
    """What is wrong with an entry; None: nothing."""
    fault = _fault_of_entity(entity, unknown_hosts)
    if fault is not None:
        return fault
    for key in string_order(values, capacity=len(values)):
        value = values[key]
        if value is not None:
            fault = fault_of_value(key, value, entity)
            if fault is not None:
                return fault
    return None


def _fault_of_entity(entity: EntityMap, unknown_hosts: Collection[str]) -> str | None:
    if not entity:
        return "Invalid empty client quota entity"
    for of_type, name in entity.items():
        if of_type not in TYPES:
            return f"Unhandled client quota entity type: {of_type}"
        if name == "":
            return f"Empty {of_type} not supported"
    if IP in entity:
        if USER in entity or CLIENT_ID in entity:
            return (
                "Invalid quota entity combination, IP entity should"
                "not be combined with User or ClientId"
            )
        if entity[IP] in unknown_hosts:
            return f"{entity[IP]} is not a valid IP or resolvable host."
    return None


def fault_of_value(key: str, value: float, types: Collection[str]) -> str | None:
    """What is wrong with a value of an entity with parts of these types. NaN passes: it is neither below nor above anything."""
    known = KEYS.get(key)
    if known is None or not known.fits(types):
        return f"Invalid configuration key {key}"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    if known.number is Number.DOUBLE:
        return None
    most, called = _WHOLE[known.number]
    if value > most:
        return f"Proposed value for {key} is too large for {called}."
    if abs(fmod(value, 1.0)) > _FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def _changes(entity: EntityMap, values: Mapping[str, float | None]) -> list[KeyChange]:
    """What the operations ask for; nobody has a key that is not known, so removing it is nothing."""
    of_entity = quota_entity(entity)
    return [
        KeyChange(of_entity, key, values[key])
        for key in string_order(values)
        if key in KEYS and KEYS[key].fits(entity)
    ]


def _identity(entity: EntityMap) -> _Identity:
    """A part is a tuple: equal to its type and name."""
    items = entity.items()
    return next(iter(items)) if len(entity) == 1 else frozenset(items)
