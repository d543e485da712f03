"""Quotas from elsewhere become the gateway's own: those that brokers hold, or those of a file."""

import asyncio
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from kvota.app.config import GatewayConfig
from kvota.app.quota_opening import cluster_maker, stored_document
from kvota.app.quota_settings import QuotaSourceKind
from kvota.app.system_clock import SystemClock
from kvota.client import BrokerConnection, BrokerError, Cluster, Security
from kvota.client.record_batches import encode_batch
from kvota.files.command_name import called
from kvota.files.whole_file import write_whole
from kvota.model.address import from_here
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.quota_api.entity import TYPES, parts_of, quota_entity
from kvota.store.document_file import DocumentFile, StoreInUseError, lock_quota_file
from kvota.store.file_store import load_quota_file, load_snapshot, write_changes
from kvota.store.quota_document import QuotaDocument, value_of
from kvota.store.quota_rows import LastRows, encode_rows, encode_settings
from kvota.store.quota_topic import QuotaTopic, size_bytes
from kvota.store.quotas_file import dump_quotas, load_client_quotas, write_quotas
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

# Of one request to a gateway that runs.
_ENTITIES_PER_REQUEST = 500


class LeftOut(NamedTuple):
    """What cannot be taken over.

    Attributes:
        sentence: names it, and says why.
        of: whose quota it is; None: of nobody who could have one here.
    """

    sentence: str
    of: tuple[QuotaEntity, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What would become of the gateway's quotas.

    Attributes:
        before: those there are.
        changes: those that come, change or go.
        left_out: what cannot be taken over.
    """

    before: ClientQuotas
    changes: Sequence[KeyChange]
    left_out: Sequence[LeftOut] = ()


async def brokers_quotas(cluster: Cluster) -> tuple[ClientQuotas, list[LeftOut]]:
    """Return the quotas that the brokers hold, and those that mean nothing here.

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


def described_quotas(entries: Iterable[Any]) -> tuple[ClientQuotas, list[LeftOut]]:
    """Return what an answer to DescribeClientQuotas has, and what of it means nothing here."""
    changes: list[KeyChange] = []
    left_out: list[LeftOut] = []
    for entry in entries:
        named = {str(part.entity_type): part.entity_name for part in entry.entity}
        if not TYPES.issuperset(named):
            left_out.append(LeftOut(f"{named}: an entity that is not known here"))
            continue
        entity = quota_entity(named)
        for each in entry.values:
            key, value = str(each.key), float(each.value)
            try:
                changes.append(KeyChange(entity, key, value_of(entity, key, value)))
            except ValueError as error:  # a key of a newer Kafka, or a value of before 4.0
                sentence = f"{entity}: {key} = {value:.12g}: {error}"
                left_out.append(LeftOut(sentence, (entity, key)))
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
    document, problem = stored_document(config)
    stored = document.quotas
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
        rows = LastRows()
        async for decoded in topic.all_rows():
            rows.add(decoded.rows)
        return ClientQuotas().with_changes(rows.changes())
    finally:
        await topic.close()


def planned(
    config: GatewayConfig,
    before: ClientQuotas,
    found: ClientQuotas,
    *,
    left_out: Sequence[LeftOut] = (),
    replaces: bool,
) -> Import:
    """Say what would change.

    Args:
        config: the gateway's.
        before: what it has.
        found: what it is to have.
        left_out: what was found, too, and cannot be taken over.
        replaces: what was not found goes; what was left out was found.
    """
    left_out = list(left_out)
    if config.quotas.source is QuotaSourceKind.TOML:
        found = _writable(found, left_out)
    stays = {each.of for each in left_out}
    changes = [
        change
        for change in before.changes_to(found)
        if change.value is not None or (replaces and change[:2] not in stays)
    ]
    return Import(before=before, changes=changes, left_out=left_out)


def _writable(quotas: ClientQuotas, left_out: list[LeftOut]) -> ClientQuotas:
    """Those that a file can have which people write."""
    kept = []
    for entity, values in quotas.entries().items():
        for key, value in values.items():
            try:
                dump_quotas(ClientQuotas({entity: {key: value}}))
            except UsageError as error:
                left_out.append(LeftOut(str(error), (entity, key)))
            else:
                kept.append(KeyChange(entity, key, value))
    return ClientQuotas().with_changes(kept)


# ------------------------------------------------------------------ carrying it out


def carry_out(
    config: GatewayConfig, plan: Import, security: Security, *, login: Path | None = None
) -> Iterator[str]:
    """Put the changes where the gateway has its quotas; yields what to say, how to undo it first.

    What somebody else has altered since the plan was made stays, unless the plan alters it, too.

    Args:
        config: the gateway's.
        plan: what changes.
        security: how to log in to a gateway that runs.
        login: the file that says so.

    Raises:
        KvotaError: it could not be done; says what is as it was.
    """
    file = config.quotas.file
    if config.quotas.source is QuotaSourceKind.TOML:
        before = load_client_quotas(file) if file.exists() else ClientQuotas()
        yield _undo_toml(file)
        write_quotas(file, before.with_changes(plan.changes))
        yield f"wrote {file}; in force with: {called()} gateway reload -c {config.path}"
    elif config.quotas.source is QuotaSourceKind.TOPIC:
        yield _undo(config, plan.before, login)
        after = plan.before.with_changes(plan.changes)
        asyncio.run(_append(config, plan.changes, after))
        yield f"appended to topic {config.quotas.topic}"
    else:
        yield from _into_the_document(config, plan, security, login)


def _into_the_document(
    config: GatewayConfig, plan: Import, security: Security, login: Path | None
) -> Iterator[str]:
    file = config.quotas.file
    try:
        lock = lock_quota_file(file)
    except StoreInUseError:
        security = _at_the_gateway(security)
        yield _undo(config, plan.before, login)
        asyncio.run(_through_the_gateway(config, plan.changes, security))
        yield "the gateway that runs has them in force"
        return
    try:
        document, problem = load_quota_file(file)
        if problem is not None:
            raise UsageError(problem)
        yield _undo(config, document.quotas, login)
        try:
            write_changes(DocumentFile(file), document, plan.changes)
        except OSError as error:
            raise _unwritten(file, error) from error
        yield f"wrote {file}"
    finally:
        if lock is not None:
            lock.close()


def _at_the_gateway(security: Security) -> Security:
    """The same login where there is no TLS.

    Raises:
        UsageError: its password would cross the wire readably.
    """
    if security.tls is not None and security.mechanism == "PLAIN":
        msg = (
            "the gateway that runs is altered through its own listener, which has no TLS, and a login by PLAIN would "
            "send the password there readably. Log in by SCRAM (sasl.mechanism), or stop the gateway first. Nothing was changed"
        )
        raise UsageError(msg)
    return replace(security, tls=None)


def _undo(config: GatewayConfig, before: ClientQuotas, login: Path | None) -> str:
    kept = _kept(config.quotas.file, QuotaDocument(before).content())
    options = ["-c", config.path, "--from", kept, "--replace"]
    if login is not None:
        options += ["--command-config", login]
    return f"to undo: {called()} gateway import-quotas {shlex.join(map(str, options))}"


def _undo_toml(file: Path) -> str:
    if not file.exists():
        return f"to undo: {shlex.join(['rm', str(file)])}"
    return f"to undo: {shlex.join(['mv', str(_kept(file, file.read_bytes())), str(file)])}"


def _kept(file: Path, content: bytes) -> Path:
    """Write it beside the file, under a name that nothing has yet: others may be the only copy."""
    copy = file.with_name(f"{file.name}.before-import")
    number = 1
    try:
        while not _is_made(copy):
            number += 1
            copy = file.with_name(f"{file.name}.before-import-{number}")
    except OSError as error:
        raise _unwritten(copy, error) from error
    try:
        write_whole(copy, content)
    except OSError as error:
        with suppress(OSError):
            copy.unlink()
        raise _unwritten(copy, error) from error
    return copy


def _is_made(path: Path) -> bool:
    """False: there is a file of this name already."""
    try:
        path.open("xb").close()
    except FileExistsError:
        return False
    return True


def _unwritten(path: Path, error: OSError) -> UnreachableError:
    msg = f"{path} could not be written: {error.strerror or error}. Nothing was changed"
    return UnreachableError(msg)


async def _append(config: GatewayConfig, changes: Sequence[KeyChange], after: ClientQuotas) -> None:
    """What is new gets all of them: a gateway takes what it has for what there is."""
    topic = QuotaTopic(config.quotas.topic, cluster_maker(config))
    try:
        rows = encode_rows(ClientQuotas().changes_to(after))
        document, _ = load_snapshot(config.quotas.file)
        rows += encode_settings(document.settings)
        await topic.find_or_make(batch_bytes=size_bytes(rows))
        if not await topic.is_new():
            rows = encode_rows(changes)
        batch = encode_batch(rows, now_ms=SystemClock().now_us() // 1000)
        await topic.append(batch, len(rows))
    finally:
        await topic.close()


async def _through_the_gateway(
    config: GatewayConfig, changes: Sequence[KeyChange], security: Security
) -> None:
    """Alter the quotas of a gateway that runs, as Kafka's tools do.

    Raises:
        BrokerError: it refuses; what was altered before stays.
    """
    address = from_here(config.gateway.host), config.gateway.bootstrap_port
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
    """Requests of some entities each."""
    of_entity: dict[Any, list[Mapping[str, object]]] = {}
    for entity, key, value in changes:
        removed = value is None
        operation = {"key": key, "value": 0.0 if removed else value, "remove": removed}
        of_entity.setdefault(entity, []).append(operation)
    entries: list[Mapping[str, object]] = []
    for entity, operations in of_entity.items():
        parts = [{"entity_type": part.type, "entity_name": part.name} for part in parts_of(entity)]
        entries.append({"entity": parts, "ops": operations})
        if len(entries) == _ENTITIES_PER_REQUEST:
            yield entries
            entries = []
    if entries:
        yield entries
