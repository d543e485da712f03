"""What the system says of an error, for a line of the log."""

import os


def words_of(error: OSError | ValueError) -> str:
    """The system's own words; an event loop may have put others around them."""
    if isinstance(error, OSError):
        if error.errno is not None and error.errno > 0:
            return os.strerror(error.errno)
        return error.strerror or str(error)
    return str(error)
