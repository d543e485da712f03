"""Heads of answers: how much of one must be here before it is looked at, and words for bad ones."""

from kvota.model.errors import ProtocolError
from kvota.session.due import Due, Entry
from kvota.session.exchanges.exchange import WHOLE_ANSWER_BYTES_MAX
from kvota.session.shared import Shared

# Fetch and Produce answers up to this size wait until they are whole, larger ones are streamed.
BUFFERED_FETCH_BYTES_MAX = 131_072
# The same while connections hold much.
_BUFFERED_IN_NEED_BYTES_MAX = 16_384
# Of a larger one this much must be here: its head, with tags, its throttle time, its error and its session.
_FETCH_HEAD_BYTES = 72
_STREAMED = frozenset({Due.FETCH, Due.SHARE_FETCH, Due.PRODUCE})


def needed_of_answer(entry: Entry, size: int, available: int, shared: Shared) -> int:
    """How much of an answer to this entry must be here before it is looked at; 0: enough of it is.

    Raises:
        ProtocolError: it announces more bytes than are taken.
    """
    kind = entry[1]
    if kind not in _STREAMED:
        at_most = WHOLE_ANSWER_BYTES_MAX if kind == Due.CHARGED else entry[2].ANSWER_BYTES_MAX
        if not 0 <= size <= at_most:
            msg = (
                f"the broker announced an answer of {size} bytes; of this kind {at_most} are taken"
            )
            raise ProtocolError(msg)
    if available >= size + 4:
        return 0
    if kind not in _STREAMED or size + 4 <= (
        _BUFFERED_IN_NEED_BYTES_MAX if shared.is_memory_short else BUFFERED_FETCH_BYTES_MAX
    ):
        return size + 4
    return 0 if available >= _FETCH_HEAD_BYTES else _FETCH_HEAD_BYTES


def bad_answer_head(size: int, correlation: int, due: int) -> ProtocolError:
    """An answer is to another request than was due, or announces an impossible size."""
    if correlation != due:
        return ProtocolError(f"the broker answered request {correlation}, {due} was due")
    return ProtocolError(f"the broker announced an answer of {size} bytes")
