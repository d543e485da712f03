"""What has become of each topic: in a line, for programs, and as an exit code."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from kvota.admin import (
    BrokerError,
    KvotaError,
    OutcomeUnknownError,
    ThrottlingQuotaExceededError,
    UsageError,
)
from kvota.app.cli.exit_codes import DONE, NEGATIVE, UNREACHABLE
from kvota.model.units import format_duration_ms

_WORDS = {
    "exists": "is there already",
    "absent": "is not there",
    "valid": "the cluster would take it",
}


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One topic's result.

    Attributes:
        topic: its name.
        result: ``created``, ``altered``, ``deleted``, ``valid``, ``exists``, ``absent``; or what is wrong: ``throttled``,
            ``refused``, ``not_done`` (certainly), ``unknown`` (whether it was carried out).
        facts: more, by the keys of ``--output json``.
        error: what is wrong.
    """

    topic: str
    result: str
    facts: Mapping[str, object] = field(default_factory=dict)
    error: KvotaError | None = None

    @classmethod
    def of_error(cls, topic: str, error: KvotaError) -> Self:
        """The result of a topic with which something is wrong.

        Raises:
            UsageError: these brokers cannot be asked for this.
        """
        if isinstance(error, UsageError):
            raise error
        if isinstance(error, BrokerError):
            facts = {"error": error.name, "error_code": error.code, "message": error.message}
            if isinstance(error, ThrottlingQuotaExceededError):
                facts["throttle_time_ms"] = error.throttle_time_ms
                return cls(topic, "throttled", facts, error)
            return cls(topic, "refused", facts, error)
        result = "unknown" if isinstance(error, OutcomeUnknownError) else "not_done"
        return cls(topic, result, {"message": str(error)}, error)

    def content(self) -> Mapping[str, object]:
        """For programs."""
        return {"topic": self.topic, "result": self.result, **self.facts}

    def line(self) -> str:
        """For people."""
        if self.error is not None:
            return str(self.error)
        said = _WORDS.get(self.result, self.result)
        shown = {
            "partitions": self.facts.get("partitions"),
            "replication factor": self.facts.get("replication_factor"),
        }
        facts = ", ".join(f"{name} {value}" for name, value in shown.items() if value is not None)
        return f"{self.topic}: {said}" + (f"; {facts}" if facts else "")


def exit_code_of(rows: Sequence[TopicResult]) -> int:
    """One code for all: what is not known weighs more than what was refused."""
    results = {row.result for row in rows if row.error is not None}
    if results & {"unknown", "not_done"}:
        return UNREACHABLE
    return NEGATIVE if results else DONE


def say_of_throttled(rows: Sequence[TopicResult], *, has_waited: bool) -> None:
    """Say on stderr how long to wait, where the quota on topic mutations has refused some."""
    throttled = [row.error for row in rows if isinstance(row.error, ThrottlingQuotaExceededError)]
    if not throttled:
        return
    wait = format_duration_ms(max(each.throttle_time_ms for each in throttled))
    remedy = "with a longer --timeout" if has_waited else "with --wait, which does so by itself"
    print(
        f"kvota: {len(throttled)} of {len(rows)} topics: the quota on topic mutations is spent; "
        f"try them again in {wait}, or {remedy}",
        file=sys.stderr,
    )
