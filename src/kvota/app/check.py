"""What ``kvota gateway --check`` says beyond faults: settings that are allowed and probably not meant."""

import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from kvota.app.config import GatewayConfig
from kvota.app.running_gateway import running_pid
from kvota.callbacks import GroupQuotaCallback, StaticQuotaCallback
from kvota.callbacks.grouped import GROUP_PREFIX, group_of
from kvota.callbacks.loading import is_kvotas_own
from kvota.files.whole_file import DISK_IS_FULL
from kvota.model.broker_settings import CALLBACK_CLASS
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS, QuotaType
from kvota.record.recorder import check_alone
from kvota.tls.client_tls import Tls
from kvota.tls.pem import Pem
from kvota.tls.server_tls import ServerTls, make_context
from kvota.volumes.doubts import doubts as volume_doubts
from kvota.volumes.settings import EXCLUDED, FETCH, PRODUCE, REQUEST

_ENDS_SOON = timedelta(days=30)
_LISTS = frozenset({"client_crlfile", "crlfile"})
_STATIC_LIMITS = {
    PRODUCE: QuotaType.PRODUCE,
    FETCH: QuotaType.FETCH,
    REQUEST: QuotaType.REQUEST,
}


def check_folder(folder: Path) -> None:
    """Check that the record could be written there; nothing is left of the trial, and no folder is made.

    Raises:
        UsageError: it could not.
    """
    there = next(place for place in (folder, *folder.absolute().parents) if _is_there(place))
    if not there.is_dir():
        problem = f"{there} is no folder"
    else:
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            if error.errno in DISK_IS_FULL:  # recording begins when there is room
                return
            problem = f"{there} cannot be written to: {error.strerror}"
        else:
            return
    msg = f"record.folder: {folder} cannot be used: {problem}. Name a folder that the gateway may write to"
    raise UsageError(msg)


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # it is in a folder that may not be looked into
        return False


def others(config: GatewayConfig) -> str:
    """Look for the gateway that runs with this file; check that no other one of this name records as it does.

    Returns:
        A sentence on the gateway that runs with this file, empty if none does.

    Raises:
        UsageError: one does, or who runs with this file cannot be seen.
    """
    running = running_pid(config.pid_file)
    folder = config.record.folder
    if folder is not None and _is_there(folder) and folder.is_dir():
        check_alone(folder, config.name, besides=running)
    return "" if running is None else f"a gateway with {config.path} runs (process {running})"


def doubts(config: GatewayConfig, stored: ClientQuotas, callback: ClientQuotaCallback) -> list[str]:
    """Return a sentence for each setting that does nothing, or not what its words seem to say."""
    quotas = stored.configured()
    return [
        *_enforced_without_quota(config, callback),
        *_names_of_another_syntax(config, quotas),
        *_of_the_static_callback(config, quotas, callback),
        *_groups(config, quotas, callback),
        *_volumes(config),
        *_certificates_that_end(config),
    ]


def _enforced_without_quota(config: GatewayConfig, callback: ClientQuotaCallback) -> Iterator[str]:
    if not is_kvotas_own(callback):
        return  # it may not be asked here: it may hang
    for quota_type in CONFIGURABLE_TYPES:
        if quota_type not in config.gateway.connection.enforced:
            continue
        is_watched = quota_type is QuotaType.PRODUCE and config.kafka.volumes.source != "none"
        if is_watched and _is_without_limit(callback, quota_type):
            yield (
                "quotas.PRODUCE: nobody has a limit that full disks could lower: producers go on at full speed until "
                "a hard limit is reached, and are stopped there"
            )
        elif isinstance(callback, StaticQuotaCallback):
            if _is_without_limit(callback, quota_type):
                yield f"quotas.{quota_type}: enforce = true, and StaticQuotaCallback has no such limit"
        elif not callback.enabled(quota_type):
            yield (
                f"quotas.{quota_type}: enforce = true, and {config.quotas.file} has no "
                f"{FACTS[quota_type].config_key}: nobody is held to anything"
            )


def _is_without_limit(callback: ClientQuotaCallback, quota_type: QuotaType) -> bool:
    if isinstance(callback, StaticQuotaCallback):
        return quota_type not in callback.limits
    return not callback.enabled(quota_type)


def _of_the_static_callback(
    config: GatewayConfig, quotas: ConfiguredQuotas, callback: ClientQuotaCallback
) -> Iterator[str]:
    is_static = isinstance(callback, StaticQuotaCallback)
    if is_static and len(quotas):
        yield f"{config.quotas.file}: StaticQuotaCallback uses none of its quotas"
    if isinstance(callback, StaticQuotaCallback):
        for key, quota_type in _STATIC_LIMITS.items():
            limit = callback.limits.get(quota_type)
            if limit is not None and limit <= FACTS[quota_type].floor:
                yield f"kafka.{key} is a limit of {limit:g} per second, not none at all: nearly nothing gets through"
    if not is_static:
        is_watched = (
            config.kafka.volumes.source != "none"
        )  # then nobody else is excluded from the factor, either
        for key in (PRODUCE, FETCH, REQUEST, *(() if is_watched else (EXCLUDED,))):
            if key in config.kafka.places:
                yield f"kafka.{key} is used by StaticQuotaCallback only, see {CALLBACK_CLASS}"


