"""What is wrong with where volumes are looked at: a source of one's own, or disks of this machine, is asked once."""

import asyncio
from pathlib import Path

from kvota.app.config import GatewayConfig
from kvota.app.local_disks import LocalDisks
from kvota.app.own_source import OwnSource, open_own_source
from kvota.volumes import Observation
from kvota.volumes.settings import LOG_DIRS

# It is asked for this long here, whatever the interval.
_ANSWER_S = 10.0


def check_source(config: GatewayConfig) -> list[str]:
    """Load the source that gateway.toml names, and ask it once; returns why that has failed, if it has.

    It is no fault: what it asks may be away now, or on another machine, and then the fallback holds.

    Raises:
        ConfigurationError: it cannot be loaded or configured.
    """
    own = open_own_source(config)
    if own is not None:
        return asyncio.run(_asked(own))
    volumes = config.kafka.volumes
    if volumes.source == "local":
        return asyncio.run(_looked_at(volumes.log_dirs))
    return []


async def _asked(own: OwnSource) -> list[str]:
    try:
        observation = await own.observe(_ANSWER_S)
    finally:
        await own.close()
    return _failed(observation)


async def _looked_at(log_dirs: tuple[str, ...]) -> list[str]:
    disks = LocalDisks(log_dirs)
    observation = await disks.observe(_ANSWER_S)
    disks.close()
    if not observation.dropped:
        return _failed(observation)
    # None of those that are there has hung just now.
    missing = [log_dir for log_dir in log_dirs if not await asyncio.to_thread(_is_there, log_dir)]
    return [f"kafka.{LOG_DIRS}: {log_dir} is not there: it is not looked at" for log_dir in missing]


def _is_there(log_dir: str) -> bool:
    return Path(log_dir).exists()


def _failed(observation: Observation) -> list[str]:
    if observation.succeeded:
        return []
    return [f"volumes: asked once, and {observation.status}: {observation.reason}"]
