"""Kafka's error codes that the gateway says or looks for."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Number and name as in Kafka's protocol; other numbers pass through as they are."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_VERSION = 35
    INVALID_PARTITIONS = 37
    POLICY_VIOLATION = 44
    THROTTLING_QUOTA_EXCEEDED = 89
