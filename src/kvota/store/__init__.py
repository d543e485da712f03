"""Where configured quotas live, and the files an operator writes."""
