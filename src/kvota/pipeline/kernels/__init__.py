"""Loops over arrays, compiled by Numba; the arithmetic in them is the engine's own.

They are imported one by one, where they are needed: Numba alone takes a third of a second.
"""
