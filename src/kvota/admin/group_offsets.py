"""What consumer groups have committed, asked of their coordinators."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvota.admin.operation import Operation, Outcome
from kvota.admin.topics import TopicPartition
from kvota.client import Answer, Coordinator, CoordinatorKind, Fields, UsageError
from kvota.client.coordinator import NOT_THE_COORDINATOR

_OFFSET_FETCH = 9
# From the first on all partitions can be asked for without their names; later than the last one topics are ids.
_ALL_FROM, _ONE_GROUP_TO = 2, 7
_STABLE_FROM = 7


class OffsetAndMetadata(NamedTuple):
    """What a group has committed of a partition.

    Attributes:
        offset: of the record that is read next.
        leader_epoch: of the record before; -1: not known.
        metadata: what the consumer has written beside it.
    """

    offset: int
    leader_epoch: int
    metadata: str


Committed = dict[TopicPartition, OffsetAndMetadata]


def committed_offsets(group_id: str) -> Operation[None, Committed]:
    """What is asked: all partitions of which the group has committed anything (OffsetFetch)."""

    def content(version: int, _keys: Sequence[None], _left_ms: int) -> Fields:
        if version < _ALL_FROM:
            msg = "the brokers are too old to tell all offsets of a group (Kafka 0.10.2)"
            raise UsageError(msg)
        fields: dict[str, object] = {"group_id": group_id, "topics": None}
        if version >= _STABLE_FROM:
            fields["require_stable"] = False
        return fields

    def outcomes(answer: Answer) -> Iterable[Outcome[None, Committed]]:
        found: Committed = {}
        code = int(answer.error_code)
        for topic in answer.topics:
            for each in topic.partitions:
                key = TopicPartition(str(topic.name), int(each.partition_index))
                code = code or int(each.error_code)
                epoch = int(getattr(each, "committed_leader_epoch", -1))
                if each.committed_offset >= 0:
                    found[key] = OffsetAndMetadata(
                        int(each.committed_offset), epoch, each.metadata or ""
                    )
        yield Outcome(None, code, None, found)

    return Operation(
        api_key=_OFFSET_FETCH,
        version_max=_ONE_GROUP_TO,
        what=lambda _: f'offsets of group "{group_id}" cannot be listed',
        content=content,
        outcomes=outcomes,
        to=Coordinator(CoordinatorKind.GROUP, group_id),
        retriable=NOT_THE_COORDINATOR,
    )
