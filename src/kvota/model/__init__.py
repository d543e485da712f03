"""Nouns that every layer shares. Imports nothing of ours."""
