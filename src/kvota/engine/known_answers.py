"""What a quota callback has answered about clients, for one that is not asked on the spot."""

from collections import OrderedDict

from kvota.engine.question import Answer, ClientKey, Question
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType, counter_node_id


class KnownAnswers:
    """The last answer of each client counts until there is another one.

    A reset makes all answers of a type old: they are due to be asked again, and so is what another callback
    has answered in place of the one in force. Clients choose their ids, so this has an end; the first
    remembered is the first forgotten.

    Attributes:
        generation: how many callbacks there have been.
        by_broker: whether limits can differ from broker to broker.
    """

    __slots__ = ("_by_client", "_due", "_most", "_reset_counts", "by_broker", "generation")

    def __init__(self, *, most: int, by_broker: bool) -> None:
        self.generation = 1
        self.by_broker = by_broker
        self._most = most
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._by_client: OrderedDict[ClientKey, tuple[int, Answer]] = OrderedDict()
        self._due: dict[ClientKey, None] = {}
        self._reset_counts = dict.fromkeys(QuotaType, 0)

    def __len__(self) -> int:
        """Of how many clients something is known."""
        return len(self._by_client)

    def key(self, quota_type: QuotaType, node_id: int, user: str, client_id: str) -> ClientKey:
        """Under which a client's answer is remembered."""
        node = counter_node_id(quota_type, node_id) if self.by_broker else CLUSTER_NODE_ID
        return quota_type, node, user, client_id

    def get(self, key: ClientKey) -> Answer | None:
        """The last answer about a client; None: there was none."""
        found = self._by_client.get(key)
        return None if found is None else found[1]

    def question(self, key: ClientKey) -> Question:
        """What to ask about a client now."""
        quota_type, node_id, user, client_id = key
        return Question(
            quota_type=quota_type,
            node_id=node_id,
            user=user,
            client_id=client_id,
            reset_count=self._reset_counts[quota_type],
            generation=self.generation,
        )

    def is_older(self, question: Question) -> bool:
        """True where the answer to this question is older than what is known, or another callback's."""
        if question.generation != self.generation:
            return True
        known = self._by_client.get(question.key)
        return known is not None and not known[1].is_fallback and known[0] > question.reset_count

    def put(self, question: Question, answer: Answer) -> Answer | None:
        """Remember an answer; returns the one before it."""
        key = question.key
        before = self._by_client.get(key)
        if before is None and len(self._by_client) >= self._most:
            first, _ = self._by_client.popitem(last=False)
            self._due.pop(first, None)
        self._by_client[key] = question.reset_count, answer
        if answer.is_fallback or question.reset_count != self._reset_counts[question.quota_type]:
            self._due[key] = None
        else:
            self._due.pop(key, None)
        return None if before is None else before[1]

    def reset(self, quota_type: QuotaType) -> None:
        """All answers of this type are old."""
        self._reset_counts[quota_type] += 1
        self._due |= dict.fromkeys(key for key in self._by_client if key[0] is quota_type)

    def replace_all(self, *, by_broker: bool) -> None:
        """Another callback is in force: what was answered before is forgotten, and what is still to come."""
        self.generation += 1
        self.by_broker = by_broker
        self._by_client.clear()
        self._due.clear()

    def due(self) -> list[Question]:
        """What is to be asked again."""
        return [self.question(key) for key in self._due]
