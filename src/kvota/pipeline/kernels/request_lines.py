"""Reads lines of Kafka's request log as they nearly always are: of a client, each key where Kafka puts it.

Whatever is not exactly so (an escaped name, a tagged field, an API that charges more than its time) is left to ``sources.request_line``, which this has
to agree with: a property test holds them together.
"""

# Columns and results go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917, PLR0911, PLR0912, PLR0915, C901, SIM110

from typing import Any

import numpy as np
import numpy.typing as npt

from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Int64s
from kvota.pipeline.kernels.packing import Bytes

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# Columns of whole numbers that come out, one line after the other.
COLUMNS = (
    *("known", "api_key", "api_version", "value", "throttle_ms", "acks", "answered", "line_us"),
    *("client_from", "client_to", "connection_from", "connection_to", "user_from", "user_to"),
)
# fmt: off
(
    _KNOWN, _KEY, _VERSION, _VALUE, _THROTTLE, _ACKS, _ANSWERED, _LINE_US,
    _CLIENT_FROM, _CLIENT_TO, _CONNECTION_FROM, _CONNECTION_TO, _USER_FROM, _USER_TO,
) = range(len(COLUMNS))
# fmt: on
# And of others.
REALS = ("answered_ms", "local_ms")
_ANSWERED_MS, _LOCAL_MS = range(len(REALS))

_QUOTE, _BACKSLASH, _COMMA, _MINUS, _DOT, _ZERO, _NINE, _BRACE = (ord(char) for char in '"\\,-.09}')
_ASCII_MAX = 127
_DIGITS_MAX = 18
_ID_BYTES = 16
_FLEXIBLE_PRODUCE, _PRODUCE_BY_ID, _OLDEST_PRODUCE = 9, 13, 3
_FLEXIBLE_FETCH, _FETCH_BY_ID, _OLDEST_FETCH = 12, 13, 11
_FNV_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)


def _text(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8).copy()


_HEADER = _text('{"isForwarded":false,"requestHeader":{"requestApiKey":')
_API_VERSION = _text(',"requestApiVersion":')
_CORRELATION_ID = _text(',"correlationId":')
_CLIENT_ID = _text(',"clientId":"')
_API_NAME, _OF_OTHER = _text('","requestApiKeyName":"'), _text('"},"request":')
_OF_PRODUCE = _text('","requestApiKeyName":"PRODUCE"},"request":{"transactionalId":null,"acks":')
_OF_FETCH = _text('","requestApiKeyName":"FETCH"},"request":{')
_TIMEOUT = _text(',"timeoutMs":')
_TOPIC_DATA = _text(',"topicData":[')
_NAME, _TOPIC, _TOPIC_ID = _text('{"name":"'), _text('{"topic":"'), _text('{"topicId":"')
_PARTITION_DATA = _text('","partitionData":[')
_INDEX, _SIZE = _text('{"index":'), _text(',"recordsSizeInBytes":')
_NEXT, _END, _END_OF_TOPICS = _text("},"), _text("}]"), _text("}]}")
_RESPONSE, _NO_RESPONSE = _text(',"response":{'), _text(',"response":""')
_THROTTLE_KEY = _text('"throttleTimeMs":')
_NO_REPLICA, _MAX_WAIT = _text('"replicaId":-1,'), _text('"maxWaitMs":')
_FETCH_RESPONSE = _text('},"response":{"throttleTimeMs":')
_ERROR_CODE, _SESSION_ID = _text(',"errorCode":'), _text(',"sessionId":')
_RESPONSES, _NO_RESPONSES = _text(',"responses":[{'), _text(',"responses":[]}')
_PARTITIONS = _text('","partitions":[')
_PARTITION_INDEX = _text('{"partitionIndex":')
_HIGH_WATERMARK = _text(',"highWatermark":')
_STABLE_OFFSET, _START_OFFSET = _text(',"lastStableOffset":'), _text(',"logStartOffset":')
_ABORTED, _NOT_ABORTED = _text(',"abortedTransactions":[]'), _text(',"abortedTransactions":null')
_REPLICA = _text(',"preferredReadReplica":')
_CONNECTION, _TOTAL = _text(',"connection":"'), _text('","totalTimeMs":')
_QUEUE, _LOCAL = _text(',"requestQueueTimeMs":'), _text(',"localTimeMs":')
_REMOTE, _THROTTLE_TIME = _text(',"remoteTimeMs":'), _text(',"throttleTimeMs":')
_RESPONSE_QUEUE, _SEND = _text(',"responseQueueTimeMs":'), _text(',"sendTimeMs":')
_PROTOCOL, _PRINCIPAL = _text(',"securityProtocol":"'), _text('","principal":"User:')
_LISTENER, _CONTROLLER = _text('","listener":"'), _text('CONTROLLER"')


