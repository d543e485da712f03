"""The sampled rate of REQUEST: the share of one thread that a client's requests take, in percent.

A charge is the time that a thread spent. Its unit is the percent-second, 10 ms of a thread; it is counted in
whole parts of it, so that sums are exact in any order and a charge takes the fast way of ``SampledRate``. The
part is a power of two: a limit times it is exact, too, and every rate is Kafka's to the bit for what was charged.
"""

from kvota.engine.arithmetic import UNLIMITED, request_throttle, saturate_to_int32
from kvota.engine.sampled_rate import SampledRate
from kvota.model.quota_window import QuotaWindow

# One is 76 ns of a thread.
COUNTS_PER_PERCENT_S = 2**17
_NS_PER_PERCENT_S = 10_000_000


def counted(spent_ns: int) -> tuple[int, int]:
    """Whole counts of the time a thread has spent (0 or more), and the ns that are left of it.

    >>> counted(10_000_000), counted(100)
    ((131072, 0), (1, 23))
    """
    counts = spent_ns * COUNTS_PER_PERCENT_S // _NS_PER_PERCENT_S
    return counts, spent_ns - -(-counts * _NS_PER_PERCENT_S // COUNTS_PER_PERCENT_S)


def percent_seconds(counts: int) -> float:
    """So many counts, as rows and limits have them; exact.

    >>> percent_seconds(65536)
    0.5
    """
    return counts / COUNTS_PER_PERCENT_S


class ThreadShare(SampledRate):
    """Charged in counts; its limit, rate and allowance are percent of one thread and percent-seconds.

    The throttle is one sample at most.
    Source: Kafka ``ClientRequestQuotaManager`` (KIP-124).

    >>> share = ThreadShare(QuotaWindow(11, 1000), 1.0)
    >>> [share.charge(counted(spent_us * 1_000)[0], 0) for spent_us in (100_000, 2_500, 5_000_000)]
    [0, 250, 1000]
    >>> share.peek_rate(0)
    51.025
    """

    __slots__ = ()

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit, in percent of one thread; None: unlimited."""
        super().configure(window, None if limit is None else limit * COUNTS_PER_PERCENT_S)

    def charge(self, value: float, now_ms: int, /) -> int:
        """Record counts, then check: 0 within the limit, else the throttle in ms."""
        if not super().charge(value, now_ms):
            return 0
        return self.peek(now_ms)

    admit = charge

    def refuse(self, value: float, now_ms: int, /) -> int:
        """The throttle of a charge that is taken back at once."""
        throttle_ms = self.charge(value, now_ms)
        self.record(-value, now_ms)
        return throttle_ms

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told; changes nothing."""
        total, window_ms = self._foresee(now_ms)
        return request_throttle(total, self._limit, window_ms, self._next_window.sample_ms)

    def measure(self, now_ms: int) -> float:
        """The rate in percent of one thread; starts expired samples anew, as Kafka."""
        return super().measure(now_ms) / COUNTS_PER_PERCENT_S

    def peek_rate(self, now_ms: int) -> float:
        """The rate in percent of one thread that ``measure`` would give; changes nothing."""
        return super().peek_rate(now_ms) / COUNTS_PER_PERCENT_S

    def allowance(self, now_ms: int, /) -> int:
        """Whole percent-seconds that a charge may take before it violates."""
        if self._limit == UNLIMITED:
            return super().allowance(now_ms)
        total, window_ms = self._foresee(now_ms)
        room = (self._limit * (window_ms / 1000.0) - total) / COUNTS_PER_PERCENT_S
        return max(saturate_to_int32(room), 0)
