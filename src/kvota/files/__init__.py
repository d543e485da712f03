"""Files lie in the cache or in the folder of a run, and are written whole or not at all."""
