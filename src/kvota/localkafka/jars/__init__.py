"""Kafka's jars are fetched and verified here, and class paths, classes and archives made from them once."""
