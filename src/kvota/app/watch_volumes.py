"""Looks at the volumes while the gateway runs, where the settings name a limit."""

import asyncio
import logging

from kvota.app.config import GatewayConfig
from kvota.app.missing_extra import needs_extra
from kvota.app.own_source import OwnSource
from kvota.app.system_clock import SystemClock, elapsed_ms
from kvota.gateway.gateway import Gateway
from kvota.gateway.volume_watch import VolumeWatch
from kvota.model.clock import Clock
from kvota.model.errors import KvotaError, UsageError
from kvota.record.volume_record import VolumeRecord
from kvota.record.volume_rows import volume_rows
from kvota.volumes import Observation

log = logging.getLogger("kvota.gateway")


async def watch_volumes(
    config: GatewayConfig,
    gateway: Gateway,
    run_id: str,
    own: OwnSource | None,
    started: asyncio.Event,
) -> None:
    """Look at the volumes once it listens, until cancelled; each look is recorded where decisions are.

    ``own``: the source of one's own that the settings name, if they do.

    Raises:
        UsageError: a broker is too old to tell how full its volumes are, or kio is not installed.
    """
    settings = config.kafka.volumes
    if settings.source == "none":
        return
    try:
        from kvota.app.volume_observer import VolumeObserver, throttle_of
    except ModuleNotFoundError as error:
        msg = f"volumes: {needs_extra(error, 'client')}"
        raise UsageError(msg) from error
    await started.wait()
    clock = SystemClock()
    source = VolumeObserver(config, own)
    throttle = throttle_of(config, now_ms=elapsed_ms())
    record = _record(config, run_id, clock)

    def record_look(observation: Observation) -> None:
        if record is not None:
            rows = volume_rows(
                observation,
                throttle,
                observer=config.name,
                source=settings.own_class or settings.source,
                ts_us=clock.now_us(),
            )
            record.append(rows)

    try:
        if record is not None:
            record.start()
        try:
            await source.check()
        except UsageError:
            raise
        except KvotaError as error:  # nobody answers, or the login is refused: that may end
            log.warning("volumes: %s; whether its brokers are new enough is not known yet", error)
        gateway.volume_throttle = throttle
        watch = VolumeWatch(
            source.observe,
            throttle,
            gateway.shared,
            look_again=gateway.look_again_at_paused,
            now_ms=elapsed_ms,
            interval_ms=settings.check_interval_ms,
            on_look=record_look,
        )
        await watch.run()
    finally:
        await source.close()
        if record is not None:
            await asyncio.to_thread(record.close)


def _record(config: GatewayConfig, run_id: str, clock: Clock) -> VolumeRecord | None:
    if config.record.folder is None:
        return None
    return VolumeRecord(
        config.record.folder,
        gateway=config.name,
        run_id=run_id,
        limits=config.record.limits,
        clock=clock,
    )