def _skips(pattern: Bytes) -> Int64s:
    """Return by how much a search may go on where a byte is at the place of a pattern's last one."""
    skips = np.full(256, len(pattern), np.int64)
    for place in range(len(pattern) - 1):
        skips[pattern[place]] = len(pattern) - 1 - place
    return skips


_CONNECTION_SKIPS, _THROTTLE_KEY_SKIPS = _skips(_CONNECTION), _skips(_THROTTLE_KEY)
_FETCH_RESPONSE_SKIPS, _RESPONSE_SKIPS = _skips(_FETCH_RESPONSE), _skips(_RESPONSE)


@step
def _is(data: Bytes, at: int, end: int, pattern: Bytes) -> bool:
    if at < 0 or at + len(pattern) > end:
        return False
    for place in range(len(pattern)):
        if data[at + place] != pattern[place]:
            return False
    return True


@step
def _behind(data: Bytes, at: int, end: int, pattern: Bytes) -> int:
    """Return the place behind a pattern; -1: it is not there."""
    return at + len(pattern) if _is(data, at, end, pattern) else -1


@step
def _search(data: Bytes, at: int, end: int, pattern: Bytes, skips: Int64s) -> int:
    """Return where a pattern is next; -1: nowhere. It goes on by several bytes at once, as Horspool has it."""
    if at < 0:
        return -1
    length = len(pattern)
    last = pattern[length - 1]
    place = at
    while place + length <= end:
        byte = data[place + length - 1]
        if byte == last and _is(data, place, end, pattern):
            return place
        place += skips[byte]
    return -1


@step
def _end_of_text(data: Bytes, at: int, end: int) -> int:
    """Return where a plain text ends; -1: it has something else than plain characters."""
    if at < 0:
        return -1
    for place in range(at, end):
        byte = data[place]
        if byte == _QUOTE:
            return place
        if byte == _BACKSLASH or byte > _ASCII_MAX:
            return -1
    return -1


@step
def _end_of_number(data: Bytes, at: int, end: int) -> int:
    """Return where a whole number ends; -1: there is none."""
    if at < 0 or at >= end:
        return -1
    place = at + 1 if data[at] == _MINUS else at
    first = place
    while place < end and _ZERO <= data[place] <= _NINE:
        place += 1
    return place if first < place <= first + _DIGITS_MAX else -1


@step
def _number(data: Bytes, at: int, to: int) -> int:
    is_negative = data[at] == _MINUS
    found = 0
    for place in range(at + 1 if is_negative else at, to):
        found = found * 10 + (int(data[place]) - _ZERO)
    return -found if is_negative else found


@step
def _skip(data: Bytes, at: int, end: int, pattern: Bytes) -> Any:
    """Return the place behind a pattern and a whole number; -1: they are not there."""
    return _end_of_number(data, _behind(data, at, end, pattern), end)


@step
def _end_of_real(data: Bytes, at: int, end: int) -> int:
    """Return where a number with a point ends; -1: it is written in another way."""
    point = _end_of_number(data, at, end)
    if point < 0 or data[at] == _MINUS or point >= end or data[point] != _DOT:
        return -1
    last = _end_of_number(data, point + 1, end)
    return last if last >= 0 and last - at <= _DIGITS_MAX - 2 and data[last] == _COMMA else -1


@step
def _real(data: Bytes, at: int, to: int) -> float:
    found = 0
    unit = 1.0
    has_point = False
    for place in range(at, to):
        if data[place] == _DOT:
            has_point = True
        else:
            found = found * 10 + (int(data[place]) - _ZERO)
            if has_point:
                unit *= 10.0
    return found / unit


