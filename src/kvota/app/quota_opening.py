"""The store of configured quotas that gateway.toml names, opened; or only looked at."""

from kvota.app.config import GatewayConfig
from kvota.app.quota_settings import QuotaSourceKind
from kvota.files.command_name import called
from kvota.model.client_quotas import ClientQuotas
from kvota.session.outside import Refusal
from kvota.store.file_store import FileStore, load_quota_file
from kvota.store.quota_store import QuotaStore, TomlStore
from kvota.wire.error_code import ErrorCode


def open_store(config: GatewayConfig, written: ClientQuotas | None) -> QuotaStore:
    """Open it for a gateway that runs.

    Args:
        config: the settings.
        written: the quotas of a file that people write, where that is the source.

    Raises:
        UsageError: another gateway uses it.
    """
    if config.quotas.source is QuotaSourceKind.FILE:
        return FileStore(config.quotas.file)
    assert written is not None, "what people write has been read"
    return TomlStore(written, _refusal_of_toml(config))


def stored_quotas(config: GatewayConfig) -> tuple[ClientQuotas, str | None]:
    """Look at the quotas of a store of the gateway's own; also return what is wrong with it."""
    document, problem = load_quota_file(config.quotas.file)
    return document.quotas, problem


def _refusal_of_toml(config: GatewayConfig) -> Refusal:
    words = (
        f"The quotas of this gateway are written in {config.quotas.file}: change that file, then "
        f'{called()} gateway reload. To alter them from here, write quotas.source = "file" in {config.path}.'
    )
    return Refusal(ErrorCode.POLICY_VIOLATION, words)
