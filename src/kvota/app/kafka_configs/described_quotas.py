"""Quotas as a command line names them, in the order in which Kafka's tool has them."""

from collections.abc import Mapping
from itertools import zip_longest

from kvota.admin import (
    DEFAULT,
    AdminClient,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaEntity,
)
from kvota.admin.client_quotas import EntityType
from kvota.app.kafka_configs.command_line import CLIENTS, IPS, USERS, CommandLine
from kvota.quota_api.entity import entity_hash, parts_of
from kvota.quota_api.java_hash_map import hash_order, string_order

_ENTITY_TYPES: Mapping[str, EntityType] = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}


async def described_quotas(
    admin: AdminClient, line: CommandLine
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of all entities that the line names, and of no others."""
    components = [
        ClientQuotaFilterComponent(_ENTITY_TYPES[kind], DEFAULT if name == "" else name)
        for kind, name in zip_longest(line.types, line.names)
    ]
    found = await admin.describe_client_quotas(ClientQuotaFilter.contains_only(components))
    entities = list(found)
    hashes = [entity_hash({part.type: part.name for part in parts_of(each)}) for each in entities]
    return {
        entity: {
            key: found[entity][key]
            for key in string_order(found[entity], capacity=len(found[entity]))
        }
        for entity in hash_order(entities, hashes, capacity=len(entities))
    }
