"""One client connection as a machine without I/O: what its driver asks of it.

``from_client`` and ``from_upstream`` take received bytes and return the bytes to forward. Rarer things
are commands in ``commands``; whether to read on, and when to come back, follows from ``pausing``.
"""

from collections.abc import Callable

from kvota.engine import Lane
from kvota.session.answers import Answers
from kvota.session.budget import User
from kvota.session.caller import Caller, untold
from kvota.session.charged_produce import abandon_due
from kvota.session.commands import Do
from kvota.session.due import Due
from kvota.session.giving_way import Standing
from kvota.session.line_place import WAIT_MS_MAX
from kvota.session.pausing import AT_ONCE, Pausing, Reason
from kvota.session.principal import LoginRefusal
from kvota.session.request_time import RequestTime
from kvota.session.requests import Requests
from kvota.session.shared import Shared
from kvota.session.standing import holder_of, standing_of
from kvota.wire.address_rewrite import AddressOf

_NO_ANSWER = (
    "the broker has not answered what a mutation waits for in time; its client sends it again, and "
    "learns what has become of it"
)
_WAITED_TOO_LONG = (
    f"a request has waited {WAIT_MS_MAX / 1000:.0f} s for its turn under its quota; nothing of it was "
    "forwarded or charged, and the client sends it again (docs/quotas-that-hold.md)"
)


# A client that does not log in where it has to has asked for versions, and one thing more.
_BEFORE_LOGIN = 2
_RECORDS = frozenset({Due.FETCH})
_ANY_RECORDS = _RECORDS | {Due.SHARE_FETCH}
_FOR_ROOM = int(Reason.BUDGET | Reason.ROOM)


