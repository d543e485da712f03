"""Quotas from elsewhere become the gateway's own: those that brokers hold, or those of a file."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvota.app.config import GatewayConfig
from kvota.app.quota_opening import cluster_maker, stored_quotas
from kvota.app.quota_settings import QuotaSourceKind
from kvota.app.system_clock import SystemClock
from kvota.client import BrokerConnection, BrokerError, Cluster, Security
from kvota.files.command_name import called
from kvota.files.whole_file import write_whole
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import UnreachableError, UsageError
from kvota.quota_api.entity import TYPES, parts_of, quota_entity
from kvota.store.file_store import StoreInUseError, load_quota_file, lock_quota_file
from kvota.store.quota_document import QuotaDocument, value_of
from kvota.store.quota_rows import changes_of, encode_rows
from kvota.store.quota_topic import QuotaTopic
from kvota.store.quotas_file import dump_quotas, load_client_quotas, write_quotas
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

# Changes of one request to a gateway that runs.
_CHANGES_PER_REQUEST = 500
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (connected to, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What would become of the gateway's quotas.

    Attributes:
        before: those there are.
        changes: those that come, change or go.
        left_out: what cannot be taken over, a sentence each.
    """

    before: ClientQuotas
    changes: Sequence[KeyChange]
    left_out: Sequence[str] = ()


