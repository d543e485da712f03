"""Configures, wires and commands everything; no other package but ``gateway`` reads the clock."""
