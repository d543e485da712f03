"""ApiVersions: the client is offered what both the broker and the gateway understand."""

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.wire import api_versions
from kvota.wire.apis import API_VERSIONS, APIS
from kvota.wire.varint import Frame


class Versions(Exchange):
    """An ApiVersions request; a version newer than the gateway's is answered as a broker does."""

    __slots__ = ("_version",)

    def __init__(self, version: int) -> None:
        self._version = version

    @property
    def api(self) -> tuple[int, int] | None:
        """Key and version of the client's request."""
        return API_VERSIONS, self._version

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """Ask the broker, unless the version is unknown here."""
        if head.version > APIS[API_VERSIONS].version_max:
            caller.answer_locally(head.correlation, api_versions.unsupported(head.correlation))
            return b""
        caller.software = api_versions.client_software(frame, head.version)
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.version)))
        return frame

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:  # noqa: ARG002
        """Offer no more than the gateway knows; keep what the broker offers.

        Raises:
            ProtocolError: the answer cannot be read.
        """
        frame, offered = api_versions.clamp(frame, self._version)
        caller.upstream_versions = caller.shared.offered_versions.shared(offered)
        return frame
