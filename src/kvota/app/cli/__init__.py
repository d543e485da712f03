"""One module per command of ``kvota``."""
