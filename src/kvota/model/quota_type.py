"""The kinds of quota, and all that differs between them: one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType


class QuotaType(StrEnum):
    """What a quota limits; the names are Kafka's ``ClientQuotaType`` plus KIP-936's."""

    PRODUCE = "PRODUCE"
    FETCH = "FETCH"
    REQUEST = "REQUEST"
    CONTROLLER_MUTATION = "CONTROLLER_MUTATION"
    PRODUCER_ID = "PRODUCER_ID"

    # The same number as Enum's own, without a call of Python: it is part of the key of every counter.
    __hash__ = str.__hash__


class Unit(StrEnum):
    """What a limit is counted in."""

    BYTES_PER_S = "bytes/s"
    PERCENT = "percent"  # of one thread
    PARTITIONS_PER_S = "partitions/s"
    IDS_PER_S = "ids/s"


class Algorithm(StrEnum):
    """How a counter holds its charges against its limit; the names stand in records and options."""

    SAMPLED_RATE = "sampled_rate"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105  (no password)


class Scope(Enum):
    """How far one counter reaches."""

    BROKER = "broker"  # each broker counts for itself
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFacts:
    """All that differs between quota types.

    Attributes:
        config_key: Kafka's name of the configured limit; None while the type cannot be configured.
        unit: of limits.
        value_unit: of what is charged, as people read it.
        algorithms: what a counter can be; the first is the default.
        scope: whether each broker has a counter of its own.
        window_properties: Kafka's property names of the number of samples and of their length in s.
        floor: the smallest limit that is still enforced as a rate; below it nothing passes freely.
    """

    config_key: str | None
    unit: Unit
    value_unit: str
    algorithms: tuple[Algorithm, ...]
    scope: Scope
    window_properties: tuple[str, str]
    floor: float


_BANDWIDTH_WINDOW = ("quota.window.num", "quota.window.size.seconds")
# Kafka's keys of byte rates are whole numbers from 1 on.
_BYTE_RATE_FLOOR = 1.0
_RATE_FLOOR = 1e-6

# Sources: AlterClientQuotas and QuotaConfig of Kafka 4.3, KIP-257, KIP-599, KIP-936.
FACTS: Mapping[QuotaType, QuotaFacts] = MappingProxyType(
    {
        QuotaType.PRODUCE: QuotaFacts(
            config_key="producer_byte_rate",
            unit=Unit.BYTES_PER_S,
            value_unit="bytes",
            algorithms=(Algorithm.SAMPLED_RATE, Algorithm.TOKEN_BUCKET),
            scope=Scope.BROKER,
            window_properties=_BANDWIDTH_WINDOW,
            floor=_BYTE_RATE_FLOOR,
        ),
        QuotaType.FETCH: QuotaFacts(
            config_key="consumer_byte_rate",
            unit=Unit.BYTES_PER_S,
            value_unit="bytes",
            algorithms=(Algorithm.SAMPLED_RATE, Algorithm.TOKEN_BUCKET),
            scope=Scope.BROKER,
            window_properties=_BANDWIDTH_WINDOW,
            floor=_BYTE_RATE_FLOOR,
        ),
        QuotaType.REQUEST: QuotaFacts(
            config_key="request_percentage",
            unit=Unit.PERCENT,
            value_unit="percent-seconds",
            algorithms=(Algorithm.SAMPLED_RATE,),
            scope=Scope.CLUSTER,  # of the gateway's one thread
            window_properties=_BANDWIDTH_WINDOW,
            floor=0.0,  # no throttle is so long that it would be narrowed
        ),
        QuotaType.CONTROLLER_MUTATION: QuotaFacts(
            config_key="controller_mutation_rate",
            unit=Unit.PARTITIONS_PER_S,
            value_unit="partitions",
            algorithms=(Algorithm.TOKEN_BUCKET,),
            scope=Scope.CLUSTER,
            window_properties=(
                "controller.quota.window.num",
                "controller.quota.window.size.seconds",
            ),
            floor=_RATE_FLOOR,
        ),
        QuotaType.PRODUCER_ID: QuotaFacts(
            config_key=None,
            unit=Unit.IDS_PER_S,
            value_unit="producer ids",
            algorithms=(Algorithm.TOKEN_BUCKET,),
            scope=Scope.CLUSTER,
            window_properties=(
                "producer.id.quota.window.num",
                "producer.id.quota.window.size.seconds",
            ),
            floor=_RATE_FLOOR,
        ),
    }
)

# ``node_id`` of counters that hold for the whole cluster.
CLUSTER_NODE_ID = -1

# Kafka's key of a configured limit → its quota type.
TYPE_OF_KEY: Mapping[str, QuotaType] = MappingProxyType(
    {facts.config_key: of_type for of_type, facts in FACTS.items() if facts.config_key is not None}
)

# The types that can be configured, and so enforced.
CONFIGURABLE_TYPES = tuple(TYPE_OF_KEY.values())

# Those of them whose limits are byte rates.
BYTE_RATE_TYPES = tuple(
    quota_type for quota_type in CONFIGURABLE_TYPES if FACTS[quota_type].unit is Unit.BYTES_PER_S
)


def types_counted_by(algorithm: Algorithm) -> tuple[QuotaType, ...]:
    """The configurable types whose default this algorithm is."""
    return tuple(
        of_type for of_type in CONFIGURABLE_TYPES if FACTS[of_type].algorithms[0] is algorithm
    )


def counter_node_id(quota_type: QuotaType, node_id: int) -> int:
    """The node id that a counter of this type has for a request to broker ``node_id``.

    >>> counter_node_id(QuotaType.PRODUCE, 3), counter_node_id(QuotaType.CONTROLLER_MUTATION, 3)
    (3, -1)
    """
    return node_id if FACTS[quota_type].scope is Scope.BROKER else CLUSTER_NODE_ID
