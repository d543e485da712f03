"""A cluster consists of real brokers, with their settings and ports, and can be asked."""
