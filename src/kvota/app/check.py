"""What ``kvota gateway --check`` says beyond faults: settings that are allowed and probably not meant."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from kvota.app.config import GatewayConfig
from kvota.gateway.error_words import words_of
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS


def check_folder(folder: Path) -> None:
    """Check that the record could be written there, without making anything.

    Raises:
        UsageError: it could not.
    """
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        problem = f"{there} is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = f"{there} may not be written to"
    else:
        return
    msg = f"record.folder: {folder} cannot be used: {problem}. Name a folder that the gateway may write to"
    raise UsageError(msg)


def doubts(config: GatewayConfig, quotas: ConfiguredQuotas) -> list[str]:
    """Return a sentence for each setting that does nothing, or not what its words seem to say."""
    return [*_enforced_without_quota(config, quotas), *_names_of_another_syntax(config, quotas)]


def _enforced_without_quota(config: GatewayConfig, quotas: ConfiguredQuotas) -> Iterator[str]:
    limited = {quota_type for limits in quotas.entries().values() for quota_type in limits}
    for quota_type in CONFIGURABLE_TYPES:
        if quota_type in config.gateway.connection.enforced and quota_type not in limited:
            yield (
                f"quotas.{quota_type}: enforce = true, and {config.quotas_file} has no "
                f"{FACTS[quota_type].config_key}: nobody is held to anything"
            )


def _names_of_another_syntax(config: GatewayConfig, quotas: ConfiguredQuotas) -> Iterator[str]:
    for entity in quotas.entries():
        for key, name in (("user", entity.user), ("client_id", entity.client_id)):
            if not isinstance(name, str):
                continue
            if name.startswith("User:"):
                plain = name.removeprefix("User:")
                yield (
                    f'{config.quotas_file}: {key} = "{name}" is the name of nobody who logs in as '
                    f'{plain}; write {key} = "{plain}"'
                )
            elif name in {"<default>", "*"}:
                yield (
                    f'{config.quotas_file}: {key} = "{name}" is a name like any other; for all that '
                    f"have no quota of their own write {key}_default = true"
                )


def unreachable_brokers(config: GatewayConfig) -> list[str]:
    """Connect to each bootstrap server once; return a sentence for each that does not answer."""
    return asyncio.run(_unreachable(config))


async def _unreachable(config: GatewayConfig) -> list[str]:
    async def connect(host: str, port: int) -> str:
        connect_ms = config.gateway.limits.connect_ms
        try:
            async with asyncio.timeout(connect_ms / 1000):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, ValueError) as error:
            timed_out = isinstance(error, TimeoutError)
            reason = f"no answer in {connect_ms} ms" if timed_out else words_of(error)
            return f"upstream.bootstrap_servers: {host}:{port} cannot be reached: {reason}"
        writer.close()
        return ""

    servers = config.gateway.upstream
    said = await asyncio.gather(*(connect(host, port) for host, port in servers))
    return [sentence for sentence in said if sentence]
