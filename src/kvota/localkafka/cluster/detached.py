"""A Kafka that runs on after the command that started it; the cache folder remembers it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvota.files.cache import cache_folder
from kvota.files.command_name import called
from kvota.files.folder_lock import folder_lock
from kvota.files.whole_file import write_whole
from kvota.localkafka.cluster.listeners import SASL_SSL, SSL
from kvota.localkafka.cluster.local_kafka import LocalKafka
from kvota.model.errors import CorruptDataError, NegativeError

_MEMORY = "running.json"
_STOP_S = 10
_LOOK_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """One node is described as a program wants to know it."""

    node_id: int
    host: str
    port: int
    sasl_port: int | None
    pid: int
    log_path: str
    tls_port: int | None = None
    sasl_tls_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningKafka:
    """A cluster is described as a program wants to know it; these are the keys of the JSON output."""

    version: str
    bootstrap_servers: str
    sasl_bootstrap_servers: str | None
    users: tuple[str, ...]
    folder: str
    nodes: tuple[RunningNode, ...]
    tls_bootstrap_servers: str | None = None
    sasl_tls_bootstrap_servers: str | None = None
    client_properties: str | None = None
    oauth: bool = False


def describe(kafka: LocalKafka) -> RunningKafka:
    """Describe a cluster that runs."""
    return RunningKafka(
        version=kafka.version,
        bootstrap_servers=kafka.bootstrap_servers,
        sasl_bootstrap_servers=kafka.sasl_bootstrap_servers if kafka.has_logins else None,
        users=tuple(kafka.users),
        folder=str(kafka.folder),
        nodes=tuple(
            RunningNode(
                node_id=node.node_id,
                host=node.host,
                port=node.port,
                sasl_port=node.ports.sasl or None,
                pid=node.pid,
                log_path=str(node.log_path),
                tls_port=node.ports.listeners.get(SSL),
                sasl_tls_port=node.ports.listeners.get(SASL_SSL),
            )
            for node in kafka.nodes
        ),
        tls_bootstrap_servers=kafka.tls_bootstrap_servers if kafka.has_tls else None,
        sasl_tls_bootstrap_servers=(
            kafka.sasl_tls_bootstrap_servers if kafka.has_tls and kafka.has_logins else None
        ),
        client_properties=str(kafka.client_properties) if kafka.has_tls else None,
        oauth=kafka.oauth,
    )


def start_detached(make: Callable[[Path], LocalKafka]) -> RunningKafka:
    """Starts the cluster that ``make`` describes for a folder, remembers it and lets it go.

    Raises:
        NegativeError: one runs already.
        UnreachableError: it did not get ready.
    """
    home = _home()
    with folder_lock(home):
        known = _read(home)
        if known is not None and any(_lives(node.pid, known.folder) for node in known.nodes):
            msg = (
                f"a Kafka {known.version} runs already at {known.bootstrap_servers}. "
                f"End it with: {called()} kafka down"
            )
            raise NegativeError(msg)
        _forget(home)
        kafka = make(Path(tempfile.mkdtemp(prefix="cluster-", dir=home)))
        kafka.start()
        try:
            running = describe(kafka)
            _write(home, running)
            # Until here the nodes die with this process, so nothing runs that nobody remembers.
            kafka.let_go()
        except BaseException:
            kafka.stop()
            raise
        return running


def running_detached() -> RunningKafka | None:
    """Return the cluster that was started last if a node of it is still alive, else None."""
    known = _read(_home())
    if known is None or not any(_lives(node.pid, known.folder) for node in known.nodes):
        return None
    return known


def stop_detached() -> RunningKafka:
    """Ends the remembered cluster and removes its data; returns what it was.

    Raises:
        NegativeError: none runs.
    """
    home = _home()
    with folder_lock(home):
        known = _read(home)
        if known is None:
            msg = f"no Kafka runs that was started with: {called()} kafka up --detach"
            raise NegativeError(msg)
        pids = [node.pid for node in known.nodes if _lives(node.pid, known.folder)]
        _end(pids, known.folder)
        _forget(home)
        if not pids:
            msg = f"the Kafka at {known.bootstrap_servers} had ended by itself; it is forgotten now"
            raise NegativeError(msg)
        return known


def _end(pids: list[int], folder: str) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            # A pid may by now be another program's; only one that names our folder is ours.
            if _lives(pid, folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        deadline_s = time.monotonic() + _STOP_S
        while any(_lives(pid, folder) for pid in pids):
            if time.monotonic() > deadline_s:
                break
            time.sleep(_LOOK_INTERVAL_S)


def _lives(pid: int, folder: str) -> bool:
    """Tell whether the process is there and is a node of the cluster in this folder."""
    command_line = Path(f"/proc/{pid}/cmdline")
    if command_line.exists():
        with contextlib.suppress(OSError):
            return folder.encode() in command_line.read_bytes()
        return False
    if Path("/proc/self").exists():
        return False
    told = subprocess.run(
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return folder in told.stdout


def _home() -> Path:
    return cache_folder() / "kafka"


def _write(home: Path, running: RunningKafka) -> None:
    write_whole(home / _MEMORY, json.dumps(asdict(running), indent=1).encode())


def _read(home: Path) -> RunningKafka | None:
    file = home / _MEMORY
    try:
        known: dict[str, Any] = json.loads(file.read_text())
        nodes = tuple(RunningNode(**node) for node in known.pop("nodes"))
        return RunningKafka(nodes=nodes, users=tuple(known.pop("users")), **known)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        msg = f"{file}: not what kvota wrote ({error}). Remove it; end a Kafka it named by hand."
        raise CorruptDataError(msg) from error


def _forget(home: Path) -> None:
    """Remove the memory, the data, and the logs that failed starts left for people to read."""
    (home / _MEMORY).unlink(missing_ok=True)
    for folder in home.glob("cluster-*"):
        shutil.rmtree(folder, ignore_errors=True)
