"""Very many names: what a gateway's memory and its metrics become when a million clients send one request each.

    ./run bench many_names [--names 1000000]

On a real broker, recording on, with a quota for each client id. One connection sends a small Produce for each name; the page of
metrics is asked for once a second meanwhile. Looked at are the gateway's memory, the size of the page, and whether its sums are
exactly what was sent.
"""

import argparse
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from frames import produce_frame
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

TOPIC = "bench"
NAME = "name-00000000"
AT_ONCE = 100
GROWTH_BYTES_MAX = 150 * 10**6
PAGE_BYTES_MAX = 10**6
QUOTAS = '[[quota]]\nclient_id_default = true\nproducer_byte_rate = "1GB/s"\n'


def frames_of(names: int) -> Iterator[bytes]:
    """One Produce for each name, some at a time."""
    before, after = produce_frame(TOPIC, 100, client_id=NAME).split(NAME.encode())
    for begin in range(0, names, AT_ONCE):
        some = range(begin, min(begin + AT_ONCE, names))
        yield b"".join(before + b"name-%08d" % number + after for number in some)


def send(port: int, names: int) -> int:
    """Returns the size of one request as it is charged."""
    size = len(produce_frame(TOPIC, 100, client_id=NAME))
    with socket.create_connection(("127.0.0.1", port)) as client:
        answers = client.makefile("rb")
        for frames in frames_of(names):
            client.sendall(frames)
            for _ in range(len(frames) // size):
                answers.read(int.from_bytes(answers.read(4), "big"))
    return size - 4


class Watching:
    """Asks for the page once a second."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.page = b""
        self.page_bytes_max = 0
        self._ended = threading.Event()

    def look(self) -> None:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            self.page = answer.read()
        self.page_bytes_max = max(self.page_bytes_max, len(self.page))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(60)

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            self.look()

    def sum_of(self, name: str) -> float:
        families = text_string_to_metric_families(self.page.decode())
        return sum(one.value for family in families for one in family.samples if one.name == name)


def memory_bytes(gateway: GatewayProcess) -> int:
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def main() -> int:
    options = argparse.ArgumentParser(description="very many names")
    options.add_argument("--names", type=int, default=1_000_000)
    names = options.parse_args().names
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        kafka.create_topic(TOPIC)
        config = gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-1",
            enforce={"PRODUCE": True},
            record="record",
            http_port=0,
        )
        gateway = stack.enter_context(
            GatewayProcess(folder / "gateway", config=config, quotas=QUOTAS)
        )
        watching = Watching(gateway.http_url + "/metrics")
        watching.look()
        before, begin = memory_bytes(gateway), time.monotonic()
        with watching.going_on():
            size = send(gateway.first_port, names)
        took_s = time.monotonic() - begin
        watching.look()
        after = memory_bytes(gateway)
    counted = {
        "decisions": (watching.sum_of("kvota_quota_decisions_total"), names),
        "bytes": (watching.sum_of("kvota_quota_charged_total"), names * size),
    }
    lines = watching.page.count(b"\n")
    print(
        f"{names} names in {took_s:.0f} s; memory {before / 1e6:.0f} to {after / 1e6:.0f} MB; "
        f"page {lines} lines, {watching.page_bytes_max / 1e3:.0f} KB at most"
    )
    missed = []
    for what, (seen, sent) in counted.items():
        print(f"{what} in the metrics: {seen:.0f}, sent {sent}")
        if seen != sent:
            missed.append(f"the metrics have lost {what}")
    if after - before > GROWTH_BYTES_MAX:
        missed.append(f"memory has grown by more than {GROWTH_BYTES_MAX / 1e6:.0f} MB")
    if watching.page_bytes_max > PAGE_BYTES_MAX:
        missed.append(f"the page has become larger than {PAGE_BYTES_MAX / 1e3:.0f} KB")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
