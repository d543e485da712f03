"""What a connection asks of its driver, besides forwarding the bytes it returns.

Plain tuples ``(code, argument)`` in a list: building one costs a tenth of a dataclass, and the driver
only looks when the list is not empty. Reading, and the one timer, follow from ``session.pausing``.
"""

from enum import IntEnum

Command = tuple[int, object]


class Do(IntEnum):
    """The codes."""

    SEND_CLIENT = 1  # bytes: an answer of the gateway's own, due now
    SEND_UPSTREAM = 2  # bytes: a request whose turn has come
    RESUME = 3  # int: a reason to pause that is over; the client's buffered bytes may go on
    WARN = 4  # str or LoginRefusal: a line for the log
    ASK = 5  # (token, question): ask outside; the result goes to ``Connection.resolved``
    CLOSE = 6  # str: why; a request has waited for its turn for as long as its client may wait
    FIND_NODE = 7  # which broker has been reached; the result goes to ``Connection.located``
    STEP = 8  # None: work is not done; ``Connection.step`` is due when others have had their turn
    READ_UPSTREAM = (
        9  # bool: read the broker on, or leave its bytes in the socket: no memory for an answer
    )
    YIELD = 10  # int: a reason to pause; this connection has had its share, others come first
    BREATHE = 11  # None: ``Connection.read_on`` is due when others have had their turn, the broker is not read
    ERRAND = 12  # ``session.outside.Errand``: run it; the result goes to ``Connection.told``
