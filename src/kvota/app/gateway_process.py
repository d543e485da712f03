"""Runs a gateway as a child process, for the demo, the tests and the benchmarks."""

import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kvota.localkafka.cluster import ports
from kvota.localkafka.processes.leashed import start_leashed
from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import UnreachableError
from kvota.model.quota_type import Algorithm, QuotaType

_READY_S = 60.0
_STOP_S = 60.0
# A reload writes its lines one by one; only warnings come behind this one.
_RELOADED = r"SIGHUP: (.*; quotas of \d+ entities from |what is in force stays as it is).*\n"


def free_port_range(count: int, host: str = "127.0.0.1") -> int:
    """Return the first of ``count`` neighbouring ports that are free right now.

    Raises:
        UnreachableError: there are none.
    """
    draw = random.SystemRandom()
    for _ in range(200):
        first = draw.randrange(ports.PORT_MIN, ports.PORT_MAX - count)
        if all(ports.is_free(host, port) for port in range(first, first + count)):
            return first
    msg = f"no {count} neighbouring free ports on {host} between {ports.PORT_MIN} and {ports.PORT_MAX}"
    raise UnreachableError(msg)


def gateway_toml(  # noqa: PLR0913  (one argument per setting that differs between runs)
    *,
    upstream: str,
    first_port: int | None = None,
    node_ids: str = "0-9",
    enforce: Mapping[str, bool] | None = None,
    buckets: Mapping[QuotaType, BucketSettings] | None = None,
    record: str | None = None,
    kafka: Mapping[str, int | str] | None = None,
    limits: Mapping[str, int | str] | None = None,
    source: str | None = None,
    http_port: int | None = None,
) -> str:
    """Write a gateway.toml; bootstrap is ``first_port``, node n is at ``first_port + 1 + n``.

    Without ``first_port`` as many neighbouring ports as that takes are chosen, which are free right now. Without ``http_port`` nothing is served by HTTP; 0: at any port that is free.

    The quota types in ``buckets`` are counted by a token bucket; ``source``: of the quotas.
    """
    if first_port is None:
        first_port = free_port_range(2 + max(map(int, re.findall("[0-9]+", node_ids))))
    servers = ", ".join(f'"{server.strip()}"' for server in upstream.split(","))
    lines = [
        "[gateway]",
        f"bootstrap_port = {first_port}",
        f"node_port_base = {first_port + 1}",
        f'node_ids = "{node_ids}"',
        "",
        "[upstream]",
        f"bootstrap_servers = [{servers}]",
        "",
    ]
    if source is not None:
        lines += ["[quotas]", f'source = "{source}"', ""]
    for quota_type in dict.fromkeys([*(enforce or {}), *(buckets or {})]):
        lines += [f"[quotas.{quota_type}]"]
        if enforce and quota_type in enforce:
            lines += [f"enforce = {str(enforce[quota_type]).lower()}"]
        if buckets and quota_type in buckets:
            bucket = buckets[QuotaType(quota_type)]
            lines += [f'algorithm = "{Algorithm.TOKEN_BUCKET.value}"']
            lines += [f'burst = "{bucket.burst_ms}ms"', f'debt_max = "{bucket.debt_max_ms}ms"']
        lines += [""]
    if http_port is None:
        lines += ["[http]", "enabled = false", ""]
    else:
        lines += ["[http]", f"port = {http_port}", ""]
    if record is not None:
        lines += ["[record]", f'folder = "{record}"', 'flush_interval = "500ms"', ""]
    for name, table in (("kafka", kafka), ("limits", limits)):
        if table:
            lines += [f"[{name}]"]
            lines += [
                f'"{key}" = ' + (f'"{value}"' if isinstance(value, str) else str(value))
                for key, value in table.items()
            ]
            lines += [""]
    return "\n".join(lines)


class GatewayProcess:
    """Runs ``kvota gateway`` in a folder with its two files; it is ready on entry, gone on exit.

    Args:
        folder: where the files are written and the log is kept.
        config: text of gateway.toml.
        quotas: text of quotas.toml.
        log_level: what is logged; at ``debug`` every line that is else only counted, too.
    """

    def __init__(self, folder: Path, *, config: str, quotas: str, log_level: str = "info") -> None:
        self._log_level = log_level
        self.folder = folder
        self._config = config
        self.log_path = folder / "gateway.log"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "gateway.toml").write_text(config)
        (folder / "quotas.toml").write_text(quotas)
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: int | None = None

    @property
    def first_port(self) -> int:
        """Return the bootstrap port, as its first configuration has it."""
        port: int = tomllib.loads(self._config)["gateway"]["bootstrap_port"]
        return port

    @property
    def bootstrap_servers(self) -> str:
        """Return where clients begin."""
        return f"127.0.0.1:{self.first_port}"

    @property
    def pid(self) -> int:
        """Return the process id of the running gateway."""
        assert self._process is not None, "the gateway has not been started"
        return self._process.pid

    @property
    def log(self) -> str:
        """Return everything it has logged so far."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    @property
    def http_url(self) -> str:
        """Return where it serves HTTP, as its log says: after another start perhaps elsewhere."""
        found: list[str] = re.findall(r"HTTP at (http://\S+):", self.log)
        assert found, "it serves no HTTP"
        return found[-1]

    @property
    def running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        """Start it; return when it listens."""
        self.start()
        return self

    def start(self) -> None:
        """Start it, again after ``stop`` or ``kill``, with its files as they are now; return when it listens."""
        logged_before = len(self.log)
        with self.log_path.open("ab") as log:
            self._process, self._leash = start_leashed(
                [
                    *(sys.executable, "-m", "kvota.app.cli.main", "gateway"),
                    *("-c", "gateway.toml", "--log-level", self._log_level),
                ],
                cwd=self.folder,
                log=log,
            )
        self._wait_for("ready:", logged_before, _READY_S)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain and end it."""
        self.stop()

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL after a while; return the exit code."""
        assert self._process is not None, "the gateway has not been started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._reap()

    def kill(self) -> None:
        """End it with ``kill -9``; return when it is gone."""
        assert self._process is not None, "the gateway has not been started"
        self._process.kill()
        self._reap()

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None
        return code

    def reload(self, quotas: str, config: str | None = None) -> None:
        """Write other quotas, and settings if given, and put them in force; return when they are, or are refused."""
        assert self._process is not None, "the gateway has not been started"
        logged_before = len(self.log)
        (self.folder / "quotas.toml").write_text(quotas)
        if config is not None:
            (self.folder / "gateway.toml").write_text(config)
        self._process.send_signal(signal.SIGHUP)
        self._wait_for(_RELOADED, logged_before, _READY_S)

    def _wait_for(self, pattern: str, logged_before: int, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not re.search(pattern, self.log[logged_before:]):
            if not self.running or time.monotonic() > end:
                self.stop()
                tail = "\n".join(self.log.splitlines()[-15:])
                msg = f'the gateway did not say "{pattern}"; the end of its log:\n{tail}'
                raise UnreachableError(msg)
            time.sleep(0.02)
