"""Makes a plan out of usage and replay: needs, fair shares, guardrails, and what would change."""
