"""A relay that knows nothing: what uvloop and two sockets cost by themselves.

python bench/bare_relay.py LISTEN_PORT UPSTREAM_HOST UPSTREAM_PORT
"""

import asyncio
import sys

import uvloop


class Side(asyncio.Protocol):
    peer: "Side | None" = None
    transport: asyncio.Transport

    def __init__(self, address: tuple[str, int] | None) -> None:
        self.address = address
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if self.address is not None:
            self.task = asyncio.get_running_loop().create_task(self.dial())

    async def dial(self) -> None:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: Side(None), *self.address)
        peer.peer, self.peer = self, peer
        for data in self.waiting:
            peer.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self.waiting.append(data)
        else:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.transport.close()


async def main(port: int, host: str, upstream_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Side((host, upstream_port)), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
