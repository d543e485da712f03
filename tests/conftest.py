"""What all tests share."""

import faulthandler
import signal

from hypothesis import settings

# A test may be slow where the machine has other work: no test asserts a time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# What is started in the background may have SIGINT ignored, and the processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


# After the last word a thread that a failed test left behind could keep the process, and with it the whole run.
LAST_WORD_TO_END_S = 60


def pytest_unconfigure() -> None:
    """End within a minute, and show where the thread is that would not let it."""
    faulthandler.dump_traceback_later(LAST_WORD_TO_END_S, exit=True)
