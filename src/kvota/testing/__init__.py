"""Small working parts for tests: seeded traffic, random messages. Public."""
