"""What being watched costs the gateway: CPU per request and latency with a scrape each second, and without.

    ./run bench scrape [--rounds 15] [--seconds 4] [--tenants 5000] [--rate 0]

Compared in neighbouring rounds within one run, on a real broker, with so many tenants (client ids, each with a
counter of its own), recording on. A real Prometheus scrapes where one is installed (it is stopped and goes on by
signals), else a thread here that reads all it gets. Three kinds of rounds: the gateway is scraped; a stand-in is,
that serves the same page from memory; nobody is. Against the stand-in it shows what being scraped costs the gateway;
against nobody also what a Prometheus on the same cores takes from whoever else runs there. CPU is that of the gateway's
process, all its threads, from the kernel's scheduler statistics. At the end the counts are compared with the record.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

from frames import produce_frame
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from processes import cpu_ns

HERE = Path(__file__).parent
TOPIC = "bench"
CONNECTIONS = 8
# CPU per request and p99 while the gateway is scraped, as multiples of those while a stand-in is.
X_MAX = 1.03
SCRAPED, STAND_IN, NOBODY = "scraped", "stand-in", "nobody"
# Each round has all three, in another order each time: what drifts meets all of them.
ORDERS = (
    (NOBODY, SCRAPED, STAND_IN),
    (STAND_IN, SCRAPED, NOBODY),
    (SCRAPED, STAND_IN, NOBODY),
    (NOBODY, STAND_IN, SCRAPED),
)
QUOTAS = """
[[quota]]
user_default = true
client_id_default = true
producer_byte_rate = "100GB/s"
"""


class StandIn:
    """Serves one page again and again, in a process of its own."""

    def __init__(self, page: bytes) -> None:
        command = [sys.executable, __file__, "--stand-in"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(page)
        self.process.stdin.close()
        self.target = f"127.0.0.1:{int(self.process.stdout.readline())}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def serve_page() -> None:
    """Serves what is on standard input; prints the port."""
    page = sys.stdin.buffer.read()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked is stopped, or has ended
                self.wfile.write(page)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


class Scraper:
    """Asks once a second while it is let."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scrapes = 0
        self.scrape_ms: list[float] = []
        self._goes_on = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._goes_on.wait()
            begin = time.perf_counter()
            with urllib.request.urlopen(self.url, timeout=30) as answer:
                answer.read()
            self.scrapes += 1
            self.scrape_ms.append((time.perf_counter() - begin) * 1000)
            time.sleep(max(0.0, 1.0 - (time.perf_counter() - begin)))

    @contextmanager
    def scraping(self) -> Iterator[None]:
        self._goes_on.set()
        yield
        self._goes_on.clear()

    def stop(self) -> None:
        self._ends.set()
        self._goes_on.set()


class Prometheus:
    """A real one; SIGSTOP keeps it from scraping."""

    def __init__(self, program: str, folder: Path, target: str, port: int) -> None:
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n"
            f'  - job_name: kvota\n    static_configs: [{{targets: ["{target}"]}}]\n'
        )
        self.port = port
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(3)
        self.process.send_signal(signal.SIGSTOP)

    @contextmanager
    def scraping(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGCONT)
        yield
        self.process.send_signal(signal.SIGSTOP)

    def asked(self, query: str) -> list[dict]:
        self.process.send_signal(signal.SIGCONT)
        url = f"http://127.0.0.1:{self.port}/api/v1/query?query={urllib.request.quote(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.loads(answer.read())["data"]["result"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()


def measured(gateway: GatewayProcess, port: int, frames: bytes, args) -> dict[str, float]:
    before = cpu_ns(gateway.pid)
    done = subprocess.run(
        [
            *(sys.executable, HERE / "load.py", str(port), str(CONNECTIONS)),
            *(str(args.seconds), str(args.rate)),
        ],
        input=frames,
        stdout=subprocess.PIPE,
        check=True,
        timeout=args.seconds * 4 + 60,
    )
    seen = json.loads(done.stdout)
    return {
        "requests": seen["requests"],
        "cpu_us": (cpu_ns(gateway.pid) - before) / seen["requests"] / 1000,
        "p50_ms": seen["latency_p50_ms"],
        "p99_ms": seen["latency_p99_ms"],
        "p999_ms": seen["latency_p999_ms"],
    }


def compared(gateway, port, frames, scrapers, order, args) -> dict[str, dict[str, float]]:
    """One round: all three kinds, in this order."""
    seen = {}
    for kind in order:
        scraping: AbstractContextManager[None] = nullcontext()
        if kind != NOBODY:
            scraping = scrapers[kind == STAND_IN].scraping()
        with scraping:
            seen[kind] = measured(gateway, port, frames, args)
    return seen


