"""Which mutation requests are new enough to be refused topic by topic."""

# API key of CreateTopics, DeleteTopics, CreatePartitions → first strict version. Source: KIP-599.
# Older requests are executed, and their clients wait afterwards (permissive).
STRICT_FROM = {19: 6, 20: 5, 37: 3}
