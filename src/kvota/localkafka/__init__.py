"""This room runs a real Apache Kafka on this machine, for the demo, the tests and the benchmarks."""

from kvota.localkafka.cluster.local_kafka import LocalKafka

__all__ = ["LocalKafka"]