def counted(gateway: GatewayProcess) -> dict[str, float]:
    """Decisions and bytes, as the last scrape tells them."""
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    sums = {
        "kvota_decisions_total": 0.0,
        "kvota_charged_total": 0.0,
        "kvota_quota_charged_total": 0.0,
    }
    for family in families:
        for sample in family.samples:
            if sample.name in sums:
                sums[sample.name] += sample.value
    return sums


def recorded(folder: Path) -> dict[str, float]:
    rows = [pq.read_table(path, columns=["value"]) for path in folder.glob("*.parquet")]
    value = sum(sum(table["value"].to_pylist()) for table in rows)
    decisions = sum(table.num_rows for table in rows)
    return {
        "kvota_decisions_total": decisions,
        "kvota_charged_total": value,
        "kvota_quota_charged_total": value,
    }


def main() -> int:
    options = argparse.ArgumentParser(description="what being scraped costs")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--tenants", type=int, default=5_000)
    options.add_argument(
        "--rate", type=float, default=0.0, help="requests per second; 0: all it can"
    )
    options.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.stand_in:
        serve_page()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        kafka.create_topic(TOPIC)
        first = free_port_range(3)
        gateway = stack.enter_context(started(folder, kafka.bootstrap_servers, first))
        frames = b"".join(
            produce_frame(TOPIC, 1_000, client_id=f"tenant-{n:05}") for n in range(args.tenants)
        )
        measured(gateway, first, frames, args)  # every tenant has its counter now
        stand_in = StandIn(page_of(gateway))
        stack.callback(stand_in.stop)
        program = shutil.which("prometheus")
        targets = (gateway.http_url.removeprefix("http://"), stand_in.target)
        scrapers: list[Prometheus | Scraper] = []
        for target in targets:
            scrapers.append(scraper_of(program, folder, target))
            stack.callback(scrapers[-1].stop)
        rounds = [
            compared(gateway, first, frames, scrapers, ORDERS[number % len(ORDERS)], args)
            for number in range(args.rounds)
        ]
        lines = page_of(gateway).count(b"\n")
        seen = counted(gateway)
        own = scrapers[0]
        up = own.asked("sum_over_time(up[1h])") if isinstance(own, Prometheus) else []
        gateway.stop()
        return report(
            rounds, seen, recorded(folder / "gateway" / "record"), (program, lines, up), args
        )


def scraper_of(program: str | None, folder: Path, target: str) -> "Prometheus | Scraper":
    if program is None:
        return Scraper(f"http://{target}/metrics")
    own = folder / target.replace(":", "-")
    own.mkdir()
    return Prometheus(program, own, target, free_port_range(1))


def page_of(gateway: GatewayProcess) -> bytes:
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=30) as answer:
        return answer.read()


def started(folder: Path, upstream: str, first: int) -> GatewayProcess:
    return GatewayProcess(
        folder / "gateway",
        config=gateway_toml(
            upstream=upstream,
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True},
            record="record",
            http_port=0,
        ).replace('flush_interval = "500ms"', 'flush_interval = "5s"'),
        quotas=QUOTAS,
    )


def report(rounds, seen, written, scrapes, args) -> int:
    program, lines, up = scrapes
    by = program or "a thread here (no prometheus on this machine)"
    print(f"{args.tenants} tenants, {lines} lines a scrape, once a second, by {by}")
    missed = []
    for name in ("cpu_us", "p50_ms", "p99_ms", "p999_ms"):
        without = statistics.median(one[NOBODY][name] for one in rounds)
        texts = [f"{name:8} nobody {without:8.3f}"]
        for base in (STAND_IN, NOBODY):
            ratios = sorted(one[SCRAPED][name] / one[base][name] for one in rounds)
            middle = statistics.median(ratios)
            texts.append(f"scraped / {base} {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
            if base == STAND_IN and name in {"cpu_us", "p99_ms"} and middle > X_MAX:
                missed.append(f"{name}: {middle:.3f} x is above {X_MAX}")
        print("  ".join(texts))
    if up:
        print(f"scrapes that Prometheus took: {float(up[0]['value'][1]):.0f}")
    for name, value in written.items():
        print(f"{name}: {seen[name]:.0f}, in the record {value:.0f}")
        if seen[name] != value:
            missed.append(f"{name} differs from the record")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
