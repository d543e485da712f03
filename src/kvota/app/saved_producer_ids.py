"""Which producer ids are known outlives a restart: in a file that is written when the gateway ends in order."""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from math import ceil

from kvota.app.config import GatewayConfig
from kvota.engine.producer_ids import ProducerIds
from kvota.engine.saved_producer_ids import SavedProducerIds, to_bytes
from kvota.files.whole_file import write_whole
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import CorruptDataError
from kvota.session.producer_id_quota import ProducerIdQuota

log = logging.getLogger("kvota.gateway")

# Stands in the file while the gateway runs, so that the next one knows when it was killed.
_RUNNING = b"a gateway runs that will write here which producer ids are known, or it was killed\n"


def open_producer_ids(
    config: GatewayConfig, quotas: ClientQuotas, *, now_ms: int
) -> ProducerIdQuota:
    """What is known of producer ids, as it was saved.

    Where it is lost, unknown ids are remembered for one window and cost nothing, and the log says so.
    """
    path, settings = config.quotas.saved_ids, config.gateway.producer_ids
    layering = settings.layering
    ids = ProducerIds(layering, hash_key=secrets.randbits(64), rate_samples=settings.rate_samples)
    quota = ProducerIdQuota(ids)
    quota.refuses_with = config.quotas.refuses_ids_with
    try:
        saved: bytes | None = path.read_bytes()
    except FileNotFoundError:
        saved = None
    except OSError as error:
        _learn(quota, f"{path} cannot be read: {error.strerror or error}", now_ms)
        saved = None
    since_ms: int | None = now_ms  # where nothing was saved nobody was counted before
    if saved is not None:
        try:
            found = SavedProducerIds(saved, name=str(path))
            quota.ids = found.producer_ids(quota.ids)
            quota.restore(found.rates)
            # A clock that went back since makes it no longer.
            until_ms = min(quota.ids.learns_until_ms, now_ms + layering.window_ms)
            quota.ids.learns_until_ms = until_ms
            if until_ms > now_ms:
                log.warning(
                    "producer ids: which are known was lost before the last restart, so for %d s more new ones are "
                    "let in uncounted",
                    ceil((until_ms - now_ms) / 1000),
                )
        except CorruptDataError as error:
            was_killed = saved == _RUNNING
            why = f"{path}: the gateway before this one was killed" if was_killed else str(error)
            _learn(quota, why, now_ms)
            since_ms = None  # all are learned
    quota.replace(quotas, since_ms)
    return quota


def mark_running(
    config: GatewayConfig, quota: ProducerIdQuota, beside: Callable[[Callable[[], None]], object]
) -> None:
    """From now on what is saved is out of date: as soon as anybody has a quota, the file says so.

    Args:
        config: names the file.
        quota: has the rates.
        beside: has a call done where it keeps no traffic waiting, for a first rate that comes later.
    """
    mark = partial(_write, config, _RUNNING)
    if quota.has_rates:
        mark()
    quota.on_first_rate = lambda: beside(mark)


def save_producer_ids(config: GatewayConfig, quota: ProducerIdQuota) -> None:
    """Keep what is known for the next gateway, and who had a quota; where nothing is, there is nothing to keep."""
    if quota.has_rates or quota.ids.users or quota.ids.learns_until_ms:
        _write(config, to_bytes(quota.ids, quota.saved_rates()))
    elif config.quotas.saved_ids.exists():
        try:
            config.quotas.saved_ids.unlink()
        except OSError as error:
            log.warning("%s: %s", config.quotas.saved_ids, error.strerror or error)


def _learn(quota: ProducerIdQuota, why: str, now_ms: int) -> None:
    window_ms = quota.ids.memory.layering.window_ms
    quota.ids.learns_until_ms = now_ms + window_ms
    log.warning(
        "producer ids: %s; which ids are known was lost, so for %d s new ones are let in uncounted",
        why,
        ceil(window_ms / 1000),
    )


def _write(config: GatewayConfig, content: bytes) -> None:
    path = config.quotas.saved_ids
    try:
        write_whole(path, content, mode=0o600)
    except OSError as error:
        log.warning(
            "producer ids: %s cannot be written (%s): after a restart all ids are new",
            path,
            error.strerror or error,
        )
