"""Gathers the topic mutations of ``mutation_requests`` and ``mutation_answers``."""

from kvota.wire.mutation_answers import (
    MutationAnswer,
    Refusal,
    TopicResult,
    answer,
    answer_in_steps,
    merge,
    merge_in_steps,
    scan_answer,
    scan_answer_in_steps,
)
from kvota.wire.mutation_requests import (
    TOPICS_MAX,
    MutationRequest,
    TopicAsk,
    announced_topics,
    scan_request,
    scan_request_in_steps,
    subset,
)

__all__ = [
    "TOPICS_MAX",
    "MutationAnswer",
    "MutationRequest",
    "Refusal",
    "TopicAsk",
    "TopicResult",
    "announced_topics",
    "answer",
    "answer_in_steps",
    "merge",
    "merge_in_steps",
    "scan_answer",
    "scan_answer_in_steps",
    "scan_request",
    "scan_request_in_steps",
    "subset",
]
