"""What is done to the brokers before and after an attack: their own quotas, and topics that it left."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData
from kio.schema.delete_topics.v5 import DeleteTopicsRequest, DeleteTopicsResponse
from kio.schema.describe_client_quotas.v1 import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kio.schema.incremental_alter_configs.v1 import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import f64, i8, i32Timedelta
from tests.adversary import good_client
from tests.adversary.target import Attack, Entity

from kvota.localkafka.cluster import ask as asking
from kvota.model.errors import UnreachableError
from kvota.testing.kafka_messages import milliseconds

_NO_LIMIT = 10.0**12
_PATIENCE_S, _LOOK_S = 120.0, 0.05
_DELETED_AT_ONCE = 500
_BROKER, _SET, _DELETE = 4, 0, 1  # Kafka's codes

Address = tuple[str, int]
Entities = Mapping[EntityData, Mapping[str, float]]


@contextmanager
def quotas_in_force(
    brokers: Collection[Address], attack: Attack, client_id: str, user: str
) -> Iterator[None]:
    """The brokers' own quotas, in force on entry and gone at the end."""
    entities = {_entity(attack.entity, client_id, user): attack.quotas}
    if attack.entity is Entity.EVERY_CLIENT_ID:
        good = EntityData(entity_type="client-id", entity_name=good_client.CLIENT_ID)
        entities[good] = dict.fromkeys(attack.quotas, _NO_LIMIT)
    if not attack.quotas:
        entities = {}
    try:
        _alter(brokers, entities, remove=False)
        yield
    finally:
        _alter(brokers, entities, remove=True)


@contextmanager
def connections_max_in_force(
    brokers: Collection[Address], connections_max: int | None
) -> Iterator[None]:
    """``max.connections`` of the brokers' listener with logins, in force on entry and gone at the end."""
    if connections_max is None:
        yield
        return
    try:
        _set_connections_max(brokers, str(connections_max))
        yield
    finally:
        _set_connections_max(brokers, None)


def _set_connections_max(brokers: Collection[Address], value: str | None) -> None:
    config = AlterableConfig(
        name="listener.name.sasl.max.connections",
        config_operation=i8(_SET if value else _DELETE),
        value=value,
    )
    everyone = AlterConfigsResource(resource_type=i8(_BROKER), resource_name="", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(everyone,), validate_only=False)
    first, *_ = brokers
    answer = _ask(first, request, IncrementalAlterConfigsResponse)
    assert all(response.error_code == 0 for response in answer.responses), answer


def delete_topics(brokers: Collection[Address], *, keeping: Collection[str]) -> None:
    """Deletes what an attack has created, and goes on to; returns when no broker knows of any."""

    def is_clean() -> bool:
        left = {broker: sorted(_topics(broker) - set(keeping)) for broker in brokers}
        for broker, names in left.items():
            _delete(broker, names[:_DELETED_AT_ONCE])
        return not any(left.values())

    _await(is_clean)


def _delete(broker: Address, names: Sequence[str]) -> None:
    if names:
        timeout = i32Timedelta.parse(milliseconds(30_000))
        request = DeleteTopicsRequest(
            topic_names=tuple(TopicName(name) for name in names), timeout=timeout
        )
        _ask(broker, request, DeleteTopicsResponse)


def _entity(entity: Entity, client_id: str, user: str) -> EntityData:
    if entity is Entity.USER:
        return EntityData(entity_type="user", entity_name=user)
    name = None if entity is Entity.EVERY_CLIENT_ID else client_id
    return EntityData(entity_type="client-id", entity_name=name)


def _alter(brokers: Collection[Address], entities: Entities, *, remove: bool) -> None:
    if not entities:
        return
    entries = tuple(
        EntryData(
            entity=(entity,),
            ops=tuple(
                OpData(key=name, value=f64(float(value)), remove=remove)
                for name, value in quotas.items()
            ),
        )
        for entity, quotas in entities.items()
    )
    first, *_ = brokers
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    answer = _ask(first, request, AlterClientQuotasResponse)
    assert all(entry.error_code == 0 for entry in answer.entries), answer
    wanted = set() if remove else {entity.entity_name for entity in entities}
    _await(lambda: all(_names(broker) == wanted for broker in brokers))


def _names(broker: Address) -> set[str | None]:
    """Of all entities with a quota."""
    request = DescribeClientQuotasRequest(components=(), strict=False)
    answer = _ask(broker, request, DescribeClientQuotasResponse)
    return {part.entity_name for entry in answer.entries or () for part in entry.entity}


def _topics(broker: Address) -> set[str]:
    request = MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    answer = _ask(broker, request, MetadataResponse)
    return {str(topic.name) for topic in answer.topics if not topic.is_internal}


def _ask(broker: Address, request: Any, answer_type: Any) -> Any:
    """As it is asked otherwise, but a broker may still have an attack's requests to go through."""
    return asking.ask(broker, request, answer_type, timeout_s=_PATIENCE_S)


def _await(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            msg = f"the brokers do not follow in {_PATIENCE_S:g} s"
            raise UnreachableError(msg)
        time.sleep(_LOOK_S)