@step
def _varint(number: int) -> int:
    length = 1
    while number >= 128:
        number >>= 7
        length += 1
    return length


@step
def _topic(
    data: Bytes, at: int, end: int, key: Bytes, by_id: bool, flexible: bool
) -> tuple[int, int]:
    """Return where a topic's name, or id, ends and how many bytes it is charged; -1: it is not there."""
    name = _behind(data, at, end, key)
    to = _end_of_text(data, name, end)
    if to < 0:
        return -1, 0
    if by_id:
        return to, _ID_BYTES
    length = to - name
    return to, length + (_varint(length + 1) if flexible else 2)


@step
def _hashed(data: Bytes, at: int, to: int, seed: Any) -> Any:
    found = seed
    for place in range(at, to):
        found = (found ^ np.uint64(data[place])) * _FNV_PRIME
    found ^= found >> _SHIFT
    return found * _MIX


@step
def _produce(data: Bytes, at: int, end: int, row: Int64s) -> int:
    """Read a Produce from behind ``"acks":``; return where its answer begins, or -1."""
    version = row[_VERSION]
    if version < _OLDEST_PRODUCE:
        return -1
    to = _end_of_number(data, at, end)
    if to < 0:
        return -1
    row[_ACKS] = _number(data, at, to)
    at = _behind(data, _skip(data, to, end, _TIMEOUT), end, _TOPIC_DATA)
    flexible = version >= _FLEXIBLE_PRODUCE
    size = 16 + row[_CLIENT_TO] - row[_CLIENT_FROM] + (3 if flexible else 6)
    topics = 0
    while at >= 0:
        by_id = version >= _PRODUCE_BY_ID
        key = _TOPIC_ID if by_id else _NAME
        to, topic_bytes = _topic(data, at, end, key, by_id, flexible)
        size += topic_bytes
        topics += 1
        at = _behind(data, to, end, _PARTITION_DATA)
        partitions = 0
        while at >= 0:
            at = _behind(data, _skip(data, at, end, _INDEX), end, _SIZE)
            to = _end_of_number(data, at, end)
            if to < 0:
                return -1
            records = _number(data, at, to)
            size += records + (5 + _varint(records + 1) if flexible else 8)
            partitions += 1
            if not _is(data, to, end, _NEXT):
                at = _behind(data, to, end, _END)
                break
            at = to + 2
        if at < 0:
            return -1
        size += _varint(partitions + 1) + 1 if flexible else 4
        if not _is(data, at, end, _NEXT):
            at = _behind(data, at, end, _END_OF_TOPICS)
            break
        at += 2
    if at < 0:
        return -1
    row[_VALUE] = size + (_varint(topics + 1) if flexible else 0)
    return at


