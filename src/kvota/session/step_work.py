"""How much of one step's time a connection has had: what is left of a segment waits until others had theirs."""

# Some ms: so long everybody else's next request waits.
STEP_WORK_US = 2_000


class StepWork:
    """What one direction of a connection has done in this step, each thing for what it costs at the worst."""

    __slots__ = ("_done_us", "_step_us")

    def __init__(self) -> None:
        self._step_us = 0
        self._done_us = 0

    def is_enough(self, work_us: int, now_us: int) -> bool:
        """So much more was done at this time (a step has one); true when others have to come first now."""
        if now_us != self._step_us:
            self._step_us, self._done_us = now_us, 0
        self._done_us += work_us
        if self._done_us < STEP_WORK_US:
            return False
        self._step_us = 0  # what comes next is another step, perhaps at the same time
        return True