class Connection:
    """The machine of one client connection; see the module's docstring.

    Args:
        shared: what all connections of the gateway have in common.
        pausing: the reasons not to read on, with the cap of a mute.
        number: of this connection, unique within the gateway's run.
        dialled: address of the broker this connection is for.
        node_id: that broker's, or ``UNKNOWN_NODE``, ``UNNAMED_NODE`` (``session.topology``).
        client_host: the address the client has come from, without its port.
        wake: called when the announced-bytes budget has room again, or the line of a counter has
            moved; ``woken`` is due then.
        address_of: what the client is told instead of a broker's address; None: what the topology says.

    Attributes:
        from_client: takes the client's bytes and Unix µs, returns what goes upstream (or None).
        from_upstream: takes the broker's bytes and Unix µs, returns what goes to the client (or None).
        request_time: is told how long each step has taken, while that is charged; else None.
        commands: for the driver to carry out, in order; doing one may add others.
        whole_answer: the memory of one that arrives, or that the client does not take.
    """

    __slots__ = (
        "_answers",
        "_requests",
        "caller",
        "commands",
        "from_client",
        "from_upstream",
        "pausing",
        "request_time",
        "whole_answer",
    )

    def __init__(  # noqa: PLR0913  (all by name, made in one place)
        self,
        shared: Shared,
        pausing: Pausing,
        *,
        number: int,
        dialled: tuple[str, int],
        node_id: int,
        client_host: str,
        wake: Callable[[], None],
        address_of: AddressOf | None = None,
    ) -> None:
        self.pausing = pausing
        self.caller = Caller(
            shared,
            pausing,
            number=number,
            dialled=dialled,
            node_id=node_id,
            client_host=client_host,
            wake=wake,
            address_of=address_of,
        )
        self.commands = self.caller.commands
        self._requests = Requests(self.caller, wake)
        self._answers = Answers(self.caller, wake)
        self.whole_answer = self._answers.whole
        # Bound once: the driver calls them for each received chunk.
        self.from_client = self._requests.take
        self.from_upstream = self._answers.take
        self.request_time: RequestTime | None = None

    def charge_time(self, *, is_charged: bool) -> None:
        """Charge REQUEST from now on, or not any more."""
        if is_charged and self.request_time is None:
            self.request_time = RequestTime(self.caller, self._requests, self._answers)
            self.from_upstream = self.request_time.from_upstream
            self.caller.told_in = self.request_time.told_in
        elif not is_charged:
            self.request_time, self.from_upstream = None, self._answers.take
            self.caller.told_in = untold

    # ------------------------------------------------------------------ going on

    def resume(self, reason: int, now_us: int) -> bytes | bytearray | None:
        """Take a reason to pause away; returns buffered bytes that may now be forwarded.

        Raises:
            ProtocolError: they are no Kafka requests; the connection must close.
        """
        self.pausing.reasons &= ~reason
        return self._requests.go_on(now_us)

    def woken(self, now_us: int) -> bytes | bytearray | None:
        """The budget has room, or the line has moved: go on; returns buffered bytes to be forwarded.

        Raises:
            ProtocolError: they are no Kafka requests; the connection must close.
        """
        self.whole_answer.woken()
        try:
            return self.resume(Reason.BUDGET | Reason.IN_LINE | Reason.ROOM, now_us)
        finally:
            self.pass_room_on()

    def pass_room_on(self) -> None:
        """A connection that is woken after its end lets the next one know."""
        self._requests.budget.pass_on()
        self.caller.whole.pass_on()
        self.whole_answer.pass_on()

    def step(self, now_us: int) -> bytes | bytearray | None:
        """``Do.STEP`` is due; returns what goes upstream.

        Raises:
            ProtocolError: the work cannot go on; the connection must close.
        """
        at_work = self.caller.at_work
        assert at_work is not None
        return at_work.step(self.caller, now_us) or None

    def told(self, result: object, now_us: int) -> bytes | bytearray | None:
        """What ``Do.ERRAND`` asked for has been done; returns what goes upstream.

        Raises:
            ProtocolError: as ``step``.
        """
        at_work = self.caller.at_work
        assert at_work is not None
        return at_work.told(self.caller, result, now_us) or None

    def read_on(self, now_us: int) -> bytes | bytearray | None:
        """Others have had their turn (``Do.BREATHE``); returns what goes to the client.

        Raises:
            ProtocolError: as ``from_upstream``.
        """
        return self._answers.go_on(now_us)

    def next_deadline_ms(self, monotonic_ms: int) -> int | None:
        """When ``deadline_passed`` is due; ask again whenever ``pausing.deadline_changed``."""
        if self.pausing.reasons & Reason.MUTED:
            self._requests.give_back_unused_budget()
        return self.pausing.next_deadline_ms(monotonic_ms)

    def deadline_passed(self, monotonic_ms: int, now_us: int) -> bytes | bytearray | None:
        """The offered deadline has come; returns buffered bytes that may now be forwarded.

        Raises:
            ProtocolError: they are no Kafka requests; the connection must close.
        """
        if self.pausing.gives_up(monotonic_ms):
            self._requests.place.give_up(now_us)
            self.commands.append((Do.CLOSE, _WAITED_TOO_LONG))
            return None
        if self.pausing.has_waited_too_long(monotonic_ms):
            self.commands.append((Do.CLOSE, _NO_ANSWER))
            return None
        over = self.pausing.deadline_passed(monotonic_ms, now_us)
        if over & Reason.ASKING:
            self.caller.give_up_asking()
        return self.resume(over, now_us)

    def resolved(self, token: int, result: object, now_us: int) -> bytes | bytearray | None:
        """What ``Do.ASK`` asked for is here, or could not be had (an exception).

        Returns:
            Buffered bytes that may now be forwarded.

        Raises:
            ProtocolError: they are no Kafka requests; the connection must close.
        """
        if not self.caller.learn(token, result):
            return None
        return self.resume(Reason.ASKING, now_us)

    def look_again(self, now_us: int) -> None:
        """Quotas have changed: a running mute may be shorter or longer; the deadline says so."""
        self.caller.look_again(now_us)

    def secured(self, user: str) -> None:
        """The client has shown by a certificate who it is; nothing of it has been taken yet."""
        self.caller.principal.name = user

    def redialled(self, address: tuple[str, int], node_id: int) -> None:
        """Another broker than planned has been reached."""
        self.caller.dialled = address
        self._requests.budget.move(self.caller.shared.budgets.of(address))
        self.caller.is_at(node_id)

    def located(self, node_id: int, now_us: int) -> bytes | bytearray | None:
        """What ``Do.FIND_NODE`` asked for is here: a broker, or ``UNNAMED_NODE``.

        Returns:
            Buffered bytes that may now be forwarded.

        Raises:
            ProtocolError: they are no Kafka requests; the connection must close.
        """
        self.caller.is_at(node_id)
        # Its broker may have been dialled by another name before, and have a budget by that one.
        self._requests.budget.move(self.caller.shared.budgets.of(self.caller.dialled))
        return self.resume(Reason.WAITING, now_us)

    # ------------------------------------------------------------------ state

    @property
    def pauses_reading(self) -> bool:
        """True when no more client bytes should be read for now."""
        reasons = self.pausing.reasons
        return reasons != 0 and (bool(reasons & AT_ONCE) or self._requests.left == 0)

    def lanes(self) -> list[Lane]:
        """The lanes on which the last requests of each kind were charged."""
        lanes = [route.lane for route in self.caller.routes.values() if route.client_id is not None]
        if self.request_time is not None and self.request_time.lane is not None:
            lanes.append(self.request_time.lane)
        return lanes

    @property
    def incomplete(self) -> bool:
        """True while it is the client's turn: a frame has begun and not ended, and nothing keeps it back.

        The rest of a frame is due in a mute, too. One that waits for room in the budget counts: it
        does not wait for ever.
        """
        return not self.pausing.reasons & Reason.CLIENT_FULL and self.is_clients_turn

    @property
    def is_clients_turn(self) -> bool:
        """As ``incomplete``, and true, too, where nothing keeps it back but that its client does not read.

        Where others wait that is no excuse.
        """
        reasons = self.pausing.reasons & ~Reason.CLIENT_FULL
        if reasons & AT_ONCE:
            return False
        return self._requests.left > 0 or (
            not reasons & ~_FOR_ROOM and bool(self._requests.buffered)
        )

    @property
    def arrived_bytes(self) -> int:
        """How much of the frame that is not here whole has arrived."""
        requests = self._requests
        if not requests.left:
            return len(requests.buffered)
        return (requests.swallowed_bytes or requests.budget.taken_bytes) - requests.left

    @property
    def kept_bytes(self) -> int:
        """How much is here that has not gone on, in both directions."""
        return len(self._requests.buffered) + self._answers.kept_bytes

    @property
    def is_inside_frame(self) -> bool:
        """True while the broker has the head of a frame and not its end."""
        return self._requests.left > 0 and not self._requests.swallowed_bytes

    @property
    def is_in_line(self) -> bool:
        """True while a request waits for its counter's turn, or a Fetch for room."""
        return bool(self.pausing.reasons & Reason.IN_LINE)

    @property
    def waits_for_an_answer(self) -> bool:
        """True while what waits here is worth nothing once its client has gone (acks are not 0).

        A request in line; what was sent behind a refused batch: nobody would take its answer, and a producer that
        is no more would take a token that another one waits for.
        """
        if self.caller.is_muted_for_retry:
            return True
        return self.is_in_line and (
            self.caller.fetch_room.is_waiting or self._requests.place.awaits_answer
        )

    @property
    def keeps_others_waiting(self) -> bool:
        """True while a frame takes room in the budget, or a turn, that others wait for.

        Not while it is decided on, step by step: it is here, and that is soon over.
        """
        takes_room = self._requests.budget.keeps_others_waiting and self.caller.at_work is None
        return takes_room or self.caller.whole.keeps_others_waiting

    @property
    def keeps_turn_waiting(self) -> bool:
        """True while a large request that has not arrived keeps another one of its user waiting."""
        return self.caller.whole.keeps_turn_waiting

    @property
    def answer_in_the_way(self) -> int | None:
        """How much is here of an answer that takes memory others wait for; None: of none, or it is being worked on."""
        answers = self._answers
        is_due = answers.whole.keeps_others_waiting and not answers.is_held
        return answers.kept_bytes if is_due else None

    @property
    def keeps_line_waiting(self) -> float:
        """The limit of the counter that its running frame has been charged on and others wait for, in bytes/s; 0: none."""
        requests = self._requests
        return requests.unfinished.keeps_line_waiting(requests.left) if requests.left else 0.0

    @property
    def keeps_more_than_fair(self) -> bool:
        """True while its user holds more than an equal part of the budget, and others wait."""
        return self._requests.budget.is_more_than_fair

    @property
    def missing_bytes(self) -> int:
        """How much of a frame that takes room in the budget has not arrived."""
        return max(0, self._requests.budget.taken_bytes - self.arrived_bytes)

    @property
    def leaves_upstream_unread(self) -> bool:
        """True while there is no memory for what the broker sends, or others come first."""
        return self.whole_answer.waits or self._answers.is_held

    @property
    def requests(self) -> int:
        """How many requests have been taken."""
        return self._requests.count

    @property
    def idle(self) -> bool:
        """True when nothing is due from the broker and no frame is half relayed."""
        caller = self.caller
        return not (caller.due or caller.at_work or self._requests.left or caller.answer_left)

    @property
    def only_awaits_records(self) -> bool:
        """True when nothing is due but Fetches whose answers have not begun: they may wait for hours.

        A consumer asks again, wherever it is led to, and nothing was charged.
        """
        return self._only_awaits(_RECORDS)

    @property
    def only_awaits_any_records(self) -> bool:
        """The same where the client has gone, to whom a broker would lock what a ShareFetch brings, too."""
        return self._only_awaits(_ANY_RECORDS)

    def _only_awaits(self, kinds: frozenset[Due]) -> bool:
        caller = self.caller
        if caller.at_work or self._requests.left or caller.answer_left or self._answers.kept_bytes:
            return False
        return all(entry[1] in kinds for entry in caller.due)

    @property
    def holder(self) -> User | None:
        """Whose its place is, None: nobody's yet."""
        return holder_of(self.caller)

    @property
    def standing(self) -> Standing:
        """What would be lost with it."""
        return standing_of(self.caller, self._requests, self._answers)

    @property
    def due_count(self) -> int:
        """How many answers have not come yet."""
        return len(self.caller.due)

    @property
    def is_refused(self) -> bool:
        """True when the broker has refused a login, which is said already: it closes next."""
        return self.caller.is_refused

    @property
    def is_login_due(self) -> bool:
        """True while its client has to log in, or to bring a login to an end, before it is served."""
        return self.caller.logs_in or self.caller.is_stranger

    @property
    def needs_login(self) -> bool:
        """True while nobody has logged in or tried to, and nothing shows that nobody has to."""
        is_new = self._requests.count <= _BEFORE_LOGIN
        return is_new and not (self.caller.is_let_in or self.caller.logs_in)

    # ------------------------------------------------------------------ the end

    def give_way(self, now_us: int) -> None:
        """Others need its place: a request in line keeps its turn for when its client comes again."""
        self._requests.place.give_up(now_us)

    def close(self) -> None:
        """The client is gone: free what is kept for it, record what was charged and not answered.

        Room for a frame that is half with the broker is given back by ``upstream_gone``.
        """
        self._requests.close()
        self._answers.close()
        self.caller.fetch_room.close()
        abandon_due(self.caller)
        self._requests.unfinished.close()
        if self.caller.at_work is not None:
            self.caller.at_work.abandoned()
            self.caller.at_work = None

    def give_back_missing(self, now_us: int) -> None:
        """Due behind ``close``: what has not come of the running frame was charged, and never comes.

        What was spent on the connection was not charged, and is.
        """
        if self.request_time is not None:
            self.request_time.end(now_us)
        self._requests.unfinished.give_back(self._requests.left, now_us)

    @property
    def refused_by_closing(self) -> LoginRefusal | None:
        """The login whose bare token the broker has not answered: where it closes, that was its no."""
        due = self.caller.due
        return due[0][2].refusal if due and due[0][1] == Due.TOKEN else None

    def upstream_gone(self) -> None:
        """The broker has closed, or was never reached: no frame takes its memory any more."""
        self._requests.budget.give_back()