@step
def _fetch(data: Bytes, at: int, end: int, row: Int64s) -> int:
    """Read a Fetch from its request on; return where its answer ends, or -1."""
    version = row[_VERSION]
    if version < _OLDEST_FETCH:
        return -1
    if _is(data, at, end, _NO_REPLICA):
        at += len(_NO_REPLICA)
    if not _is(data, at, end, _MAX_WAIT):  # a follower's, or it names the cluster
        return -1
    at = _behind(
        data, _search(data, at, end, _FETCH_RESPONSE, _FETCH_RESPONSE_SKIPS), end, _FETCH_RESPONSE
    )
    to = _end_of_number(data, at, end)
    if to < 0:
        return -1
    row[_THROTTLE] = _number(data, at, to)
    at = _skip(data, _skip(data, to, end, _ERROR_CODE), end, _SESSION_ID)
    flexible = version >= _FLEXIBLE_FETCH
    if _is(data, at, end, _NO_RESPONSES):
        row[_VALUE] = 16 if flexible else 18
        row[_ANSWERED] = 0
        return at + len(_NO_RESPONSES)
    row[_ANSWERED] = 1
    at = _behind(data, at, end, _RESPONSES) - 1
    size = 14
    topics = 0
    while at >= 0:
        by_id = version >= _FETCH_BY_ID
        key = _TOPIC_ID if by_id else _TOPIC
        to, topic_bytes = _topic(data, at, end, key, by_id, flexible)
        size += topic_bytes
        topics += 1
        at = _behind(data, to, end, _PARTITIONS)
        partitions = 0
        while at >= 0:
            at = _skip(data, _skip(data, at, end, _PARTITION_INDEX), end, _ERROR_CODE)
            at = _skip(data, _skip(data, at, end, _HIGH_WATERMARK), end, _STABLE_OFFSET)
            at = _skip(data, at, end, _START_OFFSET)
            if _is(data, at, end, _ABORTED):
                at += len(_ABORTED)
            else:
                at = _behind(data, at, end, _NOT_ABORTED)
            at = _behind(data, _skip(data, at, end, _REPLICA), end, _SIZE)
            to = _end_of_number(data, at, end)
            if to < 0:
                return -1
            records = _number(data, at, to)
            size += records + (36 + _varint(records + 1) if flexible else 42)
            partitions += 1
            if not _is(data, to, end, _NEXT):
                at = _behind(data, to, end, _END)
                break
            at = to + 2
        if at < 0:
            return -1
        size += _varint(partitions + 1) + 1 if flexible else 4
        if not _is(data, at, end, _NEXT):
            at = _behind(data, at, end, _END_OF_TOPICS)
            break
        at += 2
    if at < 0:
        return -1
    row[_VALUE] = size + (_varint(topics + 1) + 1 if flexible else 4)
    return at


@step
def _answer(data: Bytes, at: int, end: int, row: Int64s) -> Any:
    """Read the throttle time in an answer of which nothing else is needed; return where that ends, or -1."""
    if _is(data, at, end, _NO_RESPONSE):
        return at + len(_NO_RESPONSE)
    if not _is(data, at, end, _RESPONSE):
        return -1
    connection = _search(data, at, end, _CONNECTION, _CONNECTION_SKIPS)
    throttle = _search(data, at, connection, _THROTTLE_KEY, _THROTTLE_KEY_SKIPS)
    if throttle >= 0:
        throttle += len(_THROTTLE_KEY)
        to = _end_of_number(data, throttle, connection)
        if to < 0 or (data[to] != _COMMA and data[to] != _BRACE):
            return -1
        row[_THROTTLE] = _number(data, throttle, to)
    return connection


@step
def _tail(data: Bytes, at: int, end: int, row: Int64s, reals: Doubles) -> Any:
    """Read what is behind the answer; return the place of the last thing that was looked at, or -1."""
    connection = _behind(data, at, end, _CONNECTION)
    to = _end_of_text(data, connection, end)
    if to < 0:
        return -1
    row[_CONNECTION_FROM], row[_CONNECTION_TO] = connection, to
    at = _end_of_real(data, _behind(data, to, end, _TOTAL), end)
    at = _end_of_real(data, _behind(data, at, end, _QUEUE), end)
    local = _behind(data, at, end, _LOCAL)
    to = _end_of_real(data, local, end)
    if to < 0:
        return -1
    reals[_LOCAL_MS] = _real(data, local, to)
    at = _end_of_real(data, _behind(data, to, end, _REMOTE), end)
    throttle = _behind(data, at, end, _THROTTLE_TIME)
    to = _end_of_number(data, throttle, end)
    if to < 0:
        return -1
    row[_THROTTLE] = max(row[_THROTTLE], _number(data, throttle, to))
    queue = _behind(data, to, end, _RESPONSE_QUEUE)
    to = _end_of_real(data, queue, end)
    if to < 0:
        return -1
    queue_ms = _real(data, queue, to)
    send = _behind(data, to, end, _SEND)
    to = _end_of_real(data, send, end)
    if to < 0:
        return -1
    reals[_ANSWERED_MS] = _real(data, send, to) + queue_ms
    to = _end_of_text(data, _behind(data, to, end, _PROTOCOL), end)
    user = _behind(data, to, end, _PRINCIPAL)
    to = _end_of_text(data, user, end)
    if to < 0:
        return -1
    row[_USER_FROM], row[_USER_TO] = user, to
    listener = _behind(data, to, end, _LISTENER)
    if listener < 0 or _is(data, listener, end, _CONTROLLER):
        return -1
    return _end_of_text(data, listener, end)


