"""Performs what the connections' machines say: asyncio and uvloop, nothing else."""
