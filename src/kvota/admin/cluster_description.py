"""The cluster described: its brokers by DescribeCluster, which they have from 2.8 on (KIP-700)."""

from collections.abc import Iterable, Sequence

from kvota.admin.operation import Operation, Outcome
from kvota.admin.topics import ClusterDescription
from kvota.client import Answer, Broker, Fields
from kvota.wire.apis import DESCRIBE_CLUSTER

# Which side of the cluster an answer is of; controllers of their own are the other one (KIP-919).
_BROKERS = 1
_SIDES_FROM, _FENCED_FROM = 1, 2


def description() -> Operation[None, ClusterDescription]:
    """What is asked; older brokers tell the same by Metadata (``topic_looks.cluster_description``)."""

    def content(version: int, _keys: Sequence[None], _left_ms: int) -> Fields:
        fields: dict[str, object] = {"include_cluster_authorized_operations": False}
        if version >= _SIDES_FROM:
            fields["endpoint_type"] = _BROKERS
        if version >= _FENCED_FROM:
            fields["include_fenced_brokers"] = False
        return fields

    def outcomes(answer: Answer) -> Iterable[Outcome[None, ClusterDescription]]:
        nodes = [
            Broker(
                node_id=int(broker.broker_id),
                host=str(broker.host),
                port=int(broker.port),
                rack=broker.rack,
            )
            for broker in answer.brokers
        ]
        controller_id = int(answer.controller_id)
        cluster = ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=None if controller_id < 0 else controller_id,
            nodes=tuple(sorted(nodes, key=lambda node: node.node_id)),
        )
        yield Outcome(None, int(answer.error_code), answer.error_message, cluster)

    return Operation(
        api_key=DESCRIBE_CLUSTER,
        what=lambda _: "the cluster cannot be described",
        content=content,
        outcomes=outcomes,
    )
