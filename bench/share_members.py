"""Members of share groups (KIP-932) as plain sockets; what one has read it accepts with its next ShareFetch."""

import base64
import socket
import time
import uuid
from collections.abc import Sequence
from typing import Any

from kvota.admin import AdminClient, AlterConfigOp, ConfigResource, ConfigResourceType
from kvota.testing.frames import FIND_COORDINATOR, decoded, parts, request
from kvota.testing.kafka_messages import throttle
from kvota.testing.share_frames import SHARE_FETCH

_HEARTBEAT = 76
_VERSION = 2
_ACCEPT = 1
_JOIN_S = 20

Acquired = list[tuple[int, int, int]]  # partition, first and last offset


def new_id() -> str:
    """An id of a member, as Kafka writes its UUIDs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Member:
    """One connection of one member of a group that reads all partitions of a topic."""

    def __init__(
        self,
        address: str,
        client: str,
        group: str,
        topic_id: uuid.UUID,
        partitions: int,
        *,
        max_bytes: int = 50 << 20,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client, self._group, self._member = client, group, new_id()
        self._topic_id, self._partitions, self._max_bytes = topic_id, partitions, max_bytes
        self._epoch = self._correlation = 0
        self._acquired: Acquired = []

    def fetch(self, wait_ms: int = 500) -> tuple[int, list[tuple[int, int, int, int]]]:
        """Acknowledge what the last one brought, and ask for more.

        Returns:
            How many bytes of records came; partition, first and last offset, and how often they were delivered.
        """
        self._correlation += 1
        answer: Any = decoded(_ask(self.socket, self._request(wait_ms)), SHARE_FETCH, _VERSION)
        if answer.error_code.value:
            self._epoch, self._acquired = 0, []
            return 0, []
        self._epoch += 1
        rows = [row for topic in answer.responses for row in topic.partitions]
        came = [
            (row.partition_index, each.first_offset, each.last_offset, each.delivery_count)
            for row in rows
            for each in row.acquired_records
        ]
        self._acquired = [(partition, first, last) for partition, first, last, _ in came]
        return sum(len(row.records or b"") for row in rows), came

    def _request(self, wait_ms: int) -> bytes:
        named = range(self._partitions) if self._epoch == 0 else ()
        rows = {partition: [] for partition in named}
        for partition, first, last in self._acquired:
            rows.setdefault(partition, []).append((first, last))
        return request(
            SHARE_FETCH, _VERSION, correlation=self._correlation, client=self._client,
            group_id=self._group, member_id=self._member, share_session_epoch=self._epoch,
            max_wait=throttle(wait_ms), min_bytes=1, max_bytes=self._max_bytes, max_records=500,
            batch_size=500, share_acquire_mode=0, is_renew_ack=False,
            topics=self._topics(rows), forgotten_topics_data=(),
        )  # fmt: skip

    def _topics(self, rows: dict[int, list[tuple[int, int]]]) -> tuple[Any, ...]:
        if not rows:
            return ()
        named = [
            {"partition_index": partition, "acknowledgement_batches": _acknowledged(ranges)}
            for partition, ranges in rows.items()
        ]
        partitions = parts(SHARE_FETCH, _VERSION, "request", "FetchPartition", *named)
        topic = {"topic_id": self._topic_id, "partitions": partitions}
        return parts(SHARE_FETCH, _VERSION, "request", "FetchTopic", topic)


def _acknowledged(ranges: list[tuple[int, int]]) -> tuple[Any, ...]:
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": (_ACCEPT,)}
        for first, last in ranges
    ]
    return parts(SHARE_FETCH, _VERSION, "request", "AcknowledgementBatch", *batches)


async def make_groups(servers: str, groups: Sequence[str], topic: str) -> uuid.UUID:
    """Groups that read a topic from its beginning, each with one member that has joined and gone; returns its id."""
    async with AdminClient(servers) as admin:
        earliest = AlterConfigOp("share.auto.offset.reset", "earliest")
        wanted = {ConfigResource(ConfigResourceType.GROUP, group): [earliest] for group in groups}
        await admin.incremental_alter_configs(wanted)
        described = await admin.describe_topics([topic])
    for group in groups:
        _join(servers, group, topic)
    return described.result(topic).topic_id


def _join(servers: str, group: str, topic: str) -> None:
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    beat = request(
        _HEARTBEAT, 1, group_id=group, member_id=new_id(), member_epoch=0, rack_id=None,
        subscribed_topic_names=(topic,),
    )  # fmt: skip
    end = time.monotonic() + _JOIN_S
    with socket.create_connection((host, int(port)), timeout=_JOIN_S) as one:
        # A cluster's first group has to wait until there is a coordinator.
        _ask(one, request(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(group,)))
        while time.monotonic() < end:
            if not decoded(_ask(one, beat), _HEARTBEAT, 1).error_code.value:
                return
            time.sleep(0.1)
    raise TimeoutError(f"the broker does not take members of {group}")


def _ask(one: socket.socket, frame: bytes) -> bytes:
    one.sendall(frame)
    head = _taken(one, 4)
    return head + _taken(one, int.from_bytes(head, "big"))


def _taken(one: socket.socket, size: int) -> bytes:
    taken = bytearray()
    while len(taken) < size:
        more = one.recv(size - len(taken))
        if not more:
            raise ConnectionError(f"closed with {len(taken)} of {size} bytes")
        taken += more
    return bytes(taken)
