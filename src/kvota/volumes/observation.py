"""What one look at all volumes has brought."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvota.volumes.volume import Volume


class Status(StrEnum):
    """How a look ended; the words are those of Strimzi's metrics and logs."""

    SUCCESS = "SUCCESS"
    DESCRIBE_CLUSTER_ERROR = "DESCRIBE_CLUSTER_ERROR"
    DESCRIBE_LOG_DIR_ERROR = "DESCRIBE_LOG_DIR_ERROR"
    SAFETY_TIMEOUT = "SAFETY_TIMEOUT"
    EXCEPTION = "EXCEPTION"
    LOCAL_ERROR = "LOCAL_ERROR"  # a log directory of this machine could not be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look.

    Attributes:
        status: anything but ``SUCCESS`` says nothing of the volumes.
        volumes: those that were seen; empty unless it succeeded.
        broker_ids: the brokers that were asked.
        dropped: log directories without a size (offline, or of a broker too old to tell).
        reason: in words, where it did not succeed.
        factor: that somebody else has told, in place of volumes; None: volumes were looked at.
    """

    status: Status
    volumes: Sequence[Volume] = ()
    broker_ids: Sequence[int] = ()
    dropped: int = 0
    reason: str = ""
    factor: float | None = None

    @property
    def succeeded(self) -> bool:
        """True when the volumes are known."""
        return self.status is Status.SUCCESS
