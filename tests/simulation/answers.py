"""Checks of what a client got: one answer for each request, in order, and only changed where it must be."""

from collections import Counter
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from tests.simulation.asks import FETCHES, Ask
from tests.simulation.watch import Upward, Watch

from kvota.model.decision_sink import REJECTED
from kvota.model.quota_type import Algorithm
from kvota.session.answer_heads import BUFFERED_FETCH_BYTES_MAX
from kvota.session.settings import ConnectionSettings
from kvota.session.share_fetch_requests import SHARE_FETCH_WAIT_MS_MAX
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    decoded,
    topic_id,
)
from kvota.testing.scripted_broker import Reply, described, fetched, produced, shared
from kvota.testing.share_frames import SHARE_FETCH
from kvota.testing.stage import GATEWAY, NODE_PORT_BASE, Row
from kvota.wire import throttle_field
from kvota.wire.apis import ANSWERED_HERE

# With what the gateway refuses a topic itself.
_REFUSED = frozenset(
    {
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.policy_violation,
        ErrorCode.invalid_partitions,
    }
)
_RESULTS = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}
# From here on a Fetch names its session.
_SESSIONS_FROM = 7
_FACTOR_TOLD_MS_MAX = ConnectionSettings().factor_told_ms_max
# Node endpoints of three brokers, in a streamed answer.
_TAIL_BYTES_MAX = 150
_MADE_BY = {PRODUCE: produced, FETCH: fetched, SHARE_FETCH: shared}


def check_answers(
    watch: Watch,
    reply_of: dict[Upward, Reply],
    row_of: dict[Upward, tuple[Row, ...]],
    *,
    refusal: Any,
    time_ms: tuple[int, ...] = (),
) -> None:
    """Every request that has an answer got it, in its turn.

    Args:
        watch: the connection.
        reply_of: what the broker said to what went up.
        row_of: the rows of each Produce and Fetch.
        refusal: makes the answer to a Produce that a further quota has refused.
        time_ms: throttle times of REQUEST, one of which an answer may tell in place of a shorter one.
    """
    if b"inside" in watch.to_client:
        raise watch.fail("a broker's address has reached the client")
    up_of = {upward.ask: upward for upward in watch.upward if upward.ask is not None}
    expected = [ask for ask in watch.asks if ask.is_answered]
    if len(watch.answers) > len(expected):
        raise watch.fail(f"{len(watch.answers)} answers to {len(expected)} requests")
    due = [ask for ask in expected if ask in up_of] if watch.drained else expected
    unanswered = set(due) - set(expected[: len(watch.answers)])
    if not watch.is_broken and (unanswered or watch.out):
        raise watch.fail(f"never answered: {', '.join(map(str, unanswered))}")
    for ask in watch.asks:
        if not (
            watch.is_broken or watch.drained or ask.is_answered or ask.is_refused or ask in up_of
        ):
            raise watch.fail(f"never forwarded: {ask}")
    for (answer, _, _), ask in zip(watch.answers, expected, strict=False):
        if not ask.is_token and answer[4:8] != ask.frame[8:12]:
            raise watch.fail(f"not the answer whose turn it was, {ask}: {answer[:12].hex()}")
        upward = up_of.get(ask)
        if upward is None:
            _check_local(watch, ask, answer, refusal, time_ms)
            continue
        rows, reply = row_of.get(upward, ()), reply_of[upward]
        if not _fits(watch, upward, answer, reply, rows) and not any(
            _fits_over_time(watch, upward, answer, reply, rows, told_ms) for told_ms in time_ms
        ):
            raise watch.fail(f"another answer than expected to {ask}: {answer[:80].hex()}")


