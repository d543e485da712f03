"""What is due from the broker, in order.

Brokers answer in request order, so an answer belongs to the oldest entry. Entries are plain tuples
whose first two items are (correlation id, kind); the rest depends on the kind.
"""

from enum import IntEnum


class Due(IntEnum):
    """Kinds of entries; the hot path compares them as plain ints."""

    PASS = 0  # forward untouched
    PRODUCE = 1  # (…, route, memo, seq, ts_us, value, throttle_ms)
    FETCH = 2  # (…, route, client id)
    REWRITE = 3  # (…, key, version): brokers' addresses
    VERSIONS = 4  # (…, version)
    SASL_HANDSHAKE = 5  # (…, version)
    SASL_AUTHENTICATE = 6  # (…, version, login)
    SASL_RAW = 7  # (…, login): a token without Kafka's header
    MUTATION = 8  # (…, admission)
    QUESTION = (
        9  # (…, admission, the mutation's correlation id): our own; its answer is not forwarded
    )
    LOCAL = 10  # (…, bytes): our own answer, waiting for its turn
