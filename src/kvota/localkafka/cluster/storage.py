"""A node's storage is formatted without a JVM per node.

Kafka's StorageTool writes two small files: ``meta.properties`` names cluster and node, and
``bootstrap.checkpoint`` holds the first metadata records. The second is the same for every cluster
of one Kafka version, so it is made once by the real tool and kept in the cache; the first is text.
"""

import base64
import shutil
import subprocess
import uuid
from pathlib import Path

from kvota.files.cache import cache_folder
from kvota.files.made_whole import made_whole
from kvota.localkafka.cluster.listeners import PLAINTEXT, listeners_of
from kvota.localkafka.cluster.ports import NodePorts
from kvota.localkafka.cluster.server_properties import format_properties, server_properties
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command
from kvota.model.errors import KvotaError, UsageError

_CHECKPOINT = "bootstrap.checkpoint"
_FORMAT_TIMEOUT_S = 120


def new_id() -> str:
    """Return a random id as Kafka writes them: 22 characters, never beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_storage(data: Path, *, version: str, cluster_id: str, node_id: int) -> None:
    """Makes ``data``, which is empty or not there, the storage of a new node."""
    checkpoint = _checkpoint(version)
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        msg = f"{data} is not empty: it may hold what somebody still wants. Name another folder"
        raise UsageError(msg)
    meta = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": new_id(),
    }
    (data / "meta.properties").write_text(format_properties(meta))
    shutil.copyfile(checkpoint, data / _CHECKPOINT)


def _checkpoint(version: str) -> Path:
    kept = cache_folder() / "format" / f"{version}-{_CHECKPOINT}"
    if kept.exists():
        return kept
    with made_whole(kept) as made:
        data, config = made.with_name("data"), made.with_name("server.properties")
        node = NodePorts(node_id=1, controller=2, listeners={PLAINTEXT: 1})  # it opens no port
        listeners = listeners_of(users=False, tls=None)
        settings = server_properties(
            node, [node], host="127.0.0.1", data=data, listeners=listeners, users={}
        )
        config.write_text(format_properties(settings))
        command = kafka_command(
            version,
            "kafka.tools.StorageTool",
            ["format", "-t", new_id(), "-c", str(config)],
            java_options=SHORT_LIVED,
        )
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False
        )
        checkpoint = data / _CHECKPOINT
        if done.returncode or not checkpoint.exists():
            msg = f"Kafka {version} could not format a storage folder:\n{done.stdout}{done.stderr}"
            raise KvotaError(msg)
        checkpoint.rename(made)
    return kept
