"""The client behind a connection: who it is, what is due to it, what its driver shall do."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from kvota.engine import Answer, Lane, Question
from kvota.model.decision_sink import NO_ANSWER, REJECTED, ChargeMemo, outcome_of
from kvota.model.quota_type import QuotaType
from kvota.session.announced import ANNOUNCED, HEAD_BYTES_MAX, announced_parts
from kvota.session.budget import User
from kvota.session.commands import Command, Do
from kvota.session.due import Due, Entry
from kvota.session.fetch_room import FetchRoom
from kvota.session.muting import Muting
from kvota.session.pausing import Pausing, Reason
from kvota.session.principal import ANONYMOUS, LoginRefusal, PrincipalWatch
from kvota.session.route import QUOTA_TYPE_OF_KEY, Route
from kvota.session.shared import Shared
from kvota.session.step_work import StepWork
from kvota.session.topology import UNKNOWN_NODE
from kvota.session.whole_requests import WholeRequest
from kvota.wire.address_rewrite import AddressOf
from kvota.wire.api_versions import Versions
from kvota.wire.apis import METADATA
from kvota.wire.varint import Frame

# The quota callback has so long to answer before a client counts as by the default one.
ASK_MS_MAX = 1_000


class AtWork(Protocol):
    """A conversation that has been handed all it waits for, and has more to do than one step."""

    def step(self, caller: "Caller", now_us: int) -> bytes:
        """Do some more; returns what goes upstream because of it."""

    def told(self, caller: "Caller", result: object, now_us: int) -> bytes:
        """Take what an errand has brought; returns what goes upstream because of it."""

    def abandoned(self) -> None:
        """The connection has ended."""


def untold(answer: Frame, _of_api: tuple[int, int], _now_us: int) -> Frame:
    """The gateway's own answer where no time is charged: as it is."""
    return answer


