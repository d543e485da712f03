"""The decision event: one row per charge, and the one list its schemas are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

SCHEMA_VERSION = "3"
# What each version added. Before 2 each quota type was counted by the first of its own algorithms; before 3 rows of
# PRODUCER_ID did not say what they begin with, and cannot be replayed.
ADDED_COLUMNS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "1": frozenset(),
        "2": frozenset({"algorithm"}),
        SCHEMA_VERSION: frozenset({"owed_ms", "producer_id"}),
    }
)
READABLE_VERSIONS = tuple(ADDED_COLUMNS)

ColumnType = Literal["long", "int", "short", "double", "boolean", "string"]


class Outcome(StrEnum):
    """What was decided about one charge."""

    ADMITTED = "admitted"
    THROTTLED = "throttled"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the events table; ``type`` is Spark's name of the type."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = False


EVENT_COLUMNS: tuple[Column, ...] = (
    Column("ts_us", "long", "when the decision was made, Unix microseconds"),
    Column("seq", "long", "order of decisions within one gateway run; dense"),
    Column("gateway", "string", "name of the gateway that decided"),
    Column("run_id", "string", "one start of that gateway"),
    Column(
        "node_id", "int", "upstream broker; -1 for cluster-wide quota types, below -1: not known"
    ),
    Column("quota_type", "string", "PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, PRODUCER_ID"),
    Column("connection", "long", "client connection, unique within run_id"),
    Column("user", "string", "authenticated principal name, ANONYMOUS without"),
    Column("client_id", "string", "as the client stated it"),
    Column(
        "tags", "string", "the counter that was charged: sorted k=v, percent-encoded, joined by ','"
    ),
    Column("api_key", "short", "of the request"),
    Column("api_version", "short", "of the request"),
    Column(
        "value", "double", "bytes, percent-seconds, partitions, or new ids; negative: given back"
    ),
    Column("limit", "double", "limit in force, null: unlimited", nullable=True),
    Column(
        "samples",
        "short",
        "samples of the quota window in force; 0: no quota of this type existed, the charge was "
        "observed and moved no counter",
    ),
    Column(
        "sample_ms",
        "int",
        "length of one sample in force, 0 where samples is 0; the burst where bandwidth is counted by a "
        "token bucket, and the window of producer ids (samples is 1 then)",
    ),
    Column("algorithm", "string", "sampled_rate or token_bucket"),
    Column(
        "outcome",
        "string",
        "admitted, throttled, rejected (a rejected FETCH: charged and taken back, it waited for room; "
        "a rejected PRODUCE: uncharged, it had to wait for its turn)",
    ),
    Column("enforced", "boolean", "false in shadow mode"),
    Column("throttle_ms", "int", "as computed at ts_us // 1000, before any cap"),
    Column(
        "upstream_throttle_ms",
        "int",
        "what the broker itself answered; null: no answer came",
        nullable=True,
    ),
    Column(
        "owed_ms",
        "long",
        "what a PRODUCER_ID counter that begins with this row owed before it, below 0 what there was to spend; "
        "null: it goes on from the row before",
        nullable=True,
    ),
    Column(
        "producer_id",
        "long",
        "which new id this PRODUCER_ID row is of; null: of several, as many as value says",
        nullable=True,
    ),
)
