"""Kafka's error codes that the gateway says or looks for."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Number and name as in Kafka's protocol; other numbers pass through as they are."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    REBOOTSTRAP_REQUIRED = 129


def error_name(code: int) -> str:
    """For messages, e.g. ``THROTTLING_QUOTA_EXCEEDED (89)``, ``error 135``.

    >>> error_name(89), error_name(135)
    ('THROTTLING_QUOTA_EXCEEDED (89)', 'error 135')
    """
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error {code}"