class Caller:
    """What both directions of one connection, and every exchange on it, know and act on.

    Attributes:
        shared: what all connections of the gateway have in common.
        number: of this connection, unique within the gateway's run.
        dialled: address of the broker this connection is for.
        node_id: that broker's, or ``UNKNOWN_NODE``, ``UNNAMED_NODE`` (``session.topology``).
        client_host: the address the client has come from, without its port.
        address_of: what it is told instead of a broker's address.
        principal: who has logged in.
        routes: what this connection does with each API version it has used.
        fetch_room: what its Fetches wait for, and are likely to bring.
        due: entries for the answers that have not come yet, oldest first (``session.due``).
        answer_left: bytes of the running answer that have not come yet.
        answered_us: when the broker last answered while the connection was paused, 0: never.
        own_answers: how many requests the gateway has answered itself.
        request_throttle_ms: what the answer that is taken now has to tell on behalf of REQUEST, 0: nothing.
        sends_tokens: true while the client sends bare login tokens (SaslHandshake v0).
        is_let_in: true once the broker has accepted a login, or has answered what it answers nobody before one.
        logs_in: true from the broker's yes to a mechanism until it has accepted the last token.
        is_refused: the broker has refused a login; it closes the connection next.
        software: name and version of the client's software, as it has told with ApiVersions; empty: it has not.
        upstream_versions: what the broker offers, once the client, or the gateway on its behalf, has asked.
        asked: what the quota callback was last asked.
        asks: how many questions there were; the last one's token.
        commands: for the driver.
        told_in: takes an answer that the gateway has made itself, and returns it with what REQUEST tells in it.
        whole: what this connection takes of the memory for requests that are kept whole.
        at_work: what goes on with ``Do.STEP``, or when an errand has been run.
    """

    __slots__ = (
        "_is_muted_for_retry",
        "_is_muted_to_the_end",
        "_muted_by",
        "_set_aside",
        "_work",
        "address_of",
        "answer_left",
        "answered_us",
        "asked",
        "asks",
        "at_work",
        "client_host",
        "commands",
        "dialled",
        "due",
        "fetch_room",
        "is_let_in",
        "is_refused",
        "logs_in",
        "node_id",
        "number",
        "own_answers",
        "pausing",
        "principal",
        "request_throttle_ms",
        "routes",
        "sends_tokens",
        "shared",
        "software",
        "told_in",
        "upstream_versions",
        "whole",
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
        self.shared = shared
        self.address_of = address_of or shared.topology.address_of
        self.pausing = pausing
        self.number = number
        self.dialled = dialled
        self.node_id = node_id
        self.client_host = client_host
        self.principal = PrincipalWatch(shared.name_claim, shared.users_of_logins)
        self.routes: dict[int, Route] = {}
        self.fetch_room = FetchRoom(wake, shared.waiting_fetches)
        self._set_aside: dict[int, Route] = {}
        self.due: deque[Entry] = deque()
        self.answer_left = 0
        self.answered_us = 0
        self.own_answers = 0
        self.request_throttle_ms = 0
        self.told_in: Callable[[Frame, tuple[int, int], int], Frame] = untold
        self.sends_tokens = False
        self.is_let_in = False
        self.logs_in = False
        self.is_refused = False
        self.software = "", ""
        self.upstream_versions: Versions = {}
        self.asked: Question | None = None
        self.asks = 0
        # Whose counters the running mute is for.
        self._muted_by: dict[QuotaType, Muting] = {}
        self._is_muted_to_the_end = self._is_muted_for_retry = False
        self._work = StepWork()
        self.commands: list[Command] = []
        self.whole = WholeRequest(shared.whole_requests, wake)
        self.at_work: AtWork | None = None

    # ------------------------------------------------------------------ answers

    def expect(self, entry: Entry) -> None:
        """An answer of this shape is due behind everything asked so far."""
        self.due.append(entry)

    def answer_locally(self, correlation: int, answer: Frame) -> None:
        """Send the gateway's own answer when everything asked before has been answered."""
        self.own_answers += 1
        if self.due or self.answer_left:
            self.due.append((correlation, Due.LOCAL, answer))
        else:
            self.commands.append((Do.SEND_CLIENT, answer))

    # ------------------------------------------------------------------ pausing

    def mute(self, throttle_ms: int, lane: Lane, client_id: str, now_ms: int) -> None:
        """Take no request for so long, unless the lane changes meanwhile."""
        self._forget_past_mutes()
        before = self._muted_by.get(lane.quota_type)
        if (
            before is None
            or before.version != lane.version
            or before.until_ms < now_ms + throttle_ms
        ):
            self._muted_by[lane.quota_type] = Muting.begun(lane, client_id, throttle_ms, now_ms)
        self.pausing.mute(throttle_ms)

    def mute_to_the_end(self, throttle_ms: int) -> None:
        """Take no request for so long: a quota says so of which nothing else is known here."""
        self._forget_past_mutes()
        self._is_muted_to_the_end = True
        self.pausing.mute(throttle_ms)

    def mute_for_retry(self, throttle_ms: int) -> None:
        """The same because of a batch that was refused, and that its client is to send again."""
        self.mute_to_the_end(throttle_ms)
        self._is_muted_for_retry = True

    @property
    def is_muted_for_retry(self) -> bool:
        """True while it is muted so: its client awaits answers, and sends nothing again once it has gone."""
        return self._is_muted_for_retry and self.pausing.is_muting

    def _forget_past_mutes(self) -> None:
        if not self.pausing.is_muting:
            self._muted_by.clear()
            self._is_muted_to_the_end = self._is_muted_for_retry = False

    def look_again(self, now_us: int) -> None:
        """Where a counter behind the running mute has changed: wait as long as they all say now."""
        self._count_ids_of_transactions()
        if not self.pausing.is_muting or self._is_muted_to_the_end or self.node_id == UNKNOWN_NODE:
            return
        now_ms = now_us // 1000
        has_changed, longest_ms = False, 0
        muted_by = {}
        user, engine = self.principal.name, self.shared.engine
        for quota_type, muting in self._muted_by.items():
            enforced = quota_type in self.shared.settings.enforced
            now: Lane | None = muting.lane
            if not enforced or muting.lane.version != muting.version:
                has_changed = True
                now = engine.lane(quota_type, self.node_id, user, muting.client_id, now_ms)
            if now is None:  # the callback is asked first, with the next request
                return
            left_ms = muting.left_ms(now, now_ms) if enforced else 0
            muted_by[quota_type] = Muting.begun(now, muting.client_id, left_ms, now_ms)
            longest_ms = max(longest_ms, left_ms)
        self._muted_by = muted_by
        if has_changed:
            self.pausing.replace_mute(longest_ms)

    @property
    def muted_by(self) -> list[Lane]:
        """The lanes on whose behalf the running mute is; empty while none runs."""
        if not self.pausing.is_muting:
            return []
        return [muting.lane for muting in self._muted_by.values()]

    def wait(self, at_most_ms: int | None = None) -> None:
        """Take nothing else of this connection: a mutation or a login is under way."""
        self.pausing.wait(at_most_ms)

    def has_room(
        self, route: Route, data: bytes | bytearray, pos: int, size: int, now_us: int
    ) -> bool:
        """False: a mutation, of which the head is at ``pos``, waits for its turn, and for memory.

        Raises:
            ProtocolError: it announces more topics, or entities, than are taken.
        """
        if route.key not in ANNOUNCED or (route.key == METADATA and self.is_stranger):
            return True  # whom the broker refuses, whatever topics are named
        engine, user = self.shared.engine, self.principal.name
        head = data[pos : pos + min(size + 4, HEAD_BYTES_MAX)]
        parts = announced_parts(engine, user, route.key, head, now_us // 1000)
        if parts is None or self.whole.take(size, parts, self.user):
            return True
        self.pausing.reasons |= Reason.ROOM
        return False

    def give_back_unused_room(self) -> None:
        """A mute has begun: a mutation that has not asks for its room anew when that is over."""
        if self.whole.give_back_unused():
            self.pausing.reasons &= ~Reason.ROOM  # nobody wakes it any more

    def go_on(self) -> None:
        """What was waited for is over: take what is buffered."""
        self.commands.append((Do.RESUME, Reason.WAITING))

    # ------------------------------------------------------------------ steps

    def spend(self, work_us: int, now_us: int) -> None:
        """The request that is taken now costs about so much; behind too many of them others come first."""
        if self._work.is_enough(work_us, now_us) and not self.pausing.reasons & Reason.STEP:
            self.pausing.reasons |= Reason.STEP
            self.commands.append((Do.YIELD, int(Reason.STEP)))

    # ------------------------------------------------------------------ identity

    @property
    def user(self) -> User:
        """Whose share this connection counts to; where nobody has logged in, its address's."""
        name = self.principal.name
        return name, self.client_host if name == ANONYMOUS else ""

    @property
    def is_stranger(self) -> bool:
        """True while brokers ask for logins and nothing shows that this one serves the client.

        What it sends may be refused, so nothing is charged for it: its client id may be somebody else's.
        """
        return self.shared.asks_for_logins and not self.is_let_in

    def is_at(self, node_id: int) -> None:
        """The broker of this connection is known: its counters are that node's."""
        self.node_id = node_id
        address = self.shared.topology.brokers.get(node_id)
        if address is not None and address != self.dialled:
            self.shared.budgets.are_one(self.dialled, address)
        self.forget_lanes()

    def learn_own_node(self) -> None:
        """An answer has named brokers: this connection's may be among them."""
        if self.node_id < -1:
            known = self.shared.topology.node_at(*self.dialled)
            if known is not None:
                self.is_at(known)

    def begin_login(self) -> None:
        """The broker waits for tokens. No request is known while it does, so each is looked at."""
        self.is_refused = False
        if not self.logs_in:
            self.logs_in = True
            self._set_aside.update(self.routes)
            self.routes.clear()

    def refuse_login(self, refusal: LoginRefusal, *, ends: bool = True) -> None:
        """The broker has refused it: the log names it. ``ends``: it closes the connection, too."""
        self.is_refused = ends
        self.commands.append((Do.WARN, refusal))

    def end_login(self) -> None:
        """The broker has accepted the last token: requests go on as they did before."""
        self.logs_in = False
        self.is_let_in = self.shared.asks_for_logins = True
        self.routes.update(self._set_aside)
        self._set_aside.clear()
        self._count_ids_of_transactions()

    def forget_lanes(self) -> None:
        """The user or the node has changed: every charge is looked up anew."""
        for route in self.routes.values():
            route.forget_lane()

    def _count_ids_of_transactions(self) -> None:
        """The user, or the quota, may be another one; what is charged on bytes finds out with its lane."""
        rate = self.shared.producer_ids.rate(self.principal.name)
        for route in self.routes.values():
            if route.is_of_transactions:
                route.count_ids(rate)

    def look_up(self, route: Route, client_id: bytes | bytearray, now_us: int) -> bool:
        """Find whose quota this is: on first use, and when the quotas, the user or the node changed.

        Returns:
            False: the quota callback is asked first, or nobody knows which broker's counter it is; a
            request must wait.
        """
        if self.node_id == UNKNOWN_NODE:
            return False
        quota_type = QUOTA_TYPE_OF_KEY[route.key]
        user, name = self.principal.name, client_id.decode("utf-8", "replace")
        lane = self.shared.engine.lane(quota_type, self.node_id, user, name, now_us // 1000)
        if lane is None:
            self.ask(quota_type, name)
            return False
        enforced = quota_type in self.shared.settings.enforced
        route.use(lane, bytes(client_id), user=user, connection=self.number, enforced=enforced)
        route.count_ids(self.shared.producer_ids.counted_rate(user))
        return True

    def look_up_now(self, route: Route, client_id: bytes, now_us: int) -> None:
        """The same for what is charged now and cannot wait.

        It counts on where it did until the callback has answered, wherever that counter is by now.
        """
        if not self.look_up(route, client_id, now_us):
            route.lane = self.shared.engine.recall(route.lane, now_us // 1000)
            route.use_last()

    def ask(self, quota_type: QuotaType, client_id: str) -> None:
        """Ask the quota callback about this client, and take nothing until it has answered."""
        question = self.shared.engine.question(
            quota_type, self.node_id, self.principal.name, client_id
        )
        if question == self.asked and self.pausing.reasons & Reason.ASKING:
            return  # an answer to a Fetch has asked it before; its time runs
        self.asked = question
        self.asks += 1
        self.pausing.ask(ASK_MS_MAX)
        self.commands.append((Do.ASK, (self.asks, self.asked)))

    def learn(self, token: int, result: object) -> bool:
        """The callback's answer, or why there is none; False: another question is open, or none.

        An answer that comes too late counts from then on. None: another callback is in force, which is asked
        anew.
        """
        if token != self.asks or self.asked is None:
            return False
        if isinstance(result, Answer):
            self.shared.engine.learn(self.asked, result)
        elif result is not None and self.pausing.reasons & Reason.ASKING:
            self.give_up_asking()
        return True

    def give_up_asking(self) -> None:
        """No answer in time, or none at all: the client counts by the last one, else by the default callback."""
        assert self.asked is not None
        self.shared.engine.learn_default(self.asked, self.shared.default_callback)

    # ------------------------------------------------------------------ record

    def append_row(
        self,
        memo: ChargeMemo,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_ms: int,
    ) -> None:
        """Record a charge of bandwidth, whose outcome follows from its throttle."""
        outcome = outcome_of(throttle_ms)
        self.shared.sink.append(memo, seq, ts_us, value, throttle_ms, upstream_ms, outcome)

    def append_wait(self, memo: ChargeMemo, ts_us: int, value: float, throttle_ms: int) -> None:
        """Record that a request is kept back, and what was not counted for it."""
        sink = self.shared.sink
        sink.append(memo, sink.next_seq(), ts_us, value, throttle_ms, NO_ANSWER, REJECTED)
