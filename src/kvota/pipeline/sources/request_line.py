"""One line of Kafka's request log becomes what it charges. Pure.

A broker whose logger ``kafka.request.logger`` is at DEBUG or TRACE writes a line for each completed request, as JSON
since Kafka 2.8. What is charged when, and what of it is in the line: ``docs/request-logs.md``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from kvota.model.decision_sink import ADMITTED, REJECTED, outcome_of
from kvota.model.quota_type import QuotaType
from kvota.pipeline.sources.frame_sizes import fetch_bytes, produce_bytes

_Json = Mapping[str, Any]

# In a line, between its head and its JSON; in those before Kafka 2.8 no JSON follows.
MARK = b"Completed request:"
OLD_MARK = b"Completed request:RequestHeader("

_PRODUCE, _FETCH, _CREATE_TOPICS, _DELETE_TOPICS, _INIT_PRODUCER_ID, _CREATE_PARTITIONS = (
    *(0, 1, 19, 20, 22, 37),
)
# Brokers and controllers among themselves.
_OF_CLUSTER = frozenset(
    {4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 83, 84, 85, 86, 87}
)
_CONTROLLER_LISTENER = "CONTROLLER"
_NO_ERROR, _QUOTA_EXCEEDED = 0, 89
_USER_KIND = "User:"
# Request time is a percentage of a thread's second.
_PERCENT_PER_MS = 0.1


class Skipped(StrEnum):
    """Why a line that can be read charges nothing; the text says it of several lines."""

    FORWARDED = "requests that a controller logs a second time"
    CLUSTER = "requests of brokers and controllers among themselves"
    UNKNOWN_PARTITIONS = "changes of topics of which the log does not say how many partitions"


class Charge(NamedTuple):
    """What a request is charged on one quota.

    Attributes:
        quota_type: whose quota.
        api_key: of the request.
        api_version: of the request.
        user: without ``User:``.
        client_id: empty where it has none.
        connection: as the broker names it.
        value: in the unit of the quota type.
        throttle_ms: that the client was told.
        outcome: ``decision_sink.ADMITTED``, ``THROTTLED`` or ``REJECTED``.
        producer_id: that was given out.
    """

    quota_type: QuotaType
    api_key: int
    api_version: int
    user: str
    client_id: str
    connection: str
    value: float
    throttle_ms: int
    outcome: int
    producer_id: int | None = None


class Request(NamedTuple):
    """A completed request.

    Attributes:
        charges: none where it is ``skipped``.
        skipped: why it is left out; None: it is not.
        answered_ms: how long before its line was written it was charged.
        is_mutation: it changes topics, so a forwarded one counts where no first line of it is found.
        forwarded: it came through a broker, which logs it, too.
        name: of a change of topics, the same in both lines of one that was forwarded.
    """

    charges: tuple[Charge, ...]
    skipped: Skipped | None
    answered_ms: float
    is_mutation: bool = False
    forwarded: bool = False
    name: str = ""


def request_of(line: _Json) -> Request:
    """Return what a line's JSON says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what Kafka writes.
    """
    header = line["requestHeader"]
    api_key = header["requestApiKey"]
    answered_ms = line["sendTimeMs"] + line["responseQueueTimeMs"]
    forwarded = bool(line.get("isForwarded"))
    is_mutation = api_key in {_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS}
    if forwarded and not is_mutation:
        return Request((), Skipped.FORWARDED, answered_ms)
    request = line["request"]
    if api_key in _OF_CLUSTER or (not forwarded and _is_of_cluster(line, api_key, request)):
        return Request((), Skipped.CLUSTER, answered_ms)
    principal: str = line["principal"]
    client_id: str | None = header["clientId"]
    user = principal.removeprefix(_USER_KIND)
    response = line["response"]
    who = (api_key, header["requestApiVersion"], user, client_id or "", line["connection"])
    throttle_ms = max(line["throttleTimeMs"], _throttle_in(response))
    if api_key == _PRODUCE:
        value = produce_bytes(who[1], client_id, request)
        charge = Charge(QuotaType.PRODUCE, *who, value, throttle_ms, outcome_of(throttle_ms))
        own = (charge,) if request["acks"] == 0 else (charge, _request_time(line, who, 0))
        return Request(own, None, answered_ms)
    if api_key == _FETCH:
        return Request(_fetched(line, who, response, throttle_ms), None, answered_ms)
    if is_mutation:
        return _mutated(line, who, throttle_ms, answered_ms)
    own = (_request_time(line, who, throttle_ms),)
    if api_key == _INIT_PRODUCER_ID and _is_new_id(response):
        ids = Charge(QuotaType.PRODUCER_ID, *who, 1, 0, ADMITTED, response["producerId"])
        own = (*own, ids)
    return Request(own, None, answered_ms)


_Who = tuple[int, int, str, str, str]


def _is_of_cluster(line: _Json, api_key: int, request: _Json) -> bool:
    if line.get("listener") == _CONTROLLER_LISTENER:
        return True
    if api_key != _FETCH:
        return False
    state = request.get("replicaState") or {}
    replica_ids: tuple[int, int] = (request.get("replicaId", -1), state.get("replicaId", -1))
    return max(replica_ids) >= 0


def _throttle_in(response: _Json | str) -> int:
    """Return the throttle that the answer has; a Produce that wants no answer has none."""
    if isinstance(response, str):
        return 0
    found: int = response.get("throttleTimeMs", 0)
    return found


def _request_time(line: _Json, who: _Who, throttle_ms: int) -> Charge:
    percent = line["localTimeMs"] * _PERCENT_PER_MS
    return Charge(QuotaType.REQUEST, *who, percent, throttle_ms, outcome_of(throttle_ms))


def _fetched(line: _Json, who: _Who, response: _Json, throttle_ms: int) -> tuple[Charge, ...]:
    """Return the charges of a Fetch: one that is throttled was charged, given back, and answered with nothing."""
    time = _request_time(line, who, 0)
    if throttle_ms > 0 and not response["responses"]:
        return Charge(QuotaType.FETCH, *who, 0, throttle_ms, REJECTED), time
    value = fetch_bytes(who[1], response)
    return Charge(QuotaType.FETCH, *who, value, throttle_ms, outcome_of(throttle_ms)), time


def _mutated(line: _Json, who: _Who, throttle_ms: int, answered_ms: float) -> Request:
    """Return the charges of a change of topics: one for what was done, one for what was refused."""
    name = f"{line['principal']}\0{who[3]}\0{line['requestHeader']['correlationId']}\0{who[0]}"
    forwarded = bool(line.get("isForwarded"))
    time = () if forwarded else (_request_time(line, who, 0),)
    counts = _partitions(line["request"], line["response"], who[0])
    if counts is None:
        return Request(
            time, Skipped.UNKNOWN_PARTITIONS, answered_ms, is_mutation=True, forwarded=forwarded
        )
    done, refused = counts
    found = []
    if done:
        outcome = outcome_of(0 if refused else throttle_ms)
        found.append(
            Charge(
                QuotaType.CONTROLLER_MUTATION, *who, done, 0 if refused else throttle_ms, outcome
            )
        )
    if refused:
        found.append(Charge(QuotaType.CONTROLLER_MUTATION, *who, refused, throttle_ms, REJECTED))
    return Request(
        (*found, *time), None, answered_ms, is_mutation=True, forwarded=forwarded, name=name
    )


def _partitions(request: _Json, response: _Json, api_key: int) -> tuple[int, int] | None:
    """Return how many partitions were created and how many were refused by a quota; None: nobody knows."""
    if api_key == _DELETE_TOPICS:
        return None
    if request.get("validateOnly"):
        return 0, 0
    answers = response["topics" if api_key == _CREATE_TOPICS else "results"]
    answered = {answer["name"]: answer for answer in answers}
    sums = {_NO_ERROR: 0, _QUOTA_EXCEEDED: 0}
    for topic in request["topics"]:
        answer = answered[topic["name"]]
        error = answer["errorCode"]
        if error not in sums:
            continue
        assignments = topic.get("assignments")
        if assignments:
            sums[error] += len(assignments)
        elif api_key == _CREATE_PARTITIONS:
            return None
        else:
            sums[error] += _count(topic["numPartitions"], answer.get("numPartitions", 1))
    return sums[_NO_ERROR], sums[_QUOTA_EXCEEDED]


def _count(wanted: int, got: int) -> int:
    """Return the partitions of a new topic; who wants -1 gets the cluster's default, which only the answer tells."""
    return wanted if wanted > 0 else max(got, 1)


def _is_new_id(response: _Json) -> bool:
    """Return whether an id was given out that nobody had before: it begins with epoch 0."""
    is_there = response["errorCode"] == _NO_ERROR and response["producerId"] >= 0
    return bool(is_there and response["producerEpoch"] == 0)
