"""Other records than kvota's own become tables of events: Kafka's request log, and any table of charges.

What is one line or one column is pure (``frame_sizes``, ``log_layout``, ``log_clock``, ``request_line``, ``table_mapping``,
``table_times``, ``table_rows``); files are found and read beside it.
"""
