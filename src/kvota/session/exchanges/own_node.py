"""Which broker a connection has reached: the gateway asks before the first charge, where it does not know.

A counter is a broker's, whatever name it was dialled by. Where others have logged in it asks, too, before the first
charge of a client that has not: a broker that wants a login closes. A Metadata question without topics names all
brokers; where none of them has the dialled address, the driver compares what addresses mean
(``Do.FIND_NODE``). Meanwhile the request waits, uncharged.
"""

from kvota.model.quota_type import QuotaType
from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.session.route import QUOTA_TYPE_OF_KEY, Route
from kvota.session.topology import UNKNOWN_NODE
from kvota.wire import questions
from kvota.wire.apis import METADATA
from kvota.wire.varint import Frame

# Looking up a client whose name is new.
LOOK_UP_US = 100
# A broker answers Metadata at once.
QUESTION_MS_MAX = 30_000
_HEAD = RequestHead(METADATA, questions.METADATA_NAMES_VERSION, questions.OWN_CORRELATION)


class OwnNode(Exchange):
    """The gateway's own question, on the caller's connection."""

    __slots__ = ()

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """Take nothing else before the answer; returns the question."""
        caller.wait(QUESTION_MS_MAX)
        caller.expect((head.correlation, Due.EXCHANGE, cls()))
        return questions.metadata_by_name(head.correlation, ())

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:  # noqa: ARG002
        """Learn all brokers; the client gets nothing of it.

        Raises:
            ProtocolError: it cannot be read, or names a broker that cannot be told.
        """
        for broker in questions.scan_brokers(frame, _HEAD.version):
            caller.shared.topology.address_of(*broker)
        caller.is_let_in = True
        caller.learn_own_node()
        if caller.node_id == UNKNOWN_NODE:
            caller.wait()  # the driver bounds it
            caller.commands.append((Do.FIND_NODE, None))
        else:
            caller.go_on()
        return b""


def is_node_known(caller: Caller) -> bool:
    """False: it is being asked for, or whether it serves this client, and the request must wait."""
    if caller.node_id == UNKNOWN_NODE:
        caller.learn_own_node()  # by what others were told since it was dialled
    if caller.node_id != UNKNOWN_NODE and not caller.is_stranger:
        return True
    caller.commands.append((Do.SEND_UPSTREAM, OwnNode.begin(caller, _HEAD, b"", 0)))
    return False


def is_known(caller: Caller, route: Route, client_id: bytes | bytearray) -> bool:
    """False: the broker, or what this client may mutate, is being asked for, and a request must wait."""
    # Topics that are asked for may be created: one counter has these for all brokers.
    by_asking = QuotaType.CONTROLLER_MUTATION if route.key == METADATA else None
    quota_type = QUOTA_TYPE_OF_KEY.get(route.key, by_asking)
    if quota_type is None:
        return not route.is_of_transactions or is_node_known(caller)
    if route.key == METADATA and caller.is_stranger:
        return True  # who has not logged in has no quota, and is told of no topic
    if route.key != METADATA and not is_node_known(caller):
        return False
    name = client_id.decode("utf-8", "replace")
    if caller.shared.engine.is_known(quota_type, caller.node_id, caller.principal.name, name):
        return True
    caller.ask(quota_type, name)
    return False


def look_up(caller: Caller, route: Route, client_id: bytes | bytearray, now_us: int) -> bool:
    """Find whose quota this is, and on which broker; False: something is asked first."""
    if not is_node_known(caller):
        return False
    if route.follow_lane(client_id):
        return True
    caller.spend(LOOK_UP_US, now_us)
    return caller.look_up(route, client_id, now_us)
