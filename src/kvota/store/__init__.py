"""Configured quotas live here, and the files that an operator writes are read here."""
