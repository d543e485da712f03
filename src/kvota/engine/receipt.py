"""What is left of a charge when its request never comes whole: a part of it can be given back.

A credit must not outlive its charge. A sampled rate forgets the charge with its sample, so there is
nothing to give back once that is over. A debt is paid by time, so of a charge that cost ``c`` seconds at
most ``c`` minus the time since is left in the bucket, whatever else was charged: who gives back no more
than that is where the bucket would be without the missing part, or behind it, and the bound of
``engine.debt_bucket`` holds for what has come.
"""

from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.lane import Lane
from kvota.engine.sampled_rate import SampledRate


class Receipt:
    """Of one charge of bandwidth; made as soon as it has been counted.

    Args:
        lane: that was charged.
        now_ms: when.
    """

    __slots__ = ("_counter", "_limit", "_mark", "_now_ms", "_was_blocked", "lane")

    def __init__(self, lane: Lane, now_ms: int) -> None:
        self.lane = lane
        self._counter = counter = lane.counter
        self._limit = lane.limit
        self._was_blocked = lane.is_blocked  # such a charge adds no debt
        self._now_ms = now_ms
        self._mark: object = None
        if isinstance(counter, SampledRate | DebtBucket):
            self._mark = counter.mark()

    def give_back(self, value: int, now_ms: int) -> int:
        """Give back what is left of so much of the charge; returns how much of it that is.

        Nothing where the lane counts in another counter by now. The caller has made sure that the
        engine still keeps the lane.
        """
        lane, counter = self.lane, self._counter
        if counter is None:
            return value if lane.counter is None else 0  # it was only observed
        if lane.counter is not counter or not lane.is_counting_so:
            return 0
        if isinstance(counter, SampledRate):
            given = counter.left_of(value, self._mark, now_ms)
            if given:
                counter.charge(-given, now_ms)
            return given
        if not isinstance(counter, DebtBucket) or lane.is_blocked or self._was_blocked:
            return 0
        assert isinstance(self._mark, int)
        given = counter.left_of(value, self._limit, self._now_ms, self._mark, now_ms)
        if given:
            counter.admit(-given, now_ms)
            lane.wake_next()
        return given
