"""The façade the gateway talks to."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from kvota.engine.counters import FALLBACK, Counters
from kvota.engine.counting import countings
from kvota.engine.factored import Factored
from kvota.engine.known_answers import KnownAnswers
from kvota.engine.lane import Lane
from kvota.engine.mutations import MutationQuota, PermissiveQuota, StrictQuota
from kvota.engine.question import Answer, ClientKey, Question, ask, asks_by_broker, limit_of
from kvota.engine.receipt import Receipt
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_callback import ClientQuotaCallback, only_texts, tell
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType, counter_node_id
from kvota.model.quota_window import QuotaWindow

# Clients whose lane, and whose answers, are remembered between requests; a client id is the client's
# own choice, up to 1 KB, so this has to have an end. The first remembered is the first forgotten.
_KNOWN_CLIENTS_MAX = 4_000

# So many counters are looked at in one step of a purge.
PURGE_STEP = 500

_MUTATION = QuotaType.CONTROLLER_MUTATION
_NO_BUCKETS: Mapping[QuotaType, BucketSettings] = MappingProxyType({})
_NO_FACTORS = Factored()

_Client = ClientKey


class QuotaEngine:
    """Quotas in force and the counters held against them. Time always comes in.

    The callback says which counter a client is charged on and what its limit is. One that answers
    at once is asked here; of any other the answers have to be brought: ``lane`` gives None for a
    client it was not asked about, ``question`` is what to ask (on another thread), and ``learn``
    takes the answer. An answer counts until there is another one; ``due_questions`` are those that
    have to be asked again.

    Attributes:
        callback: who decides.
        quotas_version: how often configured quotas have been put in force.

    >>> from kvota.callbacks import DefaultQuotaCallback
    >>> from kvota.model.quota_entity import QuotaEntity
    >>> quotas = ConfiguredQuotas({QuotaEntity(user="alice"): {QuotaType.PRODUCE: 1000}})
    >>> engine = QuotaEngine(DefaultQuotaCallback(quotas), {})
    >>> lane = engine.lane(QuotaType.PRODUCE, 1, "alice", "app", 0)
    >>> lane.tags, lane.limit, [lane.charge(10_000, 0) for _ in range(2)]
    ('client-id=,user=alice', 1000.0, [0, 10000])
    """

    __slots__ = (
        "_answers",
        "_clients",
        "_counters",
        "_factored",
        "_quotas",
        "callback",
        "quotas_version",
    )

    def __init__(
        self,
        callback: ClientQuotaCallback,
        windows: Mapping[QuotaType, QuotaWindow],
        buckets: Mapping[QuotaType, BucketSettings] = _NO_BUCKETS,
        factored: Factored = _NO_FACTORS,
    ) -> None:
        """Types without a window have Kafka's default of 11 x 1 s; ``buckets``: by ``token_bucket``.

        ``factored`` says whom a factor reaches: without it those who have a quota.

        Raises:
            ValueError: a bucket for a type that is not bandwidth.
        """
        self.callback = callback
        self._quotas = callback.initial_quotas
        self._counters = Counters(countings(windows, buckets))
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._clients: OrderedDict[_Client, Lane] = OrderedDict()
        self._answers = KnownAnswers(most=_KNOWN_CLIENTS_MAX, by_broker=asks_by_broker(callback))
        self.quotas_version = 1
        self._factored = factored

    # ------------------------------------------------------------------ deciding

    def lane(
        self, quota_type: QuotaType, node_id: int, user: str, client_id: str, now_ms: int
    ) -> Lane | None:
        """The lane of a client at one broker; None: the callback has to be asked first.

        Keep it, and ask again when it has moved: ``Lane`` says how that is seen.
        """
        known = self._clients.get((quota_type, node_id, user, client_id))
        if known is not None and not known.is_forgotten:
            return known
        if self.callback.answers_at_once:
            node = counter_node_id(quota_type, node_id)
            answer: Answer | None = ask(self.callback, quota_type, node, user, client_id)
        else:
            answer = self._answers.get(self._answers.key(quota_type, node_id, user, client_id))
        if answer is None:
            return None
        answer = self._factored.as_counted(quota_type, user, answer)
        lane = self._lane(quota_type, node_id, answer, now_ms)
        if known is None and len(self._clients) >= _KNOWN_CLIENTS_MAX:
            _, first = self._clients.popitem(last=False)
            if first.counter is None:  # nobody else knows of it: later changes would not reach it
                first.outdate()
        self._clients[quota_type, node_id, user, client_id] = lane
        return lane

    def recall(self, lane: Lane, now_ms: int) -> Lane:
        """The lane that leads now to the counter of a lane that leads nowhere any more."""
        if not lane.is_forgotten:
            return lane
        answer = Answer(tags=lane.tag_values, text=lane.tags, limit=lane.configured_limit)
        return self._counters.lane(lane.quota_type, lane.node_id, answer, now_ms, source=None)

    @property
    def counters(self) -> Counters:
        """For observers, who only look."""
        return self._counters

    def mutations(self, user: str, client_id: str, *, strict: bool, now_ms: int) -> MutationQuota:
        """The mutation quota for one request; ``strict`` by the request's version (KIP-599).

        Raises:
            LookupError: the callback does not answer at once and was never asked about this client.
        """
        lane = self._clients.get((_MUTATION, CLUSTER_NODE_ID, user, client_id))
        if lane is None or lane.is_forgotten:
            lane = self.lane(_MUTATION, CLUSTER_NODE_ID, user, client_id, now_ms)
        if lane is None:
            msg = f"the quota callback was never asked what {user} may mutate as {client_id}"
            raise LookupError(msg)
        if lane.samples == 0:
            return MutationQuota(lane.tags)
        return StrictQuota(lane) if strict else PermissiveQuota(lane)

    def _lane(self, quota_type: QuotaType, node_id: int, answer: Answer, now_ms: int) -> Lane:
        counter_node = counter_node_id(quota_type, node_id)
        if answer.is_counted:
            source = FALLBACK if answer.is_fallback else self._answers.generation
            return self._counters.lane(quota_type, counter_node, answer, now_ms, source=source)
        return Lane(quota_type, counter_node, answer.tags, text=answer.text)

    # ------------------------------------------------------------------ asking the callback

    def is_known(self, quota_type: QuotaType, node_id: int, user: str, client_id: str) -> bool:
        """True when ``lane`` and ``mutations`` need no answer for this client."""
        if self.callback.answers_at_once:
            return True
        key = self._answers.key(quota_type, node_id, user, client_id)
        return self._answers.get(key) is not None

    def remembered(self, quota_type: QuotaType, user: str, client_id: str) -> Answer | None:
        """What the callback last said of a client, as far as it is remembered; of some broker's counter."""
        keys = (
            self._answers.key(quota_type, node_id, user, client_id)
            for node_id in (CLUSTER_NODE_ID, *self._counters.all_node_ids)
        )
        answer = next(filter(None, map(self._answers.get, keys)), None)
        return None if answer is None else self.as_counted(quota_type, user, answer)

    def as_counted(self, quota_type: QuotaType, user: str, answer: Answer) -> Answer:
        """What the callback says of a client, as it is counted here."""
        return self._factored.as_counted(quota_type, user, answer)

    def question(self, quota_type: QuotaType, node_id: int, user: str, client_id: str) -> Question:
        """What to ask the callback about this client."""
        return self._answers.question(self._answers.key(quota_type, node_id, user, client_id))

    def due_questions(self) -> list[Question]:
        """What to ask again: answers from before a reset, and those that another callback has given."""
        return self._answers.due()

    def questions_about_known(self, *, by_broker: bool) -> list[Question]:
        """What to ask another callback about the clients that are looked up now, before it takes over."""
        asked: dict[Question, None] = {}
        for quota_type, node_id, user, client_id in self._clients:
            node = counter_node_id(quota_type, node_id) if by_broker else CLUSTER_NODE_ID
            asked[Question(quota_type=quota_type, node_id=node, user=user, client_id=client_id)] = (
                None
            )
        return list(asked)

    def learn(self, question: Question, answer: Answer) -> bool:
        """Remember an answer, unless a newer one is known or another callback is in force.

        Returns:
            True where a counter or its limit is another one for it: running mutes may be, too.
        """
        return not self._answers.is_older(question) and self._remember(question, answer)

    def learn_default(self, question: Question, fallback: ClientQuotaCallback) -> None:
        """Remember what another callback says of a client, unless the one in force has ever answered."""
        known = self._answers.get(question.key)
        if known is None or known.is_fallback:
            question = self._answers.question(question.key)
            self._remember(question, replace(question.ask(fallback), is_fallback=True))

    def _remember(self, question: Question, answer: Answer) -> bool:
        quota_type, node_id, user, client_id = question.key
        before = self._answers.put(question, answer)
        moved: list[Lane] = []
        if before is not None and (
            before.text != answer.text or before.is_counted != answer.is_counted
        ):
            # Of a client whose answer holds for all brokers those of all of them.
            moved = self._forget_clients(
                lambda client: (
                    (client[0], *client[2:]) == (quota_type, user, client_id)
                    and (not self._answers.by_broker or client[1] == node_id)
                )
            )
        changed = self._counters.set_limit(
            quota_type,
            answer.limit,
            tags=self.as_counted(quota_type, user, answer).text,
            node_id=node_id if self._answers.by_broker else None,
            source=FALLBACK if answer.is_fallback else self._answers.generation,
        )
        _outdate(moved, changed)
        return bool(moved or changed)

    # ------------------------------------------------------------------ changing quotas

    @property
    def quotas(self) -> ConfiguredQuotas:
        """The configured quotas that the callback has been told of."""
        return self._quotas

    def apply(self, changes: Iterable[QuotaChange]) -> None:
        """Put a batch of configured quotas in force; counters keep their contents."""
        batch = tuple(changes)
        self.quotas_version += 1
        self._quotas = self._quotas.with_changes(batch)
        for change in batch:
            tell(self.callback, change)
        for quota_type in dict.fromkeys(change.quota_type for change in batch):
            is_reset = self.callback.quota_reset_required(quota_type)
            texts = only_texts(self.callback, batch, quota_type)
            if texts is not None:
                texts = self._factored.with_those_apart(quota_type, texts)
            self._look_again(quota_type, is_reset=is_reset, texts=texts)

    def replace_quotas(self, quotas: ConfiguredQuotas) -> None:
        """Put these quotas in force in place of all others."""
        self.apply(self._quotas.changes_to(quotas))

    def replace_callback(
        self,
        callback: ClientQuotaCallback,
        *,
        by_broker: bool,
        answers: Mapping[Question, Answer],
    ) -> None:
        """Put another callback in force; counters keep their contents, and all clients are looked up anew.

        Args:
            callback: the quotas in force are its ``initial_quotas`` from now on.
            by_broker: whether its limits can differ from broker to broker.
            answers: what it has answered already, where it does not answer at once.
        """
        self.callback = callback
        self._answers.replace_all(by_broker=by_broker)
        for question, answer in answers.items():
            self._answers.put(self._answers.question(question.key), answer)
        self._quotas = callback.initial_quotas
        self._counters.begin_generation(self._answers.generation)
        lanes = [*self._counters.all(), *self._clients.values()]
        self._clients.clear()
        _outdate(lanes, ())

    def refresh(self) -> bool:
        """Ask the callback whether anything changed by other means; call it now and then.

        Returns:
            True when it has: running mutes may be other ones now.
        """
        changed = [kind for kind in QuotaType if self.callback.quota_reset_required(kind)]
        self.reset(changed)
        return bool(changed)

    def reset(self, quota_types: Iterable[QuotaType]) -> None:
        """Tags and limits of these types may be others now."""
        for quota_type in quota_types:
            self._look_again(quota_type, is_reset=True)

    def set_limit(
        self, quota_type: QuotaType, limit: float | None, *, tags: str, node_id: int | None = None
    ) -> None:
        """Replace the configured limit of the counters with these tags, until the callback is asked."""
        _wake_waiters(self._counters.set_limit(quota_type, limit, tags=tags, node_id=node_id))

    def set_factor(
        self,
        quota_type: QuotaType,
        factor: float,
        *,
        node_id: int | None = None,
        tags: str | None = None,
    ) -> None:
        """Multiply the limits of a type, of one broker or one counter; of counters made later, too.

        What is said of a type, of a broker and of a counter is multiplied; 1 takes one of them back.

        Raises:
            ValueError: a factor below 0, or none that is finite.
        """
        _wake_waiters(self._counters.set_factor(quota_type, factor, node_id=node_id, tags=tags))

    def replace_factored(self, factored: Factored) -> None:
        """Let factors reach these from now on; what lies over limits stays."""
        if factored == self._factored:
            return
        self._factored = factored
        outdated = self._forget_clients(lambda _: True)
        _outdate([*self._counters.all(), *outdated], ())

    def replace_countings(
        self,
        windows: Mapping[QuotaType, QuotaWindow],
        buckets: Mapping[QuotaType, BucketSettings] = _NO_BUCKETS,
    ) -> None:
        """Count by other windows and algorithms from now on.

        A counter under another algorithm or window of samples starts anew when it is charged; another
        burst keeps what is owed. (Kafka changes windows by a restart, which forgets all counters.)

        Raises:
            ValueError: a bucket for a type that is not bandwidth.
        """
        _wake_waiters(self._counters.set_countings(countings(windows, buckets)))

    def outdate(self, quota_type: QuotaType) -> None:
        """Whoever keeps a lane of this type asks for it again: its holders treat it otherwise now."""
        for lane in dict.fromkeys((*self._counters.of_type(quota_type), *self._clients.values())):
            if lane.quota_type is quota_type:
                lane.outdate()

    def give_back(self, receipt: Receipt, value: int, now_ms: int) -> int:
        """Give back what is left of so much of a charge; returns how much of it that is."""
        if not self._counters.has(receipt.lane):
            return 0
        return receipt.give_back(value, now_ms)

    def purge_expired(self, now_ms: int) -> int:
        """Free counters without a record for over 3600 s, in a crowd earlier; returns how many.

        No decision differs for it. ``Counters`` says when it is earlier.
        """
        return self._purge(now_ms, len(self._counters))

    def purge_some(self, now_ms: int) -> bool:
        """Look at the next ``PURGE_STEP`` counters and free the idle ones, some ms of work.

        Returns:
            True while they are a crowd: call it again soon.
        """
        self._purge(now_ms, PURGE_STEP)
        return self._counters.is_crowd

    @property
    def counters_lost(self) -> int:
        """How many counters were forgotten although they still counted, because there were too many."""
        return self._counters.lost

    def _purge(self, now_ms: int, at_most: int) -> int:
        forgotten, outdated = self._counters.purge(now_ms, at_most=at_most)
        for lane in outdated:
            lane.outdate()
        return forgotten

    def _look_again(
        self, quota_type: QuotaType, *, is_reset: bool, texts: Sequence[str] | None = None
    ) -> None:
        """Put in force what the callback says now, of all counters or of those with these tags."""
        changed: list[Lane] = []
        if self.callback.answers_at_once:
            limit, by_node = partial(limit_of, self.callback), self._answers.by_broker
            changed = self._counters.ask_limits(quota_type, limit, by_node=by_node, texts=texts)
        else:
            # It cannot be asked here, and any change may have led clients to other counters.
            is_reset = True
            self._answers.reset(quota_type)
        if is_reset:
            outdated = self._forget_clients(lambda client: client[0] is quota_type)
            _outdate([*self._counters.of_type(quota_type), *outdated], changed)
        else:
            _wake_waiters(changed)

    def _forget_clients(self, is_meant: Callable[[_Client], bool]) -> list[Lane]:
        """Forget which lanes these clients have; returns the lanes, which may repeat."""
        clients = {key: lane for key, lane in self._clients.items() if is_meant(key)}
        for key in clients:
            del self._clients[key]
        return list(clients.values())


def _outdate(lanes: Iterable[Lane], changed: Iterable[Lane]) -> None:
    """Outdate these lanes, and wake who waits for them or for those that have changed already."""
    # Each once, and in their own order, not a set's: runs must repeat.
    outdated = dict.fromkeys(lanes)
    for lane in outdated:
        lane.version += 1
        lane.moves += 1
    _wake_waiters(dict.fromkeys([*outdated, *changed]))


def _wake_waiters(lanes: Iterable[Lane]) -> None:
    for lane in lanes:
        lane.wake_waiters()
