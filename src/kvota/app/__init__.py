"""Configuration, wiring and the command line; the only place that reads the clock."""
