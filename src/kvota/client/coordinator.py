"""Which broker looks after a consumer group, or a transactional id (KIP-98, KIP-699)."""

from enum import IntEnum
from typing import Any, NamedTuple

from kvota.client.broker_error import BrokerError
from kvota.client.messages import Answer, Fields
from kvota.model.errors import UnreachableError, UsageError
from kvota.wire.error_code import ErrorCode

# There is none at the moment, or it is still reading what it looks after: some time later there is one.
_NOT_NOW = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})
# The same of whoever has asked it; or it is another one by now.
NOT_THE_COORDINATOR = _NOT_NOW | {ErrorCode.NOT_COORDINATOR}
_SEVERAL_KEYS_FROM = 4


class CoordinatorKind(IntEnum):
    """What is looked after, by Kafka's number."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """The broker that looks after this one, whichever that is: a ``Destination``."""

    kind: CoordinatorKind
    key: str

    def __str__(self) -> str:
        """For people."""
        return f'the coordinator of {self.kind.name.lower()} "{self.key}"'


class Found(NamedTuple):
    """Where it is."""

    node_id: int
    host: str
    port: int


def finding(wanted: Coordinator, version: int) -> Fields:
    """Return the request's fields (FindCoordinator).

    Raises:
        UsageError: the version only knows groups (before Kafka 0.11).
    """
    if version >= _SEVERAL_KEYS_FROM:
        return {"key_type": int(wanted.kind), "coordinator_keys": [wanted.key]}
    if version >= 1:
        return {"key": wanted.key, "key_type": int(wanted.kind)}
    if wanted.kind is not CoordinatorKind.GROUP:
        msg = f"{wanted}: the brokers are too old to have one (Kafka 0.11)"
        raise UsageError(msg)
    return {"key": wanted.key}


def found_in(answer: Answer, wanted: Coordinator) -> Found:
    """Read an answer of any version.

    Raises:
        UnreachableError: there is none at the moment.
        BrokerError: the broker does not tell.
    """
    each: Any = answer
    if hasattr(answer, "coordinators"):
        each = next((one for one in answer.coordinators if one.key == wanted.key), None)
        if each is None:
            msg = f"{wanted}: the broker's answer does not name it"
            raise UnreachableError(msg)
    code = int(each.error_code)
    error = BrokerError(str(wanted), code, getattr(each, "error_message", None))
    if code in _NOT_NOW:
        raise UnreachableError(str(error))
    if code:
        raise error
    return Found(int(each.node_id), str(each.host), int(each.port))
