"""What is left of a charge when its request never comes whole: a part of it can be given back.

Only a debt bucket is charged before all of a request is here. A credit must not outlive its charge: a debt
is paid by time, so of a charge that cost ``c`` seconds at most ``c`` minus the time since is left in the
bucket, whatever else was charged: who gives back no more than that is where the bucket would be without the
missing part, or behind it, and the bound of ``engine.debt_bucket`` holds for what has come.
"""

from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.lane import Lane


class Receipt:
    """Of one charge of bandwidth; made as soon as it has been counted.

    Args:
        lane: that was charged; it counts in a debt bucket.
        now_ms: when.
    """

    __slots__ = ("_counter", "_limit", "_mark", "_now_ms", "_was_blocked", "lane")

    def __init__(self, lane: Lane, now_ms: int) -> None:
        counter = lane.counter
        assert isinstance(counter, DebtBucket), "anything else is charged when all is here"
        self.lane = lane
        self._counter = counter
        self._limit = lane.limit
        self._was_blocked = lane.is_blocked  # such a charge adds no debt
        self._now_ms = now_ms
        self._mark = counter.mark()

    def give_back(self, value: int, now_ms: int) -> int:
        """Give back what is left of so much of the charge; returns how much of it that is.

        Nothing where the lane counts in another counter by now. The caller has made sure that the
        engine still keeps the lane.
        """
        lane, counter = self.lane, self._counter
        if lane.counter is not counter or not lane.is_counting_so:
            return 0
        if lane.is_blocked or self._was_blocked:
            return 0
        given = counter.left_of(value, self._limit, self._now_ms, self._mark, now_ms)
        if given:
            counter.admit(-given, now_ms)
            lane.wake_next()
        return given
