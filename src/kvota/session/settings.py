"""What every connection of a gateway is told at its start."""

from dataclasses import dataclass, field

from kvota.model.quota_type import QuotaType


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Limits and modes; the defaults carry their reasons.

    Attributes:
        enforced: quota types in force; the others are in shadow mode.
        mute_ms_max: cap of one mute, and what a client is told at most under ``token_bucket``; the
            Java client's request timeout is 30 s.
        factor_told_ms_max: what a client is told at most while a factor below 1 lowers its limit (a disk is
            nearly full): it may be 1 again soon.
        request_bytes_max: cap of one request; Kafka's socket.request.max.bytes is 100 MiB.
        in_flight_max: requests forwarded and not yet answered before reading pauses. A broker has one of
            a connection in hand and leaves the others in its socket: behind these they are left in ours.
        mutation_partitions_max: partitions one request may ask for (KRaft's own bound on CreateTopics).
        default_partitions: assumed for a topic created with -1 where the broker does not tell.
    """

    enforced: frozenset[QuotaType] = field(default_factory=frozenset)
    mute_ms_max: int = 30_000
    factor_told_ms_max: int = 30_000
    request_bytes_max: int = 100 * 2**20
    in_flight_max: int = 200
    mutation_partitions_max: int = 10_000
    default_partitions: int = 1
