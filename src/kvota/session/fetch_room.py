"""How much a Fetch may ask for, and when it waits for room first.

A broker reads what a Fetch asks for, and where that is over the quota it throws it away and says how
long to wait: recorded, checked, taken back. What has come through a gateway cannot be thrown away, so
the wait comes first (docs/decisions/0007). That there is more to read is seen from two answers of one
size; a client that has read all there is gets smaller ones, and does not wait.
"""

from struct import Struct

from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm
from kvota.wire import fetch
from kvota.wire.error_code import ErrorCode

_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into

# A Fetch waits no longer than this for room, counted from the answer before (a mute is part of it):
# above Kafka's default window of 11 s, and half of the 30 s after which clients give up.
FETCH_WAIT_MS_MAX = 15_000
# A waiting Fetch is looked at this often, where the samples are longer.
LOOK_AGAIN_MS = 1_000
# A larger request does not wait: much memory would wait with it.
WAITING_FETCH_BYTES_MAX = 16_384


class FetchRoom:
    """What the answers to one connection's Fetches lead to expect of the next one.

    Attributes:
        expected_bytes: how large the next answer is likely to be.
        refused_us: the answer behind which a Fetch was last refused: one row for each wait.
    """

    __slots__ = ("_answer_bytes", "_answered_us", "expected_bytes", "refused_us")

    def __init__(self) -> None:
        self._answer_bytes = 0
        self._answered_us = 0
        self.expected_bytes = 0
        self.refused_us = 0

    def answered(self, value: int, window_bytes: int, now_us: int) -> None:
        """An answer of so many bytes was charged; an empty window takes ``window_bytes``."""
        self.expected_bytes = min(value, self._answer_bytes, window_bytes)
        self._answer_bytes = value
        self._answered_us = now_us

    def waited(self, now_us: int) -> None:
        """A Fetch was answered without the broker: another wait may begin."""
        self._answered_us = now_us

    def left_to_wait_ms(self, now_us: int) -> int:
        """For how long a Fetch without room may still be kept back; 0: it goes on."""
        waited_ms = (now_us - self._answered_us) // 1000
        if waited_ms < 0:  # a clock that has stepped back ends the wait
            return 0
        return max(0, FETCH_WAIT_MS_MAX - waited_ms)

    @staticmethod
    def may_wait(request_bytes: int, algorithm: Algorithm) -> bool:
        """True unless much memory would wait with the request, and its quota does without that."""
        return algorithm is Algorithm.TOKEN_BUCKET or request_bytes <= WAITING_FETCH_BYTES_MAX

    def is_first_refusal(self) -> bool:
        """True once for each wait, however often it is looked at: a wait has one row."""
        if self.refused_us == self._answered_us:
            return False
        self.refused_us = self._answered_us
        return True


def look_again_ms(missing_bytes: int, memo: ChargeMemo) -> int:
    """When to look again for the missing bytes, under the limit that a row would name.

    Kafka's formula, (sum + expected) / limit - window. It knows no samples' ends, so it may wait twice
    as long as there is need: look again after a sample at the latest.
    """
    assert memo.limit is not None, "without a limit there is room"
    wait_ms = int(missing_bytes * 1000 / max(memo.limit, 0.001)) + 1
    return min(wait_ms, memo.sample_ms, LOOK_AGAIN_MS)


def asks_for(data: bytes | bytearray, offset: int) -> int:
    """The request's max_bytes."""
    asked: int = _READ_INT32(data, offset)[0]
    return asked


def lower_max_bytes(data: bytes | bytearray, offset: int, allowed_bytes: int) -> bytearray:
    """A Fetch request that asks for no more than the window still allows, but for one byte at least.

    min_bytes stands before max_bytes and is lowered with it, as a broker does; the broker answers one
    whole batch however small the limit.
    """
    patched = data if isinstance(data, bytearray) else bytearray(data)
    most = max(allowed_bytes, 1)
    _WRITE_INT32(patched, offset, most)
    if _READ_INT32(patched, offset - 4)[0] > most:
        _WRITE_INT32(patched, offset - 4, most)
    return patched


def empty_answer(correlation: int, version: int, throttle_ms: int) -> bytes:
    """What a broker answers to a consumer over its quota: no topics, and how long to wait."""
    return fetch.empty_answer(
        correlation, version, throttle_ms=min(throttle_ms, 2**31 - 1), error_code=ErrorCode.NONE
    )
