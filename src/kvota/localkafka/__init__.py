"""This room runs a real Apache Kafka on this machine, for the demo, the tests and the benchmarks."""

from kvota.localkafka.cluster.acls import Acl
from kvota.localkafka.cluster.certificates import Authority, Issued
from kvota.localkafka.cluster.listeners import Listener, tls_settings
from kvota.localkafka.cluster.local_kafka import LocalKafka

__all__ = ["Acl", "Authority", "Issued", "Listener", "LocalKafka", "tls_settings"]
