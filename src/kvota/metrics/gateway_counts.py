"""What a gateway counts of its connections while it runs; only its event loop writes here."""

from collections import Counter
from dataclasses import dataclass, field, replace

from kvota.metrics.histogram import Histogram


@dataclass(slots=True)
class GatewayCounts:
    """Counts since the gateway began to run.

    Attributes:
        accepted: connections that were let in.
        refused: connections that were not, by reason.
        closed: connections that have ended, by what ended them.
        bad_frames: bytes of clients that ended their connection, by reason.
        upstream_errors: what went wrong with brokers, by reason.
        reloads: of the files, by result.
        mute_lateness: of mutes that have ended by time.
        loop_lag: how late a timer of the event loop was.
        ticked_s: when that timer last fired, on the monotonic clock.
    """

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    bad_frames: Counter[str] = field(default_factory=Counter)
    upstream_errors: Counter[str] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=lambda: Counter(done=0, refused=0))
    mute_lateness: Histogram = field(default_factory=Histogram)
    loop_lag: Histogram = field(default_factory=Histogram)
    ticked_s: float = 0.0

    def copy(self) -> "GatewayCounts":
        """As they are now."""
        return replace(
            self,
            refused=self.refused.copy(),
            closed=self.closed.copy(),
            bad_frames=self.bad_frames.copy(),
            upstream_errors=self.upstream_errors.copy(),
            reloads=self.reloads.copy(),
            mute_lateness=self.mute_lateness.copy(),
            loop_lag=self.loop_lag.copy(),
        )
