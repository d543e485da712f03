"""What all tests share."""

from hypothesis import settings

# A test may be slow where the machine has other work: no test asserts a time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
