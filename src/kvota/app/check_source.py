"""What is wrong with a volume source or throttle-factor source of one's own: it is loaded and asked once."""

import asyncio

from kvota.app.config import GatewayConfig
from kvota.app.own_source import OwnSource, open_own_source

# It is asked for this long here, whatever the interval.
_ANSWER_S = 10.0


def check_own_source(config: GatewayConfig) -> list[str]:
    """Load the source that gateway.toml names, and ask it once; returns why that has failed, if it has.

    It is no fault: what it asks may be away now, and then the fallback holds.

    Raises:
        ConfigurationError: it cannot be loaded or configured.
    """
    own = open_own_source(config)
    return [] if own is None else asyncio.run(_asked(own))


async def _asked(own: OwnSource) -> list[str]:
    try:
        observation = await own.observe(_ANSWER_S)
    finally:
        await own.close()
    if observation.succeeded:
        return []
    return [f"volumes: asked once, and {observation.status}: {observation.reason}"]
