"""The same changes for those who put no gateway in the path: lines for Kafka's tool, users for Strimzi."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kvota.app.quotas_as_code.difference_lines import entity_words
from kvota.app.quotas_as_code.plan import QuotaPlan
from kvota.files.command_name import called
from kvota.model.client_quotas import KEYS, PRODUCER_IDS_KEY, KeyChange, Number
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.planning.wanted_quotas import WantedQuotas, entity_order

# What Kubernetes takes for a name (RFC 1123), and Strimzi for a user's.
_RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESOURCE_NAME_MAX = 253
# Source: the schema of KafkaUserQuotas; an integer where Kafka takes any number.
_STRIMZI_KEYS = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
_WHOLE_IN_STRIMZI = frozenset(_STRIMZI_KEYS) - {"controller_mutation_rate"}
_LONG_MAX = 2**63 - 1
_NO_VALUES: Mapping[str, float] = {}


def kafka_configs_lines(
    changes: Iterable[KeyChange], *, bootstrap_server: str, command_config: str | None = None
) -> Iterator[str]:
    """Command lines for a shell, one an entity; they bring the changes about one after the other.

    Those that ``left_out_of_kafka_configs`` names are not in them.
    """
    of_entity: dict[QuotaEntity, list[KeyChange]] = {}
    for change in changes:
        if change.key == PRODUCER_IDS_KEY:
            continue
        of_entity.setdefault(change.entity, []).append(change)
    start = ["kafka-configs.sh", "--bootstrap-server", bootstrap_server]
    if command_config is not None:
        start += ["--command-config", command_config]
    for entity in sorted(of_entity, key=entity_order):
        words = [*start, "--alter", *_entity_words(entity)]
        values = [
            f"{key}={_number(key, value)}"
            for _, key, value in of_entity[entity]
            if value is not None
        ]
        removed = [key for _, key, value in of_entity[entity] if value is None]
        if values:
            words += ["--add-config", ",".join(values)]
        if removed:
            words += ["--delete-config", ",".join(removed)]
        yield shlex.join(words)


def left_out_of_kafka_configs(changes: Iterable[KeyChange]) -> list[str]:
    """What Kafka's tool refuses, for it sets and deletes only keys that brokers know; a sentence each."""
    return [
        f"{entity_words(change.entity)}: kafka-configs.sh does not know {change.key}; "
        f"{called()} configs and {called()} quotas apply do"
        for change in changes
        if change.key == PRODUCER_IDS_KEY
    ]


def _entity_words(entity: QuotaEntity) -> Iterator[str]:
    for of_type, name in zip(("users", "clients", "ips"), entity, strict=True):
        if name is None:
            continue
        yield from ("--entity-type", of_type)
        if name is DEFAULT:
            yield "--entity-default"
        elif str(name).startswith("-"):  # else it would be an option
            yield f"--entity-name={name}"
        else:
            yield from ("--entity-name", str(name))


def _number(key: str, value: float) -> str:
    """As Java reads a double."""
    if value != value:  # noqa: PLR0124  (NaN differs from itself)
        return "NaN"
    if value == float("inf"):
        return "Infinity"
    if KEYS[key].number is Number.DOUBLE and not value.is_integer():
        return repr(value)
    return str(min(round(value), _LONG_MAX))


class KafkaUsers(NamedTuple):
    """What Strimzi's operator takes.

    Attributes:
        text: YAML documents, a KafkaUser each; empty where there is none.
        left_out: what it cannot say, a sentence each.
    """

    text: str
    left_out: Sequence[str]


def users_wanted(wanted: WantedQuotas, *, cluster: str) -> KafkaUsers:
    """Return a KafkaUser for each user's own quotas; for server-side apply, which leaves its other fields alone.

    Args:
        wanted: who shall have none has a KafkaUser without quotas.
        cluster: the name of the Kafka resource.
    """
    without = {entity: _NO_VALUES for entity, _ in wanted.removed}
    return _kafka_users({**without, **wanted.quotas.entries()}, cluster)


def users_changed(plan: QuotaPlan, *, cluster: str) -> KafkaUsers:
    """The same for those whose quotas a plan changes, with all that they would have then."""
    after = plan.after.entries()
    changed = {each.entity: after.get(each.entity, _NO_VALUES) for each in plan.differences}
    return _kafka_users(changed, cluster)


def _kafka_users(quotas: Mapping[QuotaEntity, Mapping[str, float]], cluster: str) -> KafkaUsers:
    documents: list[str] = []
    left_out: list[str] = []
    for entity in sorted(quotas, key=entity_order):
        values = quotas[entity]
        problem = _not_for_strimzi(entity, values)
        if problem is not None:
            left_out.append(f"{entity_words(entity)}: {problem}")
            continue
        documents.append("\n".join(_kafka_user(str(entity.user), values, cluster)))
    return KafkaUsers("\n---\n".join(documents) + "\n" if documents else "", left_out)


def _kafka_user(user: str, values: Mapping[str, float], cluster: str) -> Iterator[str]:
    yield "apiVersion: kafka.strimzi.io/v1"
    yield "kind: KafkaUser"
    yield "metadata:"
    yield f"  name: {json.dumps(_resource_name(user))}"
    yield "  labels:"
    yield f"    strimzi.io/cluster: {json.dumps(cluster)}"
    yield "spec:"
    yield "  quotas:" if values else "  quotas: {}"
    for key, value in values.items():
        yield f"    {_STRIMZI_KEYS[key]}: {_number(key, value)}"


def _resource_name(user: str) -> str:
    """Strimzi's own name of a user; one who logs in with a certificate is CN=name to Kafka."""
    return user.removeprefix("CN=")


def _not_for_strimzi(entity: QuotaEntity, values: Mapping[str, float]) -> str | None:
    name: EntityName = entity.user
    if entity.ip is not None or entity.client_id is not None or not isinstance(name, str):
        return "a KafkaUser has the quotas of one user by name, with all clients"
    resource = _resource_name(name)
    if len(resource) > _RESOURCE_NAME_MAX or not _RESOURCE_NAME.fullmatch(resource):
        return "no resource of Kubernetes can be called that"
    for key, value in values.items():
        if key not in _STRIMZI_KEYS:
            return f"a KafkaUser has no {key}"
        is_whole = value.is_integer() and value <= _LONG_MAX
        if not is_whole and (key in _WHOLE_IN_STRIMZI or not value < float("inf")):
            return f"{_STRIMZI_KEYS[key]} is a whole number there, and this is {value:g}"
    return None
