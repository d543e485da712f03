"""Kafka's own verifiable producer and consumer: each says in a line of JSON what it has sent, seen and committed."""

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.endurance.client_process import ClientProcess

from kvota.localkafka import LocalKafka

_TOOLS = "org.apache.kafka.tools.Verifiable"
# What the JVM says of an end by SIGTERM, which is these tools' only one.
_ENDED = 128 + signal.SIGTERM
Event = Mapping[str, Any]


class Verifiable(ClientProcess):
    """One of them; it works until it is asked to end, and closes in order then.

    Args:
        source: what it shares with the others.
        name: of its files.
        kind: ``Producer`` or ``Consumer``.
        first: the name of the line that tells of its first success.
        options: of the tool.
    """

    def __init__(
        self, source: "Source", name: str, *, kind: str, first: str, options: Sequence[object]
    ) -> None:
        command = source.kafka.java_command_line(f"{_TOOLS}{kind}", *map(str, options))
        super().__init__(source.folder, name, command, end_codes=(0, _ENDED))
        self._first = f'"name":"{first}"'

    def has_begun(self) -> bool:
        """Whether it has told of its first success."""
        return any(self._first in line for line in self.lines)

    def ask_to_end(self) -> None:
        """It closes its client in order at this signal."""
        self.signal(signal.SIGTERM)

    def events(self, *names: str) -> list[Event]:
        """What it has said under these names, in its order."""
        return [
            event
            for line in self.lines
            if line.startswith("{") and line.endswith("}")
            for event in [json.loads(line)]
            if event["name"] in names
        ]


@dataclass(frozen=True)
class Source:
    """The topic that these clients share, and how they get in.

    Attributes:
        kafka: whose tools are taken.
        folder: where what they say is kept.
        bootstrap: their bootstrap servers.
        topic: which.
        properties: of their Kafka clients, a file.
    """

    kafka: LocalKafka
    folder: Path
    bootstrap: str
    topic: str
    properties: Path

    @property
    def options(self) -> list[object]:
        """Of either tool."""
        servers = ("--bootstrap-server", self.bootstrap, "--topic", self.topic)
        return [*servers, "--command-config", self.properties]


def verifiable_producer(source: Source, per_s: int) -> Verifiable:
    """It sends 0, 1, 2 … and wants all replicas' acknowledgement; so many a second."""
    options = [*source.options, "--throughput", per_s, "--acks", -1]
    name, first = "verifiable-producer", "producer_send_success"
    return Verifiable(source, name, kind="Producer", first=first, options=options)


def verifiable_consumer(source: Source, group: str, protocol: str, number: int) -> Verifiable:
    """A member of a group, which commits behind each poll; ``protocol``: classic or consumer (KIP-848)."""
    options = [*source.options, "--group-id", group, "--group-protocol", protocol]
    options += ["--reset-policy", "earliest", "--verbose"]
    name, first = f"verifiable-consumer-{protocol}-{number}", "record_data"
    return Verifiable(source, name, kind="Consumer", first=first, options=options)
