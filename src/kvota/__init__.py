"""Quotas for Apache Kafka: decide, enforce in a gateway, record every decision, plan with Spark."""
