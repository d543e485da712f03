"""Has one module for each command of ``kvota``."""
