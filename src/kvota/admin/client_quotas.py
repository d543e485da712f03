"""Client quotas as AlterClientQuotas and DescribeClientQuotas have them (KIP-546; Kafka 2.6 and newer)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kvota.admin.operation import Operation, Outcome
from kvota.client import Answer, Fields, ProtocolError, UsageError
from kvota.model.quota_entity import DEFAULT, Default, QuotaEntity
from kvota.quota_api.entity import TYPES, parts_of, quota_entity
from kvota.wire.admin_requests import alteration_body
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kvota.wire.client_quotas import Entry
from kvota.wire.client_quotas import Operation as Change

EntityType = Literal["user", "client-id", "ip"]
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """Which names an entity may have in one part.

    Attributes:
        entity_type: of the part.
        match: a name, ``DEFAULT``, or None: any, the default among them.
    """

    entity_type: EntityType
    match: str | Default | None

    @classmethod
    def of_entity(cls, entity_type: EntityType, name: str) -> "ClientQuotaFilterComponent":
        """The part with this name."""
        return cls(entity_type, name)

    @classmethod
    def of_default_entity(cls, entity_type: EntityType) -> "ClientQuotaFilterComponent":
        """The default."""
        return cls(entity_type, DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: EntityType) -> "ClientQuotaFilterComponent":
        """Any, the default among them."""
        return cls(entity_type, None)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Which entities are described.

    Attributes:
        components: an entity has to match all of them.
        strict: and it has no other parts.
    """

    components: tuple[ClientQuotaFilterComponent, ...]
    strict: bool

    @classmethod
    def all(cls) -> "ClientQuotaFilter":
        """All entities."""
        return cls((), strict=False)

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Entities with these parts, and others beside them."""
        return cls(tuple(components), strict=False)

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Entities with these parts, and no others."""
        return cls(tuple(components), strict=True)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """What changes for one entity; all of it, or nothing.

    Attributes:
        entity: whose quotas.
        ops: values by Kafka's keys (``producer_byte_rate``, …); None: the key is removed.
    """

    entity: QuotaEntity
    ops: Mapping[str, float | None]


def description(wanted: ClientQuotaFilter) -> Operation[None, dict[QuotaEntity, dict[str, float]]]:
    """What is asked; the answer has one result."""
    content: Fields = {
        "components": [_component(component) for component in wanted.components],
        "strict": wanted.strict,
    }
    return Operation(
        api_key=DESCRIBE_CLIENT_QUOTAS,
        what=lambda _: "client quotas cannot be described",
        content=lambda _version, _keys, _left_ms: content,
        outcomes=_described,
    )


def _component(component: ClientQuotaFilterComponent) -> Fields:
    match = component.match
    match_type = _ANY if match is None else _DEFAULT if isinstance(match, Default) else _EXACT
    return {
        "entity_type": component.entity_type,
        "match_type": match_type,
        "match": match if isinstance(match, str) else None,
    }


def _described(answer: Answer) -> Iterable[Outcome[None, dict[QuotaEntity, dict[str, float]]]]:
    quotas = {
        _entity(entry.entity): {str(value.key): float(value.value) for value in entry.values}
        for entry in answer.entries or ()
    }
    yield Outcome(None, int(answer.error_code), answer.error_message, quotas)


def alteration(
    alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool
) -> tuple[Sequence[QuotaEntity], Operation[QuotaEntity, None]]:
    """Whom it is about, and what is asked.

    Raises:
        UsageError: an entity is named twice.
    """
    ops: dict[QuotaEntity, Mapping[str, float | None]] = {}
    for each in alterations:
        if each.entity in ops:
            msg = f"{each.entity} is altered twice; put all its keys into one alteration"
            raise UsageError(msg)
        ops[each.entity] = each.ops

    return list(ops), Operation(
        api_key=ALTER_CLIENT_QUOTAS,
        what=lambda entity: f"the quotas of {entity} cannot be altered",
        content=_alteration_request(ops, validate_only=validate_only),
        outcomes=_altered,
        changes=not validate_only,
    )


def _alteration_request(
    ops: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> Callable[[int, Sequence[QuotaEntity], int], bytes]:
    def content(version: int, entities: Sequence[QuotaEntity], _left_ms: int) -> bytes:
        entries = (
            Entry(parts_of(each), tuple(map(_change, ops[each].items()))) for each in entities
        )
        return alteration_body(version, entries, validate_only=validate_only)

    return content


def _change(op: tuple[str, float | None]) -> Change:
    return Change(*op)


def _altered(answer: Answer) -> Iterable[Outcome[QuotaEntity, None]]:
    for entry in answer.entries:
        yield Outcome(_entity(entry.entity), int(entry.error_code), entry.error_message, None)


def _entity(parts: Answer) -> QuotaEntity:
    names = {
        str(part.entity_type): None if part.entity_name is None else str(part.entity_name)
        for part in parts
    }
    if not names or not TYPES.issuperset(names):
        msg = f"the broker names a quota's entity by {', '.join(names) or 'nothing'}; Kafka has {', '.join(sorted(TYPES))}"
        raise ProtocolError(msg)
    return quota_entity(names)
