"""What the record is told of a charge: a memo of what stays the same, and the rest by position."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from kvota.model.event import Outcome
from kvota.model.quota_type import Algorithm, QuotaType

# Packed rows name an outcome by its place here.
OUTCOMES: tuple[Outcome, ...] = (Outcome.ADMITTED, Outcome.THROTTLED, Outcome.REJECTED)
CODE_OF_OUTCOME: Mapping[Outcome, int] = MappingProxyType(
    {outcome: code for code, outcome in enumerate(OUTCOMES)}
)
# Plain names for hot paths and compiled kernels.
ADMITTED, THROTTLED, REJECTED = range(len(OUTCOMES))


def outcome_of(throttle_ms: int) -> int:
    """The code of a charge that was counted; a throttle of 0 or below holds nobody back."""
    return THROTTLED if throttle_ms > 0 else ADMITTED


# upstream_throttle_ms when no answer came (null in the table).
NO_ANSWER = -1


class ChargeMemo:
    """The columns of an event that do not change from charge to charge.

    ``generation`` and ``index`` belong to the sink: they say in which of its batches this memo is
    already listed and where. ``counted_as`` belongs to whoever sums rows up, on another thread: where
    those of this memo go. Not frozen for that reason; every other field never changes.
    """

    __slots__ = (
        "algorithm",
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "counted_as",
        "enforced",
        "generation",
        "index",
        "limit",
        "node_id",
        "owed_ms",
        "producer_id",
        "quota_type",
        "sample_ms",
        "samples",
        "tags",
        "user",
    )

    def __init__(  # noqa: PLR0913  (one argument per column)
        self,
        *,
        node_id: int,
        quota_type: QuotaType,
        connection: int,
        user: str,
        client_id: str,
        tags: str,
        api_key: int,
        api_version: int,
        limit: float | None,
        samples: int,
        sample_ms: int,
        algorithm: Algorithm,
        enforced: bool,
        owed_ms: int | None = None,
        producer_id: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.quota_type = quota_type
        self.connection = connection
        self.user = user
        self.client_id = client_id
        self.tags = tags
        self.api_key = api_key
        self.api_version = api_version
        self.limit = limit
        self.samples = samples
        self.sample_ms = sample_ms
        self.algorithm = algorithm
        self.enforced = enforced
        self.owed_ms = owed_ms
        self.producer_id = producer_id
        self.generation = -1
        self.index = -1
        self.counted_as: object = None

    def counted_by(
        self, limit: float | None, samples: int, sample_ms: int, algorithm: Algorithm, /
    ) -> "ChargeMemo":
        """The same client's on the same counter, which counts so now; cheap, for each connection needs one."""
        memo = ChargeMemo.__new__(ChargeMemo)
        memo.limit = limit
        memo.samples = samples
        memo.sample_ms = sample_ms
        memo.algorithm = algorithm
        memo.node_id = self.node_id
        memo.quota_type = self.quota_type
        memo.connection = self.connection
        memo.user = self.user
        memo.client_id = self.client_id
        memo.tags = self.tags
        memo.api_key = self.api_key
        memo.api_version = self.api_version
        memo.enforced = self.enforced
        memo.owed_ms = self.owed_ms
        memo.producer_id = self.producer_id
        memo.generation = memo.index = -1
        memo.counted_as = self.counted_as
        return memo


class DecisionSink(Protocol):
    """Where decisions go: the recorder, or nothing. Called on the hot path: positional, no keywords."""

    def next_seq(self) -> int:
        """The next sequence number of this run; taken at the decision."""
        ...

    def append(  # noqa: PLR0913, PLR0917  (one argument per column; keywords cost time)
        self,
        memo: ChargeMemo,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_throttle_ms: int,
        outcome: int,
        /,
    ) -> None:
        """Take one row; never blocks and never raises: what does not fit is dropped and counted."""
        ...
