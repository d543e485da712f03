"""A cluster of real brokers: its nodes, their settings and ports, and what it is asked."""
