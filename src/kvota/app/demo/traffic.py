"""Runs the demo's tenants for a while, each in its own process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from kvota.app.demo.tenants import TENANTS, TenantReport
from kvota.localkafka.processes.leashed import start_leashed
from kvota.model.errors import UnreachableError

# Time beyond the traffic itself, for starting clients, flushing and the consumer's last polls.
_GRACE_S = 180.0


def run_tenants(
    folder: Path, *, bootstrap_servers: str, passwords: dict[str, str], seconds: float
) -> dict[str, TenantReport]:
    """Run all tenants at once for ``seconds``; return their reports.

    Raises:
        UnreachableError: a tenant failed; quotes the end of what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = {
        name: _start(name, folder, bootstrap_servers, passwords[name], seconds) for name in TENANTS
    }
    try:
        end = time.monotonic() + seconds + _GRACE_S
        for name, (process, _) in started.items():
            try:
                code = process.wait(max(1.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = -1
            if code != 0:
                said = "\n".join((folder / f"{name}.log").read_text().splitlines()[-10:])
                msg = f"the demo's tenant {name} did not finish (exit code {code}):\n{said}"
                raise UnreachableError(msg)
    finally:
        for process, leash in started.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(leash)
    return {
        name: TenantReport(**json.loads((folder / f"{name}.json").read_text())) for name in TENANTS
    }


def _start(
    name: str, folder: Path, bootstrap_servers: str, password: str, seconds: float
) -> tuple[subprocess.Popen[bytes], int]:
    job = {
        "bootstrap_servers": bootstrap_servers,
        "password": password,
        "seconds": seconds,
        "report": str(folder / f"{name}.json"),
    }
    with (folder / f"{name}.log").open("wb") as log:
        return start_leashed(
            [sys.executable, "-m", "kvota.app.demo.tenants", name, json.dumps(job)], log=log
        )


def percentile(values: list[float], share: float) -> float:
    """Return the value with this share of the values below it; NaN if there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
