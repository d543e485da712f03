"""Looks whether somebody listens at an address."""

import asyncio

from kvota.model.address import Address
from kvota.tls.client_tls import Tls


async def knock(
    address: Address, *, timeout_s: float, tls: Tls | None = None, head: bytes = b""
) -> Address | None:
    """Connect once, by TLS where that is given, and let go; returns where the socket came out, None where that is not told.

    Args:
        address: where.
        timeout_s: so long all of it may take.
        tls: how it is encrypted.
        head: goes before that, as it is.

    Raises:
        OSError: nobody is there (``TimeoutError``: not in time).
        ValueError: a name that cannot be encoded.
        UsageError: a file that TLS needs cannot be used.
    """
    context = None if tls is None else await asyncio.to_thread(tls.context)
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(*address)
        try:
            writer.write(head)
            if context is not None:
                await writer.start_tls(context, server_hostname=address[0])
        finally:
            peer = writer.get_extra_info("peername")
            writer.close()
    return None if peer is None else (peer[0], peer[1])
