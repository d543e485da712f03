"""Conversations that need whole frames: one class each, chosen by ``table``."""
