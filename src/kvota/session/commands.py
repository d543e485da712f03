"""What a connection asks of its driver, besides forwarding the bytes it returns.

Plain tuples ``(code, argument)`` in a list: building one costs a tenth of a dataclass, and the driver
only looks when the list is not empty.
"""

from enum import IntEnum

Command = tuple[int, object]


class Do(IntEnum):
    """The codes."""

    MUTE = 1  # int: throttle_ms from now on (0: go on with the old deadline)
    SEND_CLIENT = 2  # bytes: an answer of ours, due now
    SEND_UPSTREAM = 3  # bytes: a request whose turn has come
    RESUME = 4  # int: a reason to stall that is over; the client's held bytes may go on
    WARN = 5  # str: a line for the log
