"""What a cluster has carried out, by its own log of metadata: no answer, no client and no gateway can make it less."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

_PAYLOAD = " payload: "
_DUMP = "org.apache.kafka.tools.DumpLogSegments"


@dataclass(frozen=True)
class CarriedOut:
    """Topic mutations, as a quota counts them.

    Attributes:
        mutations: topics that were created, grown or deleted, each time.
        partitions: created, added and deleted, in all.
        created: how often, by the topic's name.
        deleted: how often.
    """

    mutations: int
    partitions: int
    created: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)

    @property
    def there(self) -> set[str]:
        """The topics that are there at the end."""
        return set(self.created - self.deleted)


def carried_out(kafka: LocalKafka, prefix: str) -> CarriedOut:
    """What was done to topics whose names begin with ``prefix``; a node may not have heard of the last of it."""
    found = [_counted(_records(kafka, number), prefix) for number in range(len(kafka.nodes))]
    return max(found, key=lambda one: one.mutations)


def _records(kafka: LocalKafka, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and fields of each record in a node's log, as Kafka's own tool reads it."""
    folder = kafka.nodes[number].data_path / "__cluster_metadata-0"
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    assert files, f"no log of metadata in {folder}"
    arguments = ["--cluster-metadata-decoder", "--skip-record-metadata", "--files", files]
    command = kafka_command(kafka.version, _DUMP, arguments, java_options=SHORT_LIVED)
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    for line in told.stdout.splitlines():
        _, is_record, payload = line.partition(_PAYLOAD)
        if is_record:
            record = json.loads(payload)
            yield record["type"], record["data"]


def _counted(records: Iterable[tuple[str, dict[str, Any]]], prefix: str) -> CarriedOut:
    there: dict[str, int] = {}
    names: dict[str, str] = {}
    created: Counter[str] = Counter()
    deleted: Counter[str] = Counter()
    mutations = partitions = 0
    last = ""  # the topic whose partitions are being made
    for kind, data in records:
        topic = data.get("topicId", "")
        if kind == "TOPIC_RECORD" and data["name"].startswith(prefix):
            there[topic] = 0
            names[topic] = data["name"]
            created[names[topic]] += 1
            mutations += 1
            last = topic
        elif kind == "PARTITION_RECORD" and topic in there:
            mutations += topic != last
            there[topic] += 1
            partitions += 1
            last = topic
        else:
            last = ""
            if kind == "REMOVE_TOPIC_RECORD" and topic in there:
                mutations += 1
                partitions += there.pop(topic)
                deleted[names[topic]] += 1
    return CarriedOut(mutations, partitions, created, deleted)
