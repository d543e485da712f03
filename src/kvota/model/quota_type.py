"""The kinds of quota."""

from enum import StrEnum


class QuotaType(StrEnum):
    """What a quota limits; the names are Kafka's ``ClientQuotaType`` plus KIP-936's."""

    PRODUCE = "PRODUCE"  # bytes/s, per broker
    FETCH = "FETCH"  # bytes/s, per broker
    REQUEST = "REQUEST"  # percent of one thread, per broker
    CONTROLLER_MUTATION = "CONTROLLER_MUTATION"  # partitions/s, per cluster
    PRODUCER_ID = "PRODUCER_ID"  # new producer ids/s, per cluster
