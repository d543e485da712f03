"""Load for the relay benchmark: prebuilt frames over plain sockets, one process, no Kafka client.

    python bench/load.py PORT CONNECTIONS SECONDS [RATE] [FIRST] < frames   one JSON line on standard output

Frames are Kafka requests with their sizes, back to back. The first FIRST of them (a login) each connection sends
once, before time is taken. Of the others connection i of n sends frames i, i + n, … (of fewer than n: frame i mod
their number) again and again, the next one when the answer is whole.
"""

import json
import select
import socket
import struct
import sys
import time
from collections import deque
from itertools import cycle


class Client:
    def __init__(self, port: int, frames: list[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = cycle([memoryview(frame) for frame in frames])
        self.sent_bytes = 0
        self.left = 0  # bytes of the answer still to come
        self.head = b""
        self.sent_at = 0.0
        self.received_bytes = 0

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        frame = next(self.frames)
        self.sent_bytes += len(frame)
        self.socket.sendall(frame)

    def receive(self, buffer: bytearray) -> bool:
        """Take what is there; True when the answer is whole."""
        if self.left == 0:
            self.head += self.socket.recv(4 - len(self.head))
            if len(self.head) < 4:
                if not self.head:
                    raise ConnectionError("closed by the peer")
                return False
            self.left = struct.unpack(">i", self.head)[0]
            self.head = b""
        got = self.socket.recv_into(buffer, min(self.left, len(buffer)))
        if got == 0:
            raise ConnectionError("closed by the peer")
        self.left -= got
        self.received_bytes += got
        return self.left == 0


def log_in(client: Client, frames: list[bytes]) -> None:
    """Send each frame and wait for its answer."""
    for frame in frames:
        client.socket.sendall(frame)
        buffer = bytearray(1 << 16)
        while not client.receive(buffer):
            pass
    client.received_bytes = 0


def read_frames() -> list[bytes]:
    data = sys.stdin.buffer.read()
    frames, pos = [], 0
    while pos < len(data):
        (size,) = struct.unpack_from(">i", data, pos)
        frames.append(data[pos : pos + 4 + size])
        pos += 4 + size
    return frames


def main() -> None:
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    rate = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    first = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    frames = read_frames()
    before, frames = frames[:first], frames[first:]
    clients = [
        Client(port, frames[i::connections] or [frames[i % len(frames)]])
        for i in range(connections)
    ]
    for client in clients:
        log_in(client, before)
    by_fd = {client.socket.fileno(): client for client in clients}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    buffer = bytearray(1 << 20)
    latencies: list[float] = []
    # The one that has rested longest goes on: of one that never sends a gateway hangs up after 30 s.
    idle = deque(clients)
    start = time.perf_counter()
    end, due = start + seconds, start
    sent = 0
    while True:
        now = time.perf_counter()
        if now >= end and len(idle) == len(clients):
            break
        while idle and now < end and (not rate or due <= now):
            idle.popleft().send()
            sent += 1
            due += 1 / rate if rate else 0
        wait = max(0.0, due - time.perf_counter()) if rate and idle and now < end else 1.0
        for fd, _ in poll.poll(wait):
            client = by_fd[fd]
            if client.receive(buffer):
                latencies.append(time.perf_counter() - client.sent_at)
                idle.append(client)
    latencies.sort()
    elapsed = time.perf_counter() - start
    count = len(latencies)
    print(
        json.dumps(
            {
                "requests": count,
                "elapsed_s": elapsed,
                "requests_per_s": count / elapsed,
                "sent_bytes": sum(c.sent_bytes for c in clients),
                "received_bytes": sum(c.received_bytes for c in clients),
                "latency_p50_ms": latencies[count // 2] * 1000,
                "latency_p99_ms": latencies[int(count * 0.99)] * 1000,
                "latency_p999_ms": latencies[int(count * 0.999)] * 1000,
            }
        )
    )


if __name__ == "__main__":
    main()