def _fits_over_time(
    watch: Watch, upward: Upward, answer: bytes, reply: Reply, rows: tuple[Row, ...], told_ms: int
) -> bool:
    """The same where REQUEST keeps its client back: told, if it is longer; and a Fetch brings nothing."""
    ask = upward.ask
    assert ask is not None
    if ask.is_token:
        return False
    told_ms = max(told_ms, reply.throttle_ms)
    is_emptied = ask.key == FETCH and bool(rows) and rows[-1].outcome == REJECTED
    if is_emptied and _is_empty(
        ask, answer, session_id=dict(reply.fields)["session_id"], least_ms=told_ms
    ):
        return True
    as_told = replace(reply, throttle_ms=told_ms, answer=_telling(ask, reply.answer, told_ms))
    return _fits(watch, upward, answer, as_told, rows)


def _telling(ask: Ask, answer: bytes, told_ms: int) -> bytes:
    """The answer with this throttle time, if it is longer and there is a place for it."""
    told = bytearray(answer)
    throttle_field.patch(told, ask.key, ask.version, told_ms)
    return bytes(told)


def _check_local(
    watch: Watch, ask: Ask, answer: bytes, refusal: Any, time_ms: tuple[int, ...]
) -> None:
    """An answer of the gateway's own."""
    fits = False
    if ask.is_too_new:
        message = decoded(answer, API_VERSIONS, 0)
        fits = message.error_code is ErrorCode.unsupported_version
    elif ask.key == FETCH:
        # In a session only the broker can go on.
        fits = not is_incremental(ask) and _is_empty(ask, answer, session_id=0, least_ms=1)
    elif ask.key == PRODUCE:
        refused = refusal(ask.version, ask.correlation)
        told = {refused, *(_telling(ask, refused, told_ms) for told_ms in time_ms)}
        fits = ask.is_refused and answer in told
    elif ask.is_mutation:
        fits = all(result.error_code in _REFUSED for result in results_of(ask, answer))
        fits = fits and _names_all(ask, answer)
    if not fits:
        raise watch.fail(f"the gateway's own answer to {ask}: {answer[:80].hex()}")


def _fits(watch: Watch, upward: Upward, answer: bytes, reply: Reply, rows: tuple[Row, ...]) -> bool:
    ask = upward.ask
    assert ask is not None
    if ask.is_token:
        return answer == reply.answer
    if ask.key == PRODUCE or ask.key in FETCHES:
        return bool(rows) and _data_fits(watch, ask, answer, reply, rows)
    if ask.key == METADATA:
        fields = dict(reply.fields)
        brokers = tuple(map(_served, fields["brokers"]))
        topics = fields["topics"]
        made = described(ask.version, ask.correlation, brokers=brokers, topics=topics)
        return answer == _telling(ask, made, reply.throttle_ms)
    if ask.key == API_VERSIONS:
        message = decoded(answer, API_VERSIONS, ask.version)
        offered = decoded(reply.answer, API_VERSIONS, ask.version)
        most = {api.api_key: api.max_version for api in offered.api_keys}
        return bool(message.api_keys) and all(
            api.api_key in ANSWERED_HERE or 0 <= api.max_version <= most[api.api_key]
            for api in message.api_keys
        )
    if ask.is_mutation:
        return _mutation_fits(ask, answer, reply, upward)
    return answer == reply.answer


def _served(node: tuple[int, str, int]) -> tuple[int, str, int]:
    """A node as clients may see it."""
    return node[0], GATEWAY, NODE_PORT_BASE + node[0]


def _data_fits(watch: Watch, ask: Ask, answer: bytes, reply: Reply, rows: tuple[Row, ...]) -> bool:
    """The broker's answer, with the longer throttle time and without its addresses."""
    fields = dict(reply.fields)
    if ask.key == FETCH and rows[-1].outcome == REJECTED and rows[-1].memo.enforced:
        least_ms = max(1, reply.throttle_ms)
        return _is_empty(ask, answer, session_id=fields["session_id"], least_ms=least_ms)
    own_ms = max(row.throttle_ms if row.memo.enforced else 0 for row in rows)
    if ask.key == SHARE_FETCH:
        own_ms = min(own_ms, SHARE_FETCH_WAIT_MS_MAX)
    may_be_told_ms = [own_ms]
    quota_type = rows[-1].memo.quota_type
    if quota_type in watch.lowered:
        may_be_told_ms.append(min(own_ms, _FACTOR_TOLD_MS_MAX))
    # Of a counter that has no limit any more the row says what is owed, and nobody waits for it.
    if quota_type in watch.lifted or rows[-1].memo.limit is None:
        may_be_told_ms.append(0)
    return any(_is_made_of(watch, ask, answer, reply, rows, told) for told in may_be_told_ms)


