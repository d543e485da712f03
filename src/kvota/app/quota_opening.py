"""The store of configured quotas that gateway.toml names, opened; or only looked at."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kvota.app.config import GatewayConfig
from kvota.app.quota_settings import QuotaSourceKind
from kvota.app.running_gateway import reload_command
from kvota.app.system_clock import SystemClock
from kvota.files.command_name import called_anywhere
from kvota.model.client_quotas import ClientQuotas
from kvota.session.outside import Refusal
from kvota.store.file_store import FileStore, load_quota_file
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_store import QuotaStore, TomlStore
from kvota.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from kvota.client.cluster import Cluster


def open_store(config: GatewayConfig, written: ClientQuotas | None) -> QuotaStore:
    """Open it for a gateway that runs.

    Args:
        config: the settings.
        written: the quotas of a file that people write, where that is the source.

    Raises:
        UsageError: another gateway uses it, or the gateway's own login cannot be used.
    """
    if config.quotas.source is QuotaSourceKind.FILE:
        return FileStore(config.quotas.file)
    if config.quotas.source is QuotaSourceKind.TOPIC:
        return _topic_store(config)
    assert written is not None, "what people write has been read"
    return TomlStore(written, _refusal_of_toml(config))


def stored_document(config: GatewayConfig) -> tuple[QuotaDocument, str | None]:
    """Look at the quotas and settings in a store of the gateway's own; also return what is wrong with it.

    Of a topic that is what it has had last.
    """
    return load_quota_file(config.quotas.file)


def cluster_maker(config: GatewayConfig) -> "Callable[[], Cluster]":
    """Return what makes a client of the cluster, with the gateway's own login.

    Raises:
        UsageError: a property of that login cannot be used.
    """
    from kvota.app.own_cluster import own_cluster  # kio takes a while
    from kvota.store.quota_topic import CLIENT_ID

    made = partial(own_cluster, config, client_id=CLIENT_ID)
    made()  # nothing is connected yet; what is wrong is said before the gateway listens
    return made


def _topic_store(config: GatewayConfig) -> QuotaStore:
    from kvota.store.quota_topic import QuotaTopic
    from kvota.store.topic_store import TopicStore

    topic = QuotaTopic(config.quotas.topic, cluster_maker(config))
    return TopicStore(topic, config.quotas.file, clock=SystemClock())


def refusal_of_settings(config: GatewayConfig, store: QuotaStore) -> Refusal | None:
    """Why nobody may alter the gateway's settings over the network; None: who has the right may."""
    if config.quotas.source is not QuotaSourceKind.TOML:
        return store.refusal
    words = (
        f"The settings of this gateway are written in {config.path}, below [kafka]: change that file, then "
        f'{reload_command(config)}. To alter them from here, write quotas.source = "file" there, '
        f"and take the quotas over with: {called_anywhere()} gateway import-quotas --from {config.quotas.file}."
    )
    return Refusal(ErrorCode.POLICY_VIOLATION, words)


def _refusal_of_toml(config: GatewayConfig) -> Refusal:
    words = (
        f"The quotas of this gateway are written in {config.quotas.file}: change that file, then "
        f'{reload_command(config)}. To alter them from here, write quotas.source = "file" in {config.path}, '
        f"and take them over with: {called_anywhere()} gateway import-quotas --from {config.quotas.file}."
    )
    return Refusal(ErrorCode.POLICY_VIOLATION, words)
