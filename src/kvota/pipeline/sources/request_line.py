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
_MUTATIONS = frozenset({_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS})
# Brokers and controllers among themselves.
_OF_CLUSTER = frozenset(
    {4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 83, 84, 85, 86, 87}
)
_CONTROLLER_LISTENER = "CONTROLLER"
_NO_ERROR, _QUOTA_EXCEEDED = 0, 89
_USER_KIND = "User:"
# Request time is a percentage of a thread's second.
PERCENT_PER_MS = 0.1


class Skipped(StrEnum):
    """Why a line that can be read charges nothing; the text says it of several lines."""

    FORWARDED = "requests that a controller logs a second time"
    CLUSTER = "requests of brokers and controllers among themselves"
    UNKNOWN_PARTITIONS = "changes of topics of which the log does not say how many partitions"


class Who(NamedTuple):
    """Whose request it was, and of what kind.

    Attributes:
        api_key: of the request.
        api_version: of the request.
        user: without ``User:``.
        client_id: empty where it has none.
        connection: as the broker names it.
    """

    api_key: int
    api_version: int
    user: str
    client_id: str
    connection: str


class Charge(NamedTuple):
    """What a request is charged on one quota.

    Attributes:
        quota_type: whose quota.
        value: in the unit of the quota type.
        throttle_ms: that the client was told.
        outcome: ``decision_sink.ADMITTED``, ``THROTTLED`` or ``REJECTED``.
        producer_id: that was given out.
    """

    quota_type: QuotaType
    value: float
    throttle_ms: int
    outcome: int
    producer_id: int | None = None


class Request(NamedTuple):
    """A completed request.

    Attributes:
        charges: none where it is left out.
        who: has sent it; None where it is left out.
        answered_ms: how long before its line was written it was charged.
        skipped: why it, or a part of it, is left out; None: nothing is.
        forwarded: it came through a broker, which logs it, too.
        name: of a change of topics, the same in both lines of one that was forwarded; else empty.
    """

    charges: tuple[Charge, ...]
    who: Who | None
    answered_ms: float
    skipped: Skipped | None = None
    forwarded: bool = False
    name: str = ""


def request_of(line: _Json) -> Request:
    """Return what a line's JSON says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what Kafka writes.
    """
    header, request, response = line["requestHeader"], line["request"], line["response"]
    api_key, client_id = header["requestApiKey"], header["clientId"]
    answered_ms = line["sendTimeMs"] + line["responseQueueTimeMs"]
    forwarded = line.get("isForwarded", False)
    if forwarded and api_key not in _MUTATIONS:
        return Request((), None, answered_ms, Skipped.FORWARDED)
    is_internal = line.get("listener") == _CONTROLLER_LISTENER and not forwarded
    if is_internal or api_key in _OF_CLUSTER or (api_key == _FETCH and _is_of_follower(request)):
        return Request((), None, answered_ms, Skipped.CLUSTER)
    version, user = header["requestApiVersion"], line["principal"].removeprefix(_USER_KIND)
    who = Who(api_key, version, user, client_id or "", line["connection"])
    throttle_ms = line["throttleTimeMs"]
    if type(response) is dict:  # a Produce that wants no answer has none
        throttle_ms = max(throttle_ms, response.get("throttleTimeMs", 0))
    if api_key in _MUTATIONS:
        return _mutated(line, who, throttle_ms, answered_ms)
    if api_key == _PRODUCE:
        value = produce_bytes(version, client_id, request)
        charge = Charge(QuotaType.PRODUCE, value, throttle_ms, outcome_of(throttle_ms))
        own = (charge,) if request["acks"] == 0 else (charge, _request_time(line, 0))
    elif api_key == _FETCH:
        own = (_fetched(version, response, throttle_ms), _request_time(line, 0))
    else:
        own = (_request_time(line, throttle_ms),)
        if api_key == _INIT_PRODUCER_ID and _is_new_id(response):
            ids = Charge(QuotaType.PRODUCER_ID, 1, 0, ADMITTED, response["producerId"])
            own = (*own, ids)
    return Request(own, who, answered_ms)


def charges_time_only(api_key: int) -> bool:
    """Return whether a client's requests of an API are charged on nothing but their time.

    >>> charges_time_only(12), charges_time_only(19)
    (True, False)
    """
    charged = {_PRODUCE, _FETCH, _INIT_PRODUCER_ID, *_MUTATIONS}
    return api_key not in charged and api_key not in _OF_CLUSTER


def _is_of_follower(request: _Json) -> bool:
    state = request.get("replicaState") or {}
    replica_ids: tuple[int, int] = (request.get("replicaId", -1), state.get("replicaId", -1))
    return max(replica_ids) >= 0


def _request_time(line: _Json, throttle_ms: int) -> Charge:
    percent = line["localTimeMs"] * PERCENT_PER_MS
    return Charge(QuotaType.REQUEST, percent, throttle_ms, outcome_of(throttle_ms))


def _fetched(version: int, response: _Json, throttle_ms: int) -> Charge:
    """Return the charge of a Fetch: one that is throttled was charged, given back, and answered with nothing."""
    if throttle_ms > 0 and not response["responses"]:
        return Charge(QuotaType.FETCH, 0, throttle_ms, REJECTED)
    value = fetch_bytes(version, response)
    return Charge(QuotaType.FETCH, value, throttle_ms, outcome_of(throttle_ms))


def _mutated(line: _Json, who: Who, throttle_ms: int, answered_ms: float) -> Request:
    """Return the charges of a change of topics: one for what was done, one for what was refused."""
    forwarded = line.get("isForwarded", False)
    correlation_id = line["requestHeader"]["correlationId"]
    name = f"{line['principal']}\0{who.client_id}\0{correlation_id}\0{who.api_key}"
    charges = [] if forwarded else [_request_time(line, 0)]
    counts = _partitions(line["request"], line["response"], who.api_key)
    if counts is None:
        skipped = Skipped.UNKNOWN_PARTITIONS
        return Request(tuple(charges), who, answered_ms, skipped, forwarded)
    done, refused = counts
    if done:
        told_ms = 0 if refused else throttle_ms
        charge = Charge(QuotaType.CONTROLLER_MUTATION, done, told_ms, outcome_of(told_ms))
        charges.append(charge)
    if refused:
        charges.append(Charge(QuotaType.CONTROLLER_MUTATION, refused, throttle_ms, REJECTED))
    return Request(tuple(charges), who, answered_ms, None, forwarded, name)


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
