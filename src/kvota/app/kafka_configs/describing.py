"""``--describe``."""

from collections.abc import Iterable

from kvota.admin import (
    AdminClient,
    BrokerError,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from kvota.app.kafka_configs.command_line import BROKERS, CLIENTS, USERS, CommandLine
from kvota.app.kafka_configs.described_quotas import described_quotas
from kvota.app.kafka_configs.output import Output
from kvota.wire.error_code import ErrorCode


async def describe(admin: AdminClient, line: CommandLine, output: Output) -> None:
    """Print what the line asks for.

    Raises:
        KvotaError: brokers refuse or do not answer.
    """
    if not line.is_of_quotas:
        await _describe_settings(admin, line, output)
        return
    for entity, values in (await described_quotas(admin, line)).items():
        output.quotas(entity, values)
    if USERS in line.types and CLIENTS not in line.types and "" not in line.names:
        await _describe_credentials(admin, line, output)


async def _describe_credentials(admin: AdminClient, line: CommandLine, output: Output) -> None:
    results = await admin.describe_user_scram_credentials(line.names or None)
    for error in results.errors.values():
        if not (isinstance(error, BrokerError) and error.code == ErrorCode.RESOURCE_NOT_FOUND):
            raise error
    for user, infos in results.values.items():
        output.credentials(user, infos)


async def _describe_settings(admin: AdminClient, line: CommandLine, output: Output) -> None:
    kind = line.types[0]
    known = await _all_names(admin, kind)
    if line.names and not line.describes_all and line.names[0] not in known:
        output.absent(kind, line.names[0])
        return
    for name in line.names or known:
        output.heading(kind, name, describes_all=line.describes_all)
        entries = await settings_of(
            admin, kind, name, describes_all=line.describes_all, include_synonyms=True
        )
        output.settings(kind, name, entries)


async def _all_names(admin: AdminClient, kind: str) -> list[str]:
    """The brokers, and then their default; or the topics."""
    if kind == BROKERS:
        nodes = (await admin.describe_cluster()).nodes
        return [*(str(each.node_id) for each in nodes), ""]
    return sorted(await admin.list_topics(list_internal=True))


def resource_of(kind: str, name: str) -> ConfigResource:
    """As the protocol names it."""
    of_brokers = kind == BROKERS
    return ConfigResource(
        ConfigResourceType.BROKER if of_brokers else ConfigResourceType.TOPIC,
        str(int(name)) if of_brokers and name else name,
    )


async def settings_of(
    admin: AdminClient,
    kind: str,
    name: str,
    *,
    describes_all: bool = False,
    include_synonyms: bool = False,
) -> Iterable[ConfigEntry]:
    """The settings of one broker or topic, or of all brokers; those that are dynamic and its own, or all."""
    resource = resource_of(kind, name)
    results = await admin.describe_configs([resource], include_synonyms=include_synonyms)
    found = results.result(resource)
    of_brokers = (
        ConfigSource.DYNAMIC_BROKER_CONFIG if name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    wanted = of_brokers if kind == BROKERS else ConfigSource.DYNAMIC_TOPIC_CONFIG
    return [found[key] for key in sorted(found) if describes_all or found[key].source is wanted]
