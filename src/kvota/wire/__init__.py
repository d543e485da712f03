"""Bytes to messages and back: knows Kafka and no quotas, does no I/O."""
