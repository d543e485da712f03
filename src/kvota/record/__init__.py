"""Decision events out: bounded memory, then Parquet files that are whole or not there."""