async def brokers_quotas(cluster: Cluster) -> tuple[ClientQuotas, list[str]]:
    """Return the quotas that the brokers hold, and a sentence for each that means nothing here.

    Raises:
        BrokerError: the user may not see them.
        UsageError: the brokers are older than 2.6, and do not tell.
        UnreachableError: no broker answers.
    """
    answer = await cluster.ask(DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    if int(answer.error_code):
        what = "describe client quotas"
        raise BrokerError(what, int(answer.error_code), answer.error_message)
    return described_quotas(answer.entries or ())


def described_quotas(entries: Iterable[Any]) -> tuple[ClientQuotas, list[str]]:
    """Return what an answer to DescribeClientQuotas has, and a sentence for each value that means nothing here."""
    changes: list[KeyChange] = []
    left_out: list[str] = []
    for entry in entries:
        named = {str(part.entity_type): part.entity_name for part in entry.entity}
        if not TYPES.issuperset(named):
            left_out.append(f"{named}: an entity that is not known here")
            continue
        entity = quota_entity(named)
        for each in entry.values:
            key, value = str(each.key), float(each.value)
            try:
                changes.append(KeyChange(entity, key, value_of(entity, key, value)))
            except ValueError as error:  # a key of a newer Kafka, or a value of before 4.0
                left_out.append(f"{entity}: {key} = {value:.12g}: {error}")
    return ClientQuotas().with_changes(changes), left_out


def file_quotas(path: Path) -> ClientQuotas:
    """Return the quotas of a file that people write (``*.toml``), or of a store of a gateway's.

    Raises:
        UsageError: it is none, or cannot be read.
    """
    if path.suffix == ".toml":
        return load_client_quotas(path)
    if not path.exists():
        msg = f"{path}: there is no such file"
        raise UsageError(msg)
    document, problem = load_quota_file(path)
    if problem is not None:
        raise UsageError(problem)
    return document.quotas


def gateways_quotas(config: GatewayConfig) -> ClientQuotas:
    """Return the quotas of a store of the gateway's own; those of a topic are asked of the cluster.

    Raises:
        UsageError: the file cannot be read.
        TopicError: the topic is none that quotas can be kept in.
        UnreachableError: the cluster does not answer.
        BrokerError: it refuses.
    """
    stored, problem = stored_quotas(config)
    if config.quotas.source is QuotaSourceKind.TOPIC:
        of_topic = asyncio.run(_of_topic(config))
        # A topic that is new takes what was there last, as it does from a gateway.
        return stored if of_topic is None else of_topic
    if problem is not None:
        raise UsageError(problem)
    return stored


async def _of_topic(config: GatewayConfig) -> ClientQuotas | None:
    """None: there is none yet, or it is empty."""
    topic = QuotaTopic(config.quotas.topic, cluster_maker(config))
    try:
        if not await topic.find():
            return None
        await topic.check()
        if await topic.is_new():
            return None
        found = ClientQuotas()
        async for decoded in topic.all_rows():
            changes, _ = changes_of(decoded.rows)
            found = found.with_changes(changes)
        return found
    finally:
        await topic.close()


def planned(
    config: GatewayConfig, before: ClientQuotas, found: ClientQuotas, *, replaces: bool
) -> Import:
    """Say what would change; ``replaces``: what was not found goes."""
    left_out: list[str] = []
    if config.quotas.source is QuotaSourceKind.TOML:
        found = _writable(found, left_out)
    changes = [
        change for change in before.changes_to(found) if replaces or change.value is not None
    ]
    return Import(before=before, changes=changes, left_out=left_out)


def _writable(quotas: ClientQuotas, left_out: list[str]) -> ClientQuotas:
    """Those that a file can have which people write."""
    kept = []
    for entity, values in quotas.entries().items():
        for key, value in values.items():
            try:
                dump_quotas(ClientQuotas({entity: {key: value}}))
            except UsageError as error:
                left_out.append(str(error))
            else:
                kept.append(KeyChange(entity, key, value))
    return ClientQuotas().with_changes(kept)


# ------------------------------------------------------------------ carrying it out


def carry_out(config: GatewayConfig, plan: Import, security: Security) -> list[str]:
    """Put the changes where the gateway has its quotas; returns what to say.

    Args:
        config: the gateway's.
        plan: what changes.
        security: how to log in to a gateway that runs.

    Raises:
        KvotaError: it could not be done; says what is as it was.
    """
    after = plan.before.with_changes(plan.changes)
    file = config.quotas.file
    if config.quotas.source is QuotaSourceKind.TOML:
        kept = _kept_copy(file)
        write_quotas(file, after)
        in_force = f"in force with: {called()} gateway reload -c {config.path}"
        return [f"wrote {file}; {in_force}", _undo(file, kept)]
    kept = file.with_name(f"{file.name}.before-import")
    _write(kept, plan.before)
    undo = f"to undo: {called()} gateway import-quotas -c {config.path} --from {kept} --replace"
    if config.quotas.source is QuotaSourceKind.TOPIC:
        asyncio.run(_append(config, plan.changes, after))
        return [f"appended to topic {config.quotas.topic}", undo]
    try:
        lock = lock_quota_file(file)
    except StoreInUseError:
        asyncio.run(_through_the_gateway(config, plan.changes, security))
        return ["the gateway that runs has them in force", undo]
    _write(file, after)
    if lock is not None:
        lock.close()
    return [f"wrote {file}", undo]


def _kept_copy(file: Path) -> Path | None:
    if not file.exists():
        return None
    copy = file.with_name(f"{file.name}.before-import")
    _write_bytes(copy, file.read_bytes())
    return copy


def _undo(file: Path, kept: Path | None) -> str:
    return f"to undo: rm {file}" if kept is None else f"to undo: mv {kept} {file}"


def _write(path: Path, quotas: ClientQuotas) -> None:
    _write_bytes(path, QuotaDocument(quotas).content())


def _write_bytes(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror or error}. Nothing was changed"
        raise UnreachableError(msg) from error


async def _append(config: GatewayConfig, changes: Sequence[KeyChange], after: ClientQuotas) -> None:
    """What is new gets all of them: a gateway takes what it has for what there is."""
    topic = QuotaTopic(config.quotas.topic, cluster_maker(config))
    try:
        await topic.find_or_make()
        if await topic.is_new():
            changes = ClientQuotas().changes_to(after)
        await topic.append(encode_rows(changes), now_ms=SystemClock().now_us() // 1000)
    finally:
        await topic.close()


async def _through_the_gateway(
    config: GatewayConfig, changes: Sequence[KeyChange], security: Security
) -> None:
    """Alter the quotas of a gateway that runs, as Kafka's tools do.

    Raises:
        BrokerError: it refuses; what was altered before stays.
    """
    host = _WILDCARDS.get(config.gateway.host, config.gateway.host)
    address = host, config.gateway.bootstrap_port
    connection = await BrokerConnection.open(address, security=security)
    what = "alter client quotas"
    try:
        for entries in _entries(changes):
            content = {"entries": entries, "validate_only": False}
            answer = await connection.ask(ALTER_CLIENT_QUOTAS, content, timeout_s=60)
            for entry in answer.entries:
                if int(entry.error_code):
                    raise BrokerError(what, int(entry.error_code), entry.error_message)
    finally:
        await connection.close()


def _entries(changes: Sequence[KeyChange]) -> Iterator[list[Mapping[str, object]]]:
    """Requests of some changes each; those of one entity go together."""
    of_entity: dict[Any, list[Mapping[str, object]]] = {}
    for entity, key, value in changes:
        removed = value is None
        operation = {"key": key, "value": 0.0 if removed else value, "remove": removed}
        of_entity.setdefault(entity, []).append(operation)
    entries: list[Mapping[str, object]] = []
    for entity, operations in of_entity.items():
        parts = [{"entity_type": part.type, "entity_name": part.name} for part in parts_of(entity)]
        entries.append({"entity": parts, "ops": operations})
        if len(entries) == _CHANGES_PER_REQUEST:
            yield entries
            entries = []
    if entries:
        yield entries
