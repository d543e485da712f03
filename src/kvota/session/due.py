"""What is due from the broker, in order.

Brokers answer in request order, so an answer belongs to the oldest entry. Entries are plain tuples
whose first two items are (correlation id, code); the rest depends on the code.
"""

from enum import IntEnum
from typing import Any


class Due(IntEnum):
    """Codes of entries; the hot path compares them as plain ints."""

    PASS = 0  # (…, route): forwarded untouched
    PRODUCE = 1  # (…, route, memo, seq, ts_us, value, throttle_ms): charged once, the usual Produce
    FETCH = 2  # (…, route, client id): charged when the answer's head is here
    EXCHANGE = 3  # (…, exchange): the answer is read whole and given to the exchange
    CHARGED = 4  # (…, route, charges, in part): a Produce charged on further quotas, too
    LOCAL = 5  # (…, bytes): an answer of the gateway's own, waiting for its turn
    TOKEN = 6  # (0, …, exchange): the answer to a login token without Kafka's header
    SHARE_FETCH = 7  # (…, route, client id, asks for, is refused): as FETCH, and always delivered


# One of the shapes above; a union of them would be told apart at each use, and the code does that.
Entry = Any  # type: ignore[explicit-any]
