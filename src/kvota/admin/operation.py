"""What is asked for several things at once, carried out until each has its result or time is up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, NamedTuple

from kvota.admin.asking import (
    AnswerLostError,
    Asker,
    Deadline,
    NotInTimeError,
    NotSentError,
    now_s,
    throttle_time_ms,
)
from kvota.admin.errors import ApiTimeoutError, OutcomeUnknownError, ThrottlingQuotaExceededError
from kvota.admin.results import K, Results, V
from kvota.client import ANY, Answer, BrokerError, Destination, Fields
from kvota.model.errors import KvotaError
from kvota.wire.error_code import ErrorCode


class Outcome(NamedTuple, Generic[K, V]):
    """What a broker says of one; ``value`` counts only where ``error_code`` is 0."""

    key: K
    error_code: int
    message: str | None
    value: V


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[K, V]):
    """One API, for things of one kind.

    Attributes:
        api_key: of the API.
        what: of one of them, for people; e.g. ``topic "a" cannot be created``.
        content: the request's fields for some of them, by version and the milliseconds there are.
        outcomes: what an answer says of each.
        read: reads an answer, by its version, where it is not read as every other.
        to: whom to ask.
        version_max: of the API, where newer ones say it in another way.
        changes: whether something in the cluster is different afterwards.
        is_repeatable: whether it may be sent again after an answer was lost.
        is_asked_there_again: whether the same one is asked again who could not be asked, or whose answer was lost;
            else that is the result: a ``NotSentError`` or an ``AnswerLostError``.
        doubtful: codes that may come because the try before, whose answer was lost, was carried out.
        retriable: codes after which it is tried again; nothing was carried out then.
    """

    api_key: int
    what: Callable[[K], str]
    content: Callable[[int, Sequence[K], int], Fields | bytes]
    outcomes: Callable[[Answer], Iterable[Outcome[K, V]]]
    read: Callable[[int, bytes], Answer] | None = None
    to: Destination = ANY
    version_max: int | None = None
    changes: bool = False
    is_repeatable: bool = True
    is_asked_there_again: bool = True
    doubtful: frozenset[int] = frozenset()
    retriable: frozenset[int] = frozenset({ErrorCode.NOT_CONTROLLER})


async def carry_out(
    operation: Operation[K, V],
    keys: Iterable[K],
    asker: Asker,
    deadline: Deadline,
    *,
    retry_on_quota_violation: bool = False,
) -> Results[K, V]:
    """Ask until each has its result, or until the deadline.

    Raises:
        UsageError: the request cannot be said to these brokers; nothing was sent.
        BrokerError: the login is refused; nothing was sent.
    """
    tries = _Tries(operation, keys, asker, deadline, retries_throttled=retry_on_quota_violation)
    return await tries.run()


class _Throttled(NamedTuple):
    until_s: float
    message: str | None


class _Tries(Generic[K, V]):
    """All tries of one call."""

    def __init__(
        self,
        operation: Operation[K, V],
        keys: Iterable[K],
        asker: Asker,
        deadline: Deadline,
        *,
        retries_throttled: bool,
    ) -> None:
        self._operation = operation
        self._asker = asker
        self._deadline = deadline
        self._retries_throttled = retries_throttled
        self._values: dict[K, V] = {}
        self._errors: dict[K, KvotaError] = {}
        self._order = list(keys)
        self._waiting = dict.fromkeys(self._order)
        # Of those that wait: an answer was lost, so each later refusal leaves a doubt.
        self._lost: set[K] = set()
        self._throttled: dict[K, _Throttled] = {}
        self._failures = 0
        self._last_error = ""

    async def run(self) -> Results[K, V]:
        """Try again and again."""
        while self._waiting:
            wait_s = await self._try()
            if self._waiting and not await self._deadline.sleep(wait_s):
                self._give_up()
        values, errors = self._values, self._errors
        return Results(
            {key: values[key] for key in self._order if key in values},
            {key: errors[key] for key in self._order if key in errors},
        )

    async def _try(self) -> float:
        """Ask once for all that wait; returns how long to wait before the next try."""
        operation, waiting = self._operation, tuple(self._waiting)
        try:
            answer = await self._asker.ask(
                operation.api_key,
                lambda version, left_ms: operation.content(version, waiting, left_ms),
                to=operation.to,
                deadline=self._deadline,
                read=operation.read,
                version_max=operation.version_max,
            )
        except (NotSentError, AnswerLostError) as error:
            if not operation.is_asked_there_again:
                for key in waiting:
                    self._fail(key, error)
                return 0
            if isinstance(error, NotSentError):
                return await self._failed(error)
            if operation.changes:
                self._lost.update(waiting)
            if operation.changes and not operation.is_repeatable:
                self._give_up(str(error))
                return 0
            return await self._failed(error)
        except KvotaError as error:
            if len(waiting) == len(self._order) and not (self._lost or self._throttled):
                raise  # nothing has been done
            for key in waiting:
                self._fail(key, self._unknown(key, str(error)) if key in self._lost else error)
            return 0
        return await self._take(answer)

    async def _failed(self, error: KvotaError) -> float:
        # The deadline may cut off any try: why the one before it failed says more.
        before = isinstance(error, NotInTimeError) and self._last_error
        self._last_error = f"{error}; before that: {before}" if before else str(error)
        self._failures += 1
        await self._asker.look_again(self._deadline)
        return self._asker.patience.backoff_s(self._failures, self._asker.chance)

    async def _take(self, answer: Answer) -> float:
        """Take what an answer says of each."""
        throttle_ms = throttle_time_ms(answer)
        until_s = now_s() + throttle_ms / 1000
        not_named = dict(self._waiting)
        refused: KvotaError | None = None
        for outcome in self._operation.outcomes(answer):
            key = outcome.key
            if key not in not_named:
                continue
            del not_named[key]
            if outcome.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                self._throttle(key, _Throttled(until_s, outcome.message), throttle_ms)
            elif outcome.error_code in self._operation.retriable:
                refused = self._error(outcome)
            elif outcome.error_code:
                self._fail(key, self._error(outcome))
            else:
                del self._waiting[key]
                self._values[key] = outcome.value
        for key in not_named:
            self._fail(key, self._unknown(key, "the broker's answer does not name it"))
        if refused is not None:
            backoff_s = await self._failed(refused)
            return max(backoff_s, until_s - now_s() if self._throttled else 0)
        if throttle_ms:
            self._failures = 0
            return until_s - now_s()
        # So little is missing that the wait was rounded to nothing.
        self._failures += 1
        return self._asker.patience.backoff_s(self._failures, self._asker.chance)

    def _throttle(self, key: K, throttled: _Throttled, throttle_ms: int) -> None:
        if self._retries_throttled:
            self._throttled[key] = throttled
            return
        what = self._operation.what(key)
        refused = ThrottlingQuotaExceededError(what, throttle_ms, throttled.message)
        # Only this try is known not to have been carried out.
        self._fail(key, self._unknown(key, str(refused)) if key in self._lost else refused)

    def _error(self, outcome: Outcome[K, V]) -> KvotaError:
        key, code = outcome.key, outcome.error_code
        error = BrokerError(self._operation.what(key), code, outcome.message)
        if not self._operation.changes:
            return error
        in_doubt = key in self._lost and code in self._operation.doubtful
        if in_doubt or code == ErrorCode.REQUEST_TIMED_OUT:
            return self._unknown(key, f"{error.name} ({code}) {outcome.message or ''}".rstrip())
        return error

    def _unknown(self, key: K, why: str) -> KvotaError:
        what = self._operation.what(key)
        if not self._operation.changes:
            return ApiTimeoutError(f"{what}: {why}")
        earlier = "an earlier try was not answered; then: " if key in self._lost else ""
        return OutcomeUnknownError(
            f"{what}: unknown; it may have been carried out ({earlier}{why})"
        )

    def _fail(self, key: K, error: KvotaError) -> None:
        del self._waiting[key]
        self._errors[key] = error

    def _give_up(self, why: str | None = None) -> None:
        """Say of each that still waits what is known of it."""
        within = f"within {self._deadline.timeout_ms / 1000:g} s"
        for key in tuple(self._waiting):
            throttled = self._throttled.get(key)
            if key in self._lost:
                said = why or f"no answer {within}; last: {self._last_error}"
                self._fail(key, self._unknown(key, said))
            elif throttled is not None:
                left_ms = max(0, ceil((throttled.until_s - now_s()) * 1000))
                what = f"{self._operation.what(key)} {within}"
                self._fail(key, ThrottlingQuotaExceededError(what, left_ms, throttled.message))
            else:
                what = self._operation.what(key)
                self._fail(key, ApiTimeoutError(f"{what} {within}: {self._last_error}"))
