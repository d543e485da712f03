"""What all tests share."""

import signal

from hypothesis import settings

# A test may be slow where the machine has other work: no test asserts a time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# What is started in the background may have SIGINT ignored, and the processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