def _groups(
    config: GatewayConfig, quotas: ConfiguredQuotas, callback: ClientQuotaCallback
) -> Iterator[str]:
    if not is_kvotas_own(callback):
        return  # nobody but its author knows what it takes for a group
    grouped = callback if isinstance(callback, GroupQuotaCallback) else None
    limited = {group for entity in quotas.entries() if (group := group_of(entity)) is not None}
    for group in sorted(limited):
        if grouped is None or not grouped.may_be_group(group):
            yield f'{config.quotas.file}: user = "group:{group}": there is no group of this name'
    if grouped is None:
        return
    for group in grouped.group_names:
        if not any(grouped.has_limit(of_type, group) for of_type in CONFIGURABLE_TYPES):
            yield (
                f"kafka.{GROUP_PREFIX}{group}: the group has no limit; give one to the user "
                f'"group:{group}" in {config.quotas.file}'
            )


def _volumes(config: GatewayConfig) -> Iterator[str]:
    kafka, volumes = config.kafka, config.kafka.volumes
    found = volume_doubts(volumes, kafka.callback_properties, per_broker=kafka.factor_per_broker)
    yield from (f"kafka.{doubt}" for doubt in found)
    if volumes.source != "none" and QuotaType.PRODUCE not in config.gateway.connection.enforced:
        yield "quotas.PRODUCE: full disks slow nobody down while enforce = true is not said"


class _Ending(NamedTuple):
    """Of a file that a table of TLS names."""

    table: str
    setting: str
    file: Pem
    ends: datetime

    @property
    def peer(self) -> str:
        return "broker" if self.table == "upstream.tls" else "client"

    def __str__(self) -> str:
        return f"{self.table}: {self.file}"


def _endings(config: GatewayConfig) -> Iterator[_Ending]:
    for listener in config.gateway.listeners:
        if listener.tls is not None:
            ends = make_context(listener.tls).ends
            yield from _of_table(f"{listener.table}.tls", listener.tls, ends)
    upstream = config.gateway.upstream_tls
    if upstream is not None:
        yield from _of_table("upstream.tls", upstream, upstream.ends)


def _of_table(table: str, tls: ServerTls | Tls, ends: Mapping[str, datetime]) -> Iterator[_Ending]:
    for setting, end in ends.items():
        yield _Ending(table, setting, getattr(tls, setting), end)


def _certificates_that_end(config: GatewayConfig) -> Iterator[str]:
    now = datetime.now(UTC)
    for one in _endings(config):
        left = one.ends - now
        if one.setting in _LISTS:
            if left < timedelta():
                yield _of_list(one)
        elif left < _ENDS_SOON:
            yield _of_certificate(one, left)


def _of_list(one: _Ending) -> str:
    nobody = (
        "no broker is trusted" if one.peer == "broker" else "no client with a certificate is taken"
    )
    return (
        f"{one} is out of date since {one.ends:%Y-%m-%d}: {nobody}. "
        "Write a new list in its place: the gateway goes by it at once"
    )


def _of_certificate(one: _Ending, left: timedelta) -> str:
    has_ended = left < timedelta()
    end = "has ended" if has_ended else f"ends in {left.days} days"
    if one.setting == "certfile":
        nobody = f"; no {one.peer} takes it" if has_ended else ""
        return f"{one} {end}{nobody}. Renew it: the gateway shows a new one by itself"
    return (
        f"{one} has a certificate that {end}: behind its end no {one.peer} is taken whose certificate it has signed. "
        "Put its successor into the file: the gateway goes by it at once"
    )


def when_certificates_end(config: GatewayConfig) -> list[str]:
    """Return a line for each file of certificates, and of revoked ones, that the gateway shows or goes by."""
    return [
        f"{one} is good until {one.ends:%Y-%m-%d %H:%M} UTC"
        if one.setting in _LISTS
        else f"{one} ends on {one.ends:%Y-%m-%d}"
        for one in _endings(config)
    ]


def _names_of_another_syntax(config: GatewayConfig, quotas: ConfiguredQuotas) -> Iterator[str]:
    for entity in quotas.entries():
        for key, name in (("user", entity.user), ("client_id", entity.client_id)):
            if not isinstance(name, str):
                continue
            if name.startswith("User:"):
                plain = name.removeprefix("User:")
                yield (
                    f'{config.quotas.file}: {key} = "{name}" is the name of nobody who logs in as '
                    f'{plain}; write {key} = "{plain}"'
                )
            elif name in {"<default>", "*"}:
                yield (
                    f'{config.quotas.file}: {key} = "{name}" is a name like any other; for all that '
                    f"have no quota of their own write {key}_default = true"
                )
