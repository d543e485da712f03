"""A broker of our own behind a gateway, both to be killed and started again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import Algorithm, QuotaType

BANDWIDTH = (QuotaType.PRODUCE, QuotaType.FETCH)
NODES_MAX = 3
# Not where gateways listen: who is led past the gateway is not held by it.
HOST = "127.0.0.2"


@dataclass(frozen=True)
class Quota:
    """What each client id may use, in bytes per second."""

    producer_byte_rate: float
    consumer_byte_rate: float

    @property
    def toml(self) -> str:
        """The text of quotas.toml."""
        return (
            "[[quota]]\nclient_id_default = true\n"
            f"producer_byte_rate = {self.producer_byte_rate}\n"
            f"consumer_byte_rate = {self.consumer_byte_rate}\n"
        )


# A line forms soon: requests wait in it while a gateway or a broker dies.
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=200)
# Nobody comes near them: counted and in force all the same.
UNREACHED = Quota(1e12, 1e12)


def gateway_config(
    kafka: LocalKafka,
    first_port: int,
    algorithm: Algorithm,
    *,
    enforced: bool = True,
    bucket: BucketSettings = BUCKET,
    record: str = "record",
    servers: str | None = None,
) -> str:
    """The text of gateway.toml: bandwidth by this algorithm; ``servers``: of another listener than PLAINTEXT."""
    is_bucket = algorithm is Algorithm.TOKEN_BUCKET
    return gateway_toml(
        upstream=servers or kafka.bootstrap_servers,
        first_port=first_port,
        node_ids=f"0-{NODES_MAX}",
        enforce=dict.fromkeys(BANDWIDTH, enforced),
        buckets=dict.fromkeys(BANDWIDTH, bucket) if is_bucket else None,
        record=record,
    )


@contextmanager
def gateway_before(
    kafka: LocalKafka, folder: Path, algorithm: Algorithm, quota: Quota = UNREACHED
) -> Iterator[GatewayProcess]:
    """A gateway, ready on entry; it has kept running at the end, or somebody has started it again."""
    first_port = free_port_range(NODES_MAX + 2)
    process = GatewayProcess(
        folder,
        config=gateway_config(kafka, first_port, algorithm),
        quotas=quota.toml,
    )
    with process:
        yield process
        assert process.running, f"the gateway is gone; its log:\n{process.log[-3_000:]}"