def _is_made_of(
    watch: Watch, ask: Ask, answer: bytes, reply: Reply, rows: tuple[Row, ...], own_ms: int
) -> bool:
    make = _MADE_BY[ask.key]
    if rows[-1].memo.algorithm is Algorithm.TOKEN_BUCKET:
        own_ms = min(own_ms, watch.cap_ms)  # a Java client keeps to what it was told, come what may
    fields = dict(reply.fields)
    throttle_ms = max(own_ms, reply.throttle_ms)
    plain = fields | {"endpoints": tuple(map(_served, fields.get("endpoints", ())))}
    if answer == make(ask.version, ask.correlation, throttle_ms=throttle_ms, **plain):
        return True
    if len(reply.answer) <= BUFFERED_FETCH_BYTES_MAX or not fields.get("endpoints"):
        return False
    # Its size had gone out when its last tags came: blanked, not rewritten.
    whole = make(ask.version, ask.correlation, throttle_ms=throttle_ms, **fields)
    head = len(whole) - _TAIL_BYTES_MAX
    return len(answer) == len(whole) and answer[:head] == whole[:head]


def is_incremental(ask: Ask) -> bool:
    """A Fetch that goes on with a session."""
    if ask.key != FETCH or ask.version < _SESSIONS_FROM:
        return False
    message = decoded(ask.frame, FETCH, ask.version, is_answer=False)
    return bool(message.session_id != 0 and message.session_epoch > 0)


def _is_empty(ask: Ask, answer: bytes, *, session_id: int, least_ms: int) -> bool:
    """What a broker answers to a consumer over its quota."""
    message = decoded(answer, FETCH, ask.version)
    told = (0, 0)
    if ask.version >= _SESSIONS_FROM:
        told = message.error_code.value, message.session_id
    else:
        session_id = 0
    throttle_ms = round(message.throttle_time.total_seconds() * 1000)
    return not message.responses and told == (0, session_id) and throttle_ms >= least_ms


def results_of(ask: Ask, answer: bytes) -> list[Any]:
    return list(getattr(decoded(answer, ask.key, ask.version), _RESULTS[ask.key]))


def _identity(topic: Any) -> object:
    """What tells topics apart, in requests and in answers alike."""
    if isinstance(topic, str):
        return topic
    return topic.name if topic.name is not None else topic.topic_id


def _names_all(ask: Ask, answer: bytes) -> bool:
    """Every topic asked about stands in the answer, and no other."""
    named = set()
    for result in results_of(ask, answer):
        named.add(result.name)
        named.add(getattr(result, "topic_id", None))
        if result.name is not None:
            named.add(topic_id(result.name))
    asked = {_identity(topic) for topic in ask.topics}
    return asked <= named and len(results_of(ask, answer)) <= len(ask.topics)


def _mutation_fits(ask: Ask, answer: bytes, reply: Reply, upward: Upward) -> bool:
    """The broker's results as they are, and one of the gateway's for each topic that stayed."""
    message = decoded(answer, ask.key, ask.version)
    told = getattr(decoded(reply.answer, ask.key, ask.version), _RESULTS[ask.key])
    results = getattr(message, _RESULTS[ask.key])
    own = results[len(told) :]
    stayed = Counter(map(_identity, ask.topics))
    stayed.subtract(map(_identity, upward.topics))
    throttle_ms = round(message.throttle_time.total_seconds() * 1000)
    return (
        tuple(results[: len(told)]) == tuple(told)
        and all(result.error_code in _REFUSED for result in own)
        and len(own) == sum(stayed.values())
        and throttle_ms >= reply.throttle_ms
        and _names_all(ask, answer)
    )
