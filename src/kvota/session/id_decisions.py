"""Decisions about the producer ids of a request, and the rows that are recorded of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kvota.engine.producer_ids import NEW, ProducerIds
from kvota.model.decision_sink import ADMITTED, REJECTED, ChargeMemo
from kvota.model.quota_type import CLUSTER_NODE_ID, Algorithm, QuotaType
from kvota.model.tags import USER_TAG, tags_text
from kvota.wire.steps import Steps

# Of the ids of a step that are answered alike, so many have a row each: clients that are no attack bring one or two.
_NAMED_IDS = 10


class Asker(NamedTuple):
    """On whose behalf batches are judged.

    Attributes:
        user: the authenticated name.
        connection: number of the client's connection, 1 or more.
        enforced: false in shadow mode: new ids are counted, and none is refused.
        awaits_answer: its acks are not 0. Who awaits none sends nothing again, and takes no answer for another one's:
            nothing has to be kept back behind what is refused.
    """

    user: str
    connection: int
    enforced: bool
    awaits_answer: bool


class Decisions(NamedTuple):
    """Which ids were decided on at one time, and how: what there are rows of.

    Attributes:
        asker: whose they are.
        rate: new ids per window, by which it was decided.
        window_ms: length of the window.
        at_us: when, Unix µs.
        new: have cost a token each.
        over: came behind these, and are over the quota; in shadow mode they go on.
        over_ms: for how long they are refused; 0: none is.
        owed_ms: what the user's counter owed before, where it has begun with these; else None.
    """

    asker: Asker
    rate: float
    window_ms: int
    at_us: int
    new: Sequence[int]
    over: Sequence[int]
    over_ms: int
    owed_ms: int | None

    def rows(
        self, *, client_id: str, api_key: int, api_version: int
    ) -> Iterator[tuple[ChargeMemo, int, int, int]]:
        """What is recorded of them, in order: memo, number of ids, throttle in ms, outcome.

        A row for each id; of more than a few with one answer, the rest are a row without an id.
        """
        owed_ms = self.owed_ms
        for ids, throttle_ms, outcome in (
            (self.new, 0, ADMITTED),
            (self.over, self.over_ms, REJECTED),
        ):
            named: list[int | None] = [*ids[:_NAMED_IDS]]
            rest = len(ids) - len(named)
            for producer_id in [*named, None] if rest else named:
                memo = self._memo(client_id, (api_key, api_version), owed_ms, producer_id)
                owed_ms = None
                yield memo, rest if producer_id is None else 1, throttle_ms, outcome

    def _memo(
        self, client_id: str, api: tuple[int, int], owed_ms: int | None, producer_id: int | None
    ) -> ChargeMemo:
        return ChargeMemo(
            node_id=CLUSTER_NODE_ID,
            quota_type=QuotaType.PRODUCER_ID,
            connection=self.asker.connection,
            user=self.asker.user,
            client_id=client_id,
            tags=tags_text({USER_TAG: self.asker.user}),
            api_key=api[0],
            api_version=api[1],
            limit=self.rate * 1000.0 / self.window_ms,
            samples=1,
            sample_ms=self.window_ms,
            algorithm=Algorithm.TOKEN_BUCKET,
            enforced=self.asker.enforced,
            owed_ms=owed_ms,
            producer_id=producer_id,
        )


class Deciding:
    """Decides on each id of a request once, step by step, and tells of it before others can come between.

    Args:
        ids: what is known of all users'.
        asker: whose request it is.
        rate: tells the quota, new ids per window; None: there is none.
        now_us: tells the time, Unix µs.
        note: is told of decisions at the end of each step that has any.

    Attributes:
        now_ms: Unix ms, of this step.
        throttle_ms: the longest that any id is refused for; 0: none is.
    """

    __slots__ = (
        "_asker",
        "_at_us",
        "_ids",
        "_lets_on",
        "_new",
        "_note",
        "_now_us",
        "_over",
        "_over_ms",
        "_rate",
        "_rate_now",
        "now_ms",
        "throttle_ms",
    )

    def __init__(
        self,
        ids: ProducerIds,
        asker: Asker,
        *,
        rate: Callable[[], float | None],
        now_us: Callable[[], int],
        note: Callable[[Decisions], object],
    ) -> None:
        self._ids = ids
        self._asker = asker
        self._rate_now, self._now_us = rate, now_us
        self._note = note
        self._lets_on: dict[int, bool] = {}
        self._rate: float | None = None
        self._new: list[int] = []
        self._over: list[int] = []
        self._at_us = self._over_ms = self.now_ms = self.throttle_ms = 0
        self._begin()

    def others_turn(self) -> Steps[None]:
        """End a step, and begin the next one when others have had their turn."""
        self.tell()
        yield None
        self._begin()

    def _begin(self) -> None:
        """Begin a step with the quota that is in force now."""
        self._rate, self._at_us = self._rate_now(), self._now_us()
        self.now_ms = self._at_us // 1000
        self._new, self._over, self._over_ms = [], [], 0

    def lets_on(self, producer_id: int, *, has_written: bool) -> bool:
        """True where the id is known, or costs a token that is there.

        ``has_written``: before there was a rate, which does not make it new.
        """
        found = self._lets_on.get(producer_id)
        if found is not None:
            return found
        if has_written and self._rate is not None:
            self._ids.learn(self._asker.user, self._rate, producer_id, self.now_ms)
        answer = self._ids.admit(self._asker.user, self._rate, producer_id, self.now_ms)
        if answer == NEW:
            self._new.append(producer_id)
        elif answer > 0:
            self._over.append(producer_id)
            self._over_ms = answer
            self.throttle_ms = max(self.throttle_ms, answer)
        self._lets_on[producer_id] = answer <= 0
        return answer <= 0

    def knows(self, producer_id: int) -> bool:
        """True where the id would be let on for nothing."""
        rate = self._rate
        return rate is None or self._ids.knows(self._asker.user, rate, producer_id, self.now_ms)

    def tell(self) -> None:
        """End a step."""
        if self._rate is None or not (self._new or self._over):
            return
        owed_ms = self._ids.take_untold_ms(self._asker.user)
        window_ms = self._ids.memory.layering.window_ms
        decided = (self._new, self._over, self._over_ms, owed_ms)
        self._note(Decisions(self._asker, self._rate, window_ms, self._at_us, *decided))
