"""Quotas as code: what is in force is compared with a file, changed by it, and brought back."""
