"""Decision events go out through bounded memory into Parquet files that are whole or not there."""
