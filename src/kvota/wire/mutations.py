"""Gathers the topic mutations of ``mutation_requests`` and ``mutation_answers``."""

from kvota.wire.mutation_answers import (
    MutationAnswer,
    Refusal,
    TopicResult,
    answer,
    merge,
    scan_answer,
)
from kvota.wire.mutation_requests import (
    TOPICS_MAX,
    MutationRequest,
    TopicAsk,
    scan_request,
    subset,
)

__all__ = [
    "TOPICS_MAX",
    "MutationAnswer",
    "MutationRequest",
    "Refusal",
    "TopicAsk",
    "TopicResult",
    "answer",
    "merge",
    "scan_answer",
    "scan_request",
    "subset",
]
