"""Shows the whole circle on a real Kafka: tenants, shadow mode, replay, plan, quotas in force."""
