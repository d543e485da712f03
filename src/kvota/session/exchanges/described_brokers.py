"""DescribeConfigs: a broker's settings without its addresses, and the gateway's own among them."""

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.addresses import Addresses
from kvota.session.exchanges.exchange import RequestHead
from kvota.wire.broker_configs import AskedBrokers, asked_brokers
from kvota.wire.described_settings import with_settings
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame


class DescribedBrokers(Addresses):
    """Remembers which of the gateway's settings are asked for."""

    __slots__ = ("_asked",)

    def __init__(self, key: int, version: int, asked: AskedBrokers) -> None:
        super().__init__(key, version)
        self._asked = asked

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The request goes on as it is.

        Raises:
            ProtocolError: it asks for more settings than one request may.
        """
        settings = caller.shared.broker_settings
        names = {each.name for each in settings.described} if settings is not None else ()
        asked = asked_brokers(frame, head.version, names)
        if asked is None:
            route = caller.routes[head.key << 16 | head.version]
            caller.expect((head.correlation, Due.PASS, route))  # other resources have no addresses
        else:
            exchange = cls(head.key, head.version, asked)
            caller.expect((head.correlation, Due.EXCHANGE, exchange))
        return frame

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:
        """Hide the addresses, and put the gateway's settings in their places.

        Raises:
            ProtocolError: it cannot be read.
        """
        hidden = yield from super().take_answer(caller, frame, now_us)
        settings = caller.shared.broker_settings
        if settings is None:
            return hidden
        return (yield from with_settings(hidden, self._version, self._asked, settings.described))
