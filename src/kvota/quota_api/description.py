"""Which quotas a DescribeClientQuotas request asks for, and with which words it is refused.

Source: ``ClientQuotasImage.describe`` of Kafka 4.3, compared with a running broker.
"""

from collections.abc import Mapping
from itertools import islice

from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import CLIENT_ID, DEFAULT, IP, USER, EntityName, QuotaEntity
from kvota.quota_api.entity import TYPES, parts_of
from kvota.quota_api.java_hash_map import string_order
from kvota.wire import client_quotas as wire
from kvota.wire.client_quotas import Component, Filter
from kvota.wire.error_code import ErrorCode
from kvota.wire.steps import Steps

# Half a ms of work, where nothing matches: who watches quotas asks for all of them again and again, and
# everybody else waits for a step each time.
_LOOKED_AT_PER_STEP = 1_250
# The same, where the encoding of all is known; to make one costs as much as so many.
_KNOWN_PER_STEP = 2_000
_NEW_COSTS = 16
_ENCODED_PER_STEP = _KNOWN_PER_STEP // _NEW_COSTS

_Refusal = tuple[int, str]

# What a component wants of the part of its type: this name, or (None) that there is one.
_Wanted = dict[str, EntityName]

_Values = Mapping[str, float]
# Entities with their values.
_Found = list[tuple[QuotaEntity, _Values]]


class Descriptions:
    """Entities as answers have had them: what has not changed since is not encoded again.

    Those who watch quotas ask for all of them, again and again.
    """

    def __init__(self) -> None:
        # By whether the answer is of a flexible version.
        self._known: dict[bool, dict[QuotaEntity, tuple[_Values, bytes]]] = {False: {}, True: {}}

    def encoded(self, found: _Found, *, of: int, flexible: bool) -> Steps[list[bytes]]:
        """The entities as an answer has them, a little at a time.

        Args:
            found: what was asked for.
            of: so many entities there are in all.
            flexible: whether the answer's version is.
        """
        known = self._known[flexible]
        if len(known) > 2 * of + _ENCODED_PER_STEP:  # most of them are gone
            known.clear()
        entries = []
        work = 0
        for entity, values in found:
            before = known.get(entity)
            if before is not None and before[0] is values:
                work += 1
                entries.append(before[1])
            else:
                work += _NEW_COSTS
                entry = wire.encode_described(parts_of(entity), _ordered(values), flexible=flexible)
                known[entity] = (values, entry)
                entries.append(entry)
            if work >= _KNOWN_PER_STEP:
                work = 0
                yield
        return entries


def refusal(asked: Filter) -> _Refusal | None:
    """Error code and words where a broker refuses the filter; None: it takes it."""
    types: set[str] = set()
    for component in asked.components:
        refused = _component_refusal(component, types)
        if refused is not None:
            return refused
        types.add(component.type)
    if IP in types and types & {USER, CLIENT_ID}:
        words = (
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
        return ErrorCode.INVALID_REQUEST, words
    return None


def matching(asked: Filter, quotas: ClientQuotas) -> Steps[_Found]:
    """The quotas that a filter asks for which is not refused, a little at a time."""
    wanted: _Wanted = {}
    for component in asked.components:
        wanted[component.type] = (
            component.match
            if component.match_type == wire.EXACT
            else DEFAULT
            if component.match_type == wire.DEFAULT
            else None
        )
    exactly = _the_only_one(wanted) if asked.strict else None
    if exactly is not None:
        values = quotas.entries().get(exactly)
        return [] if values is None else [(exactly, values)]
    found: _Found = []
    left = iter(quotas.entries().items())
    while some := list(islice(left, _LOOKED_AT_PER_STEP)):
        found += (
            [each for each in some if _matches(each[0], wanted, strict=asked.strict)]
            if wanted or asked.strict
            else some
        )
        yield
    return found


def _component_refusal(component: Component, types: set[str]) -> _Refusal | None:
    of_type, match_type, match = component
    if not of_type:
        return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
    if of_type in types:
        words = f"Entity type {of_type} cannot appear more than once in the filter."
        return ErrorCode.INVALID_REQUEST, words
    if of_type not in TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {of_type}"
    if match_type == wire.EXACT:
        words = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        return None if match is not None else (ErrorCode.INVALID_REQUEST, words)
    if match_type not in {wire.DEFAULT, wire.ANY}:
        return ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}"
    name = "MATCH_TYPE_DEFAULT" if match_type == wire.DEFAULT else "MATCH_TYPE_SPECIFIED"
    words = f"Request specified {name}, but also specified a match string."
    return None if match is None else (ErrorCode.INVALID_REQUEST, words)


def _the_only_one(wanted: _Wanted) -> QuotaEntity | None:
    """The one entity that a strict filter can match, where it names all its parts."""
    if not wanted or None in wanted.values() or "" in wanted.values():
        return None
    return QuotaEntity(user=wanted.get(USER), client_id=wanted.get(CLIENT_ID), ip=wanted.get(IP))


def _matches(entity: QuotaEntity, wanted: _Wanted, *, strict: bool) -> bool:
    named = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    if strict and sum(name is not None for name in named.values()) != len(wanted):
        return False
    for of_type, name in wanted.items():
        its = named[of_type]
        if its is None or (name is not None and its != name):
            return False
    return True


def _ordered(values: _Values) -> list[tuple[str, float]]:
    return [(key, values[key]) for key in string_order(values, capacity=len(values))]
