"""Replay, law and usage with every row moved by Spark: slow, plain, and to be agreed with bit for bit."""
