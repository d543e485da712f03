"""How late the event loop's timers are: what one step takes too long, all connections wait for."""

import asyncio

from kvota.metrics.gateway_counts import GatewayCounts

TICK_S = 0.25


async def watch_lag(counts: GatewayCounts) -> None:
    """Sleep again and again, and note how much longer it took; until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        counts.ticked_s = loop.time()
        await asyncio.sleep(TICK_S)
        counts.loop_lag.add(loop.time() - counts.ticked_s - TICK_S)
