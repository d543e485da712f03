"""Usage and replay in, a plan out: needs, fair shares, guardrails, the difference to the quotas in force."""
