"""The client behind a connection: who it is, what is due to it, what its driver shall do."""

from collections import deque

from kvota.model.charge_memo import ADMITTED, THROTTLED, ChargeMemo
from kvota.session.commands import Command, Do
from kvota.session.due import Due, Entry
from kvota.session.pausing import Pausing, Reason
from kvota.session.principal import PrincipalWatch
from kvota.session.route import Route
from kvota.session.shared import Shared


class Caller:
    """What both directions of one connection, and every exchange on it, know and act on.

    Attributes:
        shared: what all connections of the gateway have in common.
        number: of this connection, unique within the gateway's run.
        dialled: address of the broker this connection is for.
        node_id: that broker's, or a number below -1 while it is not known.
        principal: who has logged in.
        routes: what this connection does with each API version it has used.
        due: entries for the answers that have not come yet, oldest first (``session.due``).
        answer_left: bytes of the running answer that have not come yet.
        sends_tokens: true while the client sends bare login tokens (SaslHandshake v0).
        upstream_versions: what the broker offers, once the client has asked.
        commands: for the driver.
    """

    __slots__ = (
        "answer_left",
        "commands",
        "dialled",
        "due",
        "node_id",
        "number",
        "pausing",
        "principal",
        "routes",
        "sends_tokens",
        "shared",
        "upstream_versions",
    )

    def __init__(
        self,
        shared: Shared,
        pausing: Pausing,
        *,
        number: int,
        dialled: tuple[str, int],
        node_id: int,
    ) -> None:
        self.shared = shared
        self.pausing = pausing
        self.number = number
        self.dialled = dialled
        self.node_id = node_id
        self.principal = PrincipalWatch()
        self.routes: dict[int, Route] = {}
        self.due: deque[Entry] = deque()
        self.answer_left = 0
        self.sends_tokens = False
        self.upstream_versions: dict[int, tuple[int, int]] = {}
        self.commands: list[Command] = []

    # ------------------------------------------------------------------ answers

    def expect(self, entry: Entry) -> None:
        """An answer of this shape is due behind everything asked so far."""
        self.due.append(entry)

    def answer_locally(self, correlation: int, answer: bytes) -> None:
        """Send the gateway's own answer when everything asked before has been answered."""
        if self.due or self.answer_left:
            self.due.append((correlation, Due.LOCAL, answer))
        else:
            self.commands.append((Do.SEND_CLIENT, answer))

    # ------------------------------------------------------------------ pausing

    def wait(self) -> None:
        """Take nothing else of this connection: a mutation or a login is under way."""
        self.pausing.reasons |= Reason.WAITING

    def go_on(self) -> None:
        """What was waited for is over: take what is buffered."""
        self.commands.append((Do.RESUME, Reason.WAITING))

    # ------------------------------------------------------------------ identity

    def is_at(self, node_id: int) -> None:
        """The broker of this connection is known: its counters are that node's."""
        self.node_id = node_id
        self.forget_lanes()

    def learn_own_node(self) -> None:
        """An answer has named brokers: this connection's may be among them."""
        if self.node_id < -1:
            known = self.shared.topology.node_at(*self.dialled)
            if known is not None:
                self.is_at(known)

    def forget_lanes(self) -> None:
        """The user or the node has changed: every charge is looked up anew."""
        for route in self.routes.values():
            route.forget_lane()

    def look_up(self, route: Route, client_id: bytes | bytearray, now_us: int) -> None:
        """Find whose quota this is: on first use, and when the quotas, the user or the node changed."""
        route.look_up(
            self.shared.engine,
            client_id,
            user=self.principal.name,
            node_id=self.node_id,
            connection=self.number,
            now_ms=now_us // 1000,
        )

    # ------------------------------------------------------------------ record

    def append_row(
        self,
        memo: ChargeMemo | None,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_ms: int,
    ) -> None:
        """Record a charge of bandwidth, whose outcome follows from its throttle."""
        assert memo is not None
        outcome = THROTTLED if throttle_ms > 0 else ADMITTED
        self.shared.sink.append(memo, seq, ts_us, value, throttle_ms, upstream_ms, outcome)
