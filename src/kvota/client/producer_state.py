"""Who appends to a partition, so that a batch is there once however often it is sent (KIP-98: an idempotent producer)."""

from datetime import timedelta
from typing import NamedTuple, Self

from kvota.client.broker_error import BrokerError
from kvota.client.connection import BrokerConnection
from kvota.wire.apis import INIT_PRODUCER_ID
from kvota.wire.error_code import ErrorCode

_SEQUENCE_MASK = 0x7FFF_FFFF  # behind the last one comes 0
_NO_TRANSACTIONS = timedelta(0)


class ProducerState(NamedTuple):
    """What a batch says of its producer.

    Attributes:
        producer_id: as the cluster has given it; -1: none, and who sends a batch twice has it twice.
        epoch: of that id.
        sequence: number of the batch's first record, from 0 to 2**31 - 1; brokers know the last five batches.
    """

    producer_id: int
    epoch: int
    sequence: int

    def behind(self, count: int) -> Self:
        """What the next batch says once one of so many records is there."""
        return self._replace(sequence=(self.sequence + count) & _SEQUENCE_MASK)


NO_PRODUCER = ProducerState(-1, -1, -1)


async def new_producer(connection: BrokerConnection, *, timeout_s: float) -> ProducerState:
    """Ask for a producer id of one's own; ``NO_PRODUCER`` where the cluster does not allow it.

    It takes WRITE on any topic, before Kafka 2.8 IDEMPOTENT_WRITE on the cluster (KIP-679).

    Raises:
        UnreachableError: there was no answer.
        BrokerError: there is none to be had now.
    """
    content = {"transactional_id": None, "transaction_timeout": _NO_TRANSACTIONS}
    answer = await connection.ask(INIT_PRODUCER_ID, content, version=0, timeout_s=timeout_s)
    code = int(answer.error_code)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return NO_PRODUCER
    if code:
        what = "a producer id"
        raise BrokerError(what, code)
    return ProducerState(int(answer.producer_id), int(answer.producer_epoch), 0)
