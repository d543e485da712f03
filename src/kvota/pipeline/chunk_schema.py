"""A chunk: some rows of one counter in order, as one row of a table.

``first`` and ``last`` are the places of its first and last row in the counter's order: seq where
counters are as recorded, ts_us where they are made anew. ``payload`` holds the columns of its rows one
after the other (``kernels.packing``); a column that stays the same takes nine bytes, others mostly one
to four bytes a row. So a charge moves through Spark in about a dozen bytes instead of 54, and Spark
moves one row per counter and file instead of one per charge.

A job that asks only what was used in each second sends sums in place of charges: a row of a payload is then a *part*
of a second, what some charges of a counter in one second come to (``SUMS``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from kvota.model.event import Outcome
from kvota.model.quota_type import Algorithm

# Charges share counters as they did in the gateway, or anew per user, client id or both, or per recorded tags: these
# are the gateway's counters, those of all its runs and of all gateways together.
By = Literal["counter", "user", "client", "user-client", "tags"]

COUNTER_COLUMNS = ("gateway", "run_id", "node_id", "quota_type", "tags", "enforcing")

# What ``enforcing`` says of all rows of a counter: those of shadow mode and others may be kept apart.
SHADOW_ROWS, ENFORCED_ROWS, ALL_ROWS = 0, 1, -1

CHUNK = pa.schema(
    [
        ("gateway", pa.string()),
        ("run_id", pa.string()),
        ("node_id", pa.int32()),
        ("quota_type", pa.string()),
        ("tags", pa.string()),
        ("enforcing", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int32()),
        ("payload", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns in a payload, in this order: whole numbers, then floating ones."""

    ints: tuple[str, ...]
    doubles: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all of them."""
        return (*self.ints, *self.doubles)


INTS = ("ts_us", "seq", "run", "samples", "sample_ms", "marks", "throttle_ms", "upstream_ms")
DOUBLES = ("value", "limit")
CHARGES = Layout(INTS, DOUBLES)

# Of parts of seconds, in the order that ``kernels.second_sums`` numbers them in: the first three, ``marks`` and ``limit`` are those of the part's last charge, but for what
# ``SECOND_MARKS`` says of all. ``whole`` is the sum of values that are whole, ``other`` one value that is not: each of
# these is a part of its own, so that no sum depends on how a record was cut. ``largest`` is the largest limit that is
# the counter's own, infinite where it had none. The rest is counted, summed or, for ``held_ms``, the longest.
SUMS = Layout(
    (
        *("ts_us", "seq", "run", "marks", "charges", "events", "further", "throttled"),
        *("rejected", "told_ms", "held_ms", "whole"),
    ),
    ("other", "limit", "largest"),
)

# A chunk is cut where it has so many rows, so that what a task holds of one counter stays bounded.
CHUNK_ROWS_MAX = 131_072

# A number that a file lacks; no real one is equal to it.
NO_NUMBER = -(2**31)

# What a row of producer ids does not tell: what its counter owed, which id it is of.
NOT_TOLD = -(2**62)

# Columns of events that share one of ``INTS``, as no job looks at two of them, and what stands where they lack.
SHARED_INT = "upstream_ms"
SHARING: Mapping[str, int] = MappingProxyType(
    {"upstream_throttle_ms": 0, "owed_ms": NOT_TOLD, "producer_id": NOT_TOLD}
)

# What ``marks`` says of a row, bit by bit.
OUTCOME_MASK = 3  # the place in ``decision_sink.OUTCOMES``; 3: none of them
ENFORCED = 4
TOKEN_BUCKET = 8
UNKNOWN_ALGORITHM = 16
STRICT = 32
COMPLETE = 64  # the run's first rows are in the record
LIMIT_BINDS = 128  # the limit is of the counter made anew: nobody else is charged on it
OTHER_TAGS = 256  # charged on a counter of other tags than Kafka's, as those of a group
CENSORED = 512  # held back, so that more may have been wanted; of parts of seconds only

# What ``marks`` of a part says if it is so of any of its charges.
SECOND_MARKS = ENFORCED | OTHER_TAGS | CENSORED

UNKNOWN_OUTCOME = 3


def outcome_code(text: str | None) -> int:
    """Return the bits of ``marks`` for an outcome as recorded."""
    for code, outcome in enumerate(Outcome):
        if outcome == text:
            return code
    return UNKNOWN_OUTCOME


def algorithm_mark(text: str | None) -> int:
    """Return the bits of ``marks`` for an algorithm as recorded."""
    if text == Algorithm.SAMPLED_RATE:
        return 0
    return TOKEN_BUCKET if text == Algorithm.TOKEN_BUCKET else UNKNOWN_ALGORITHM
