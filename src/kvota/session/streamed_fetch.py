"""An answer to a Fetch or ShareFetch that goes on while it arrives, without the nodes named at its end."""

from kvota.session.streamed_answer import StreamedAnswer
from kvota.wire import node_endpoints
from kvota.wire.fetch_walker import FetchAnswerWalker
from kvota.wire.share_fetch_walker import ShareFetchAnswerWalker
from kvota.wire.varint import Frame


class StreamedFetch(StreamedAnswer):
    """One large answer of v16 or higher."""

    __slots__ = ("_walker",)

    _NAME = "Fetch"

    def __init__(self, version: int) -> None:
        super().__init__()
        self._walker = FetchAnswerWalker(version)

    def _end_of_topics(self, part: Frame) -> tuple[int, int]:
        return self._walker.feed_some(part)

    def _end(self, tail: bytes) -> bytes:
        return node_endpoints.blank_endpoints(tail)


class StreamedShareFetch(StreamedAnswer):
    """One large answer to a ShareFetch."""

    __slots__ = ("_walker",)

    _NAME = "ShareFetch"

    def __init__(self, version: int) -> None:
        super().__init__()
        self._walker = ShareFetchAnswerWalker(version)

    def _end_of_topics(self, part: Frame) -> tuple[int, int]:
        return self._walker.feed_some(part)

    def _end(self, tail: bytes) -> bytes:
        return node_endpoints.blank_endpoint_array(tail, what="ShareFetch answer")
