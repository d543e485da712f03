"""Looks whether somebody listens at an address."""

import asyncio

from kvota.model.address import Address


async def knock(address: Address, *, timeout_s: float) -> Address | None:
    """Connect once and let go; returns where the socket came out, None where that is not told.

    Raises:
        OSError: nobody is there (``TimeoutError``: not in time).
        ValueError: a name that cannot be encoded.
    """
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(*address)
    peer = writer.get_extra_info("peername")
    writer.close()
    return None if peer is None else (peer[0], peer[1])
