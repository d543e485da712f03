"""Reads and writes Kafka's messages as bytes; it knows nothing of quotas and does no I/O."""