@step
def _line(data: Bytes, at: int, end: int, time_only: Flags, row: Int64s, reals: Doubles) -> Any:
    key = _behind(data, at, end, _HEADER)
    to = _end_of_number(data, key, end)
    if to < 0:
        return False
    row[_KEY] = _number(data, key, to)
    version = _behind(data, to, end, _API_VERSION)
    to = _end_of_number(data, version, end)
    if to < 0:
        return False
    row[_VERSION] = _number(data, version, to)
    client = _behind(data, _skip(data, to, end, _CORRELATION_ID), end, _CLIENT_ID)
    to = _end_of_text(data, client, end)
    if to < 0:
        return False
    row[_CLIENT_FROM], row[_CLIENT_TO] = client, to
    row[_THROTTLE], row[_ACKS], row[_ANSWERED] = 0, 1, 1
    if row[_KEY] == 0:
        at = _produce(data, _behind(data, to, end, _OF_PRODUCE), end, row)
        at = _answer(data, at, end, row) if at >= 0 else -1
    elif row[_KEY] == 1:
        at = _fetch(data, _behind(data, to, end, _OF_FETCH), end, row)
    elif 0 < row[_KEY] < len(time_only) and time_only[row[_KEY]]:
        to = _end_of_text(data, _behind(data, to, end, _API_NAME), end)
        at = _behind(data, to, end, _OF_OTHER)
        connection = _search(data, at, end, _CONNECTION, _CONNECTION_SKIPS)
        at = _search(data, at, connection, _RESPONSE, _RESPONSE_SKIPS)
        at = _answer(data, at, end, row) if at >= 0 else -1
        row[_VALUE] = 0
    else:
        return False
    return _tail(data, at, end, row, reals) >= 0


@kernel
def read_lines(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    begin: Bytes,
    second_at: int,
    minute_us: int,
    behind: Bytes,
    seed: np.uint64,
    time_only: Flags,
    numbers: npt.NDArray[np.int64],
    reals: npt.NDArray[np.float64],
    who: Hashes,
) -> None:
    """Read lines; those that are not as nearly all have 0 as ``known``.

    Args:
        data: the log.
        starts: of the lines.
        ends: of the lines.
        begin: how a line begins, up to the three digits of its milliseconds; the two of the second are any.
        second_at: where in it these are.
        minute_us: when the minute of ``begin`` began.
        behind: what is between the milliseconds and the JSON.
        seed: of the hashes.
        time_only: by API key, whether its requests charge nothing but their time.
        numbers: out: a row of ``COLUMNS`` for each line.
        reals: out: a row of ``REALS`` for each line.
        who: out: the same hash for the same API, version, client id, user and connection.
    """
    for line in range(len(starts)):
        row = numbers[line]
        row[_KNOWN] = 0
        start, end = starts[line], ends[line]
        fraction = start + len(begin)
        json = fraction + 3 + len(behind)
        if json >= end or not _is(data, fraction + 3, end, behind):
            continue
        is_same = True
        for place in range(len(begin)):
            byte = data[start + place]
            if place == second_at or place == second_at + 1:
                is_same = is_same and _ZERO <= byte <= _NINE
            else:
                is_same = is_same and byte == begin[place]
        for place in range(3):
            is_same = is_same and _ZERO <= data[fraction + place] <= _NINE
        if not is_same or not _line(data, json, end, time_only, row, reals[line]):
            continue
        second = _number(data, start + second_at, start + second_at + 2)
        row[_LINE_US] = (
            minute_us + second * 1_000_000 + _number(data, fraction, fraction + 3) * 1000
        )
        found = seed ^ np.uint64(row[_KEY] * 1000 + row[_VERSION])
        found = _hashed(data, row[_CLIENT_FROM], row[_CLIENT_TO], found)
        found = _hashed(data, row[_USER_FROM], row[_USER_TO], found)
        who[line] = _hashed(data, row[_CONNECTION_FROM], row[_CONNECTION_TO], found)
        row[_KNOWN] = 1
