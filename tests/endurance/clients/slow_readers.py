"""Consumers that ask for much and read it slowly: one Fetch each, read a few bytes at a time, then all the rest.

    python slow_readers.py HOST PORT BROKER_HOST BROKER_PORT TOPIC CLIENT_ID READERS BYTES BYTES_PER_S

The answer that each is to get is asked of the broker itself before. "began" on standard output when the head of each answer
is here; then all read so fast, all together, until standard input ends. Then they read the rest, and it says
"whole COUNT" (answers that were the broker's, byte for byte), "differing COUNT", "cut COUNT" (closed before their end) and
"bytes COUNT" (of one answer).
"""

import contextlib
import selectors
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.endurance.clients.fetch_frames import fetch

# What the kernel may keep for a slow reader: it is none of the gateway's memory, and would hide how slow they are.
RECEIVE_BUFFER_BYTES = 65_536
ROUND_S = 0.1
READ_BYTES = 1 << 20
# size, correlation id, throttle time: what may differ
HEAD_BYTES = 12
GIVE_UP_S = 300.0


class Reader:
    """One connection and how far it has read."""

    def __init__(self, address: tuple[str, int], request: bytes, expected: memoryview) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.socket.connect(address)
        self.socket.sendall(request)
        self.socket.setblocking(False)
        self._expected = expected
        self._head = b""
        self.read_bytes = 0
        self.differs = self.is_closed = False

    @property
    def is_whole(self) -> bool:
        return self.read_bytes == len(self._expected)

    def read(self, most: int) -> None:
        """What is here, up to so much; BlockingIOError: nothing."""
        data = self.socket.recv(min(most, len(self._expected) - self.read_bytes))
        if not data:
            self.is_closed = True
            return
        begin = self.read_bytes
        self.read_bytes += len(data)
        skipped = max(0, HEAD_BYTES - begin)
        self.differs |= data[skipped:] != self._expected[begin + skipped : self.read_bytes]


def whole_answer(address: tuple[str, int], request: bytes) -> memoryview:
    with socket.create_connection(address) as connection:
        connection.sendall(request)
        received = bytearray()
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += connection.recv(READ_BYTES)
    return memoryview(bytes(received))


def main() -> None:
    host, port, broker_host, broker_port, topic, client_id, count, size, rate = sys.argv[1:]
    request = fetch(topic, 0, client_id=client_id, max_bytes=int(size), partition_bytes=int(size))
    expected = whole_answer((broker_host, int(broker_port)), request)
    readers = [Reader((host, int(port)), request, expected) for _ in range(int(count))]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    has_begun = False
    while not ended.is_set():
        for reader in readers:
            with contextlib.suppress(BlockingIOError):
                reader.read(max(1, round(int(rate) * ROUND_S)))
        if not has_begun and all(reader.read_bytes for reader in readers):
            has_begun = True
            sys.stdout.write("began\n")
            sys.stdout.flush()
        time.sleep(ROUND_S)
    read_the_rest(readers)
    sys.stdout.write(
        f"whole {sum(one.is_whole and not one.differs for one in readers)}\n"
        f"differing {sum(one.differs for one in readers)}\n"
        f"cut {sum(one.is_closed for one in readers)}\n"
        f"bytes {len(expected)}\n"
    )


def read_the_rest(readers: list[Reader]) -> None:
    selector = selectors.DefaultSelector()
    for reader in readers:
        selector.register(reader.socket, selectors.EVENT_READ, reader)
    end = time.monotonic() + GIVE_UP_S
    while selector.get_map() and time.monotonic() < end:
        for key, _ in selector.select(1.0):
            reader = key.data
            reader.read(READ_BYTES)
            if reader.is_whole or reader.is_closed:
                selector.unregister(reader.socket)


if __name__ == "__main__":
    main()
