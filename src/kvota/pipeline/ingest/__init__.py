"""Takes rows as they come, from folders or a topic, into a record: each once.

Spark's Structured Streaming cuts what there is into batches, remembers in its checkpoint how far they reach, and has
workers do them. No row passes through Spark's own rows: what it moves are names of files, or blocks of thousands of events.
"""
