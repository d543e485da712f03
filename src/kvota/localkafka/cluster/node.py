"""One node of a local Kafka is a JVM with its files."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvota.localkafka.cluster.ports import NodePorts
from kvota.localkafka.cluster.server_properties import format_properties
from kvota.localkafka.processes.command_line import kafka_command
from kvota.localkafka.processes.leashed import start_leashed
from kvota.model.errors import KvotaError

_TAIL_LINES = 8
_ERROR = re.compile(r" (ERROR|FATAL) |^[\w.$]+(Exception|Error)\b|^Caused by: ")
_KILL_WAIT_S = 30


@dataclass(slots=True, kw_only=True)
class Node:
    """A broker and controller in one process."""

    version: str
    host: str
    ports: NodePorts
    folder: Path
    heap_mb: int
    java_options: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _leash: int | None = field(default=None, init=False, repr=False)

    @property
    def node_id(self) -> int:
        """Kafka's ``node.id``, from 1."""
        return self.ports.node_id

    @property
    def port(self) -> int:
        """Port of the PLAINTEXT listener."""
        return self.ports.plain

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the PLAINTEXT listener."""
        return self.host, self.port

    @property
    def pid(self) -> int:
        """Process id; that of the last process where none runs now."""
        if self._process is None:
            msg = f"node {self.node_id} was never started"
            raise KvotaError(msg)
        return self._process.pid

    @property
    def data_path(self) -> Path:
        """Kafka's ``log.dirs``."""
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        """The file that the node logs into, over all its starts."""
        return self.folder / "node.log"

    @property
    def running(self) -> bool:
        """True while its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last process, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Writes ``server.properties``, read at the next start."""
        (self.folder / "server.properties").write_text(format_properties(settings))

    def start(self) -> None:
        """Starts the process; it answers some seconds later."""
        if self.running:
            msg = f"node {self.node_id} runs already"
            raise KvotaError(msg)
        command = kafka_command(
            self.version,
            "kafka.Kafka",
            [str(self.folder / "server.properties")],
            heap_mb=self.heap_mb,
            java_options=self.java_options,
        )
        with self.log_path.open("ab") as log:
            # It gets a session of its own: Ctrl-C at the terminal is for us, and we end the nodes in order.
            self._process, self._leash = start_leashed(command, log=log, own_session=True)

    def let_go(self) -> None:
        """Lets the process outlive this one."""
        if self._leash is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                os.write(self._leash, b"!")
            self._drop_leash()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if the process lives."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end; returns whether it came."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._drop_leash()
        return True

    def _drop_leash(self) -> None:
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None

    def kill(self) -> None:
        """Ends it with ``kill -9`` and waits until the process is gone."""
        self.signal(signal.SIGKILL)
        if not self.wait(_KILL_WAIT_S):
            msg = f"node {self.node_id} (pid {self.pid}) outlives kill -9; is its disk stuck?"
            raise KvotaError(msg)

    def log_text(self) -> str:
        """Return all that it logged so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """Return the first errors it logged, which tell the cause, and its last lines."""
        lines = self.log_text().splitlines()
        last = lines[-_TAIL_LINES:]
        errors = [line for line in lines[:-_TAIL_LINES] if _ERROR.search(line)]
        return "\n".join(errors[:_TAIL_LINES] + last) or "(it logged nothing)"


def words_of_end(node: Node) -> str:
    """Say that a node has ended by itself, with the end of its log."""
    msg = f"node {node.node_id} of Kafka {node.version} ended (exit code {node.exit_code})"
    return words_with_log(msg, node)


def words_with_log(msg: str, node: Node) -> str:
    """Add the end of a node's log to a sentence."""
    return f"{msg}. From its log {node.log_path}:\n{node.log_tail()}"
