"""The gateway's driver in simulated time: performs what a connection's machine says, as the real one does."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, cast

from tests.simulation.asked_callback import Asking
from tests.simulation.pipe import Pipe
from tests.simulation.request_time import RequestTimes
from tests.simulation.timeline import Timeline, Timer
from tests.simulation.watch import Watch

from kvota.engine import Question
from kvota.model.errors import ProtocolError
from kvota.session.commands import Do
from kvota.session.connection import Connection
from kvota.session.due import Due
from kvota.session.pausing import Pausing, Reason
from kvota.session.step_work import StepWork
from kvota.session.topology import UNKNOWN_NODE
from kvota.testing.scripted_broker import Reply
from kvota.testing.stage import Cluster

if TYPE_CHECKING:
    from tests.simulation.brokers import BrokerEnd

Dial = Callable[["Relay"], "tuple[Pipe, Pipe, BrokerEnd] | None"]

_DIAL_US = (0, 300, 5_000, 400_000)
_LATE_US = (0, 0, 0, 300, 20_000, 250_000)


class _LoggedPausing(Pausing):
    """Keeps a list of the mutes."""

    def __init__(self, watch: Watch, *, cap_ms: int) -> None:
        super().__init__(cap_ms=cap_ms)
        self._watch = watch

    def mute(self, throttle_ms: int) -> None:
        watch = self._watch
        watch.mutes.append((next(watch.rows.ticks), watch.clock.monotonic_ms(), throttle_ms))
        super().mute(throttle_ms)


class _Impatient(StepWork):
    """Finds that others come first at any time."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng

    def is_enough(self, work_us: int, now_us: int) -> bool:
        return self._rng.random() < 0.3


class Relay:
    """One client's connection through the gateway, both ends.

    Args:
        cluster: what all connections share.
        timeline: simulated time.
        rng: draws how late timers are.
        watch: sees every byte that goes in or out.
        asking: answers questions to the quota callback.
        cap_ms: how long one mute lasts at most.
        dial: connects to the broker: the pipe up, the pipe down, its end; None: nobody is there.
        times: draws how long steps take.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        rng: Random,
        watch: Watch,
        asking: Asking,
        *,
        cap_ms: int,
        dial: Dial,
        times: RequestTimes | None = None,
    ) -> None:
        self.watch = watch
        self.closed = False
        self.due_at_close = 0  # answers that had not come: the machine forgets them when it closes
        self.largest_piece = 0
        self.broker: BrokerEnd | None = None
        self.pausing = _LoggedPausing(watch, cap_ms=cap_ms)
        self.machine = Connection(
            cluster.shared,
            self.pausing,
            number=watch.number,
            dialled=watch.dialled,
            node_id=watch.node_id if watch.knows_node else UNKNOWN_NODE,
            client_host="192.0.2.1",
            wake=self._wake,
        )
        if rng.random() < 0.3:
            self.machine.caller._work = _Impatient(rng)
            self.machine._answers._spent = _Impatient(rng)
        self._cluster = cluster
        self._times = times
        self._charge_time_or_not()
        self._clock = cluster.clock
        self._timeline = timeline
        self._rng = rng
        self._dial = dial
        self._asking = asking
        self._up: Pipe | None = None
        self._down: Pipe | None = None
        self._before_dialled: list[bytes | bytearray] | None = None
        self._timer: Timer | None = None
        self._eof = False
        self._open_question: Question | None = None

    def serve(self, incoming: Pipe, outgoing: Pipe) -> None:
        """A client has connected."""
        self._incoming, self._outgoing = incoming, outgoing
        incoming.on_data = self._received
        incoming.on_end = self._half_closed
        outgoing.on_full = self._client_full

    @property
    def replies(self) -> list[Reply]:
        """What the broker has made of what has reached it, in order."""
        return self.broker.replies if self.broker else []

    # ------------------------------------------------------------------ the client's end

    def _received(self, data: bytes) -> None:
        self.largest_piece = max(self.largest_piece, len(data))
        self._step(partial(self.machine.from_client, data, self._clock.now_us()))
        self._settle()
        self._took(data)

    def _half_closed(self) -> None:
        if self._up is None and self._before_dialled is None:
            self.close()
            return
        self._eof = True
        self._pass_eof()

    def client_gone(self) -> None:
        """Reset: nothing reaches it any more, and what it sent and was not read is lost."""
        self._incoming.leave()
        self.close()

    def _client_full(self, full: bool) -> None:
        if self.closed:
            return
        if full:
            self.pausing.reasons |= Reason.CLIENT_FULL
            self._set_reading()
        else:
            self._resume(Reason.CLIENT_FULL)
        self._read_down()

    def _read_down(self) -> None:
        """Read the broker on, or not, as client and machine have it."""
        if self._down is None or self.closed:
            return
        if self.machine.leaves_upstream_unread or self.pausing.reasons & Reason.CLIENT_FULL:
            self._down.pause()
        else:
            self._down.resume()

    # ------------------------------------------------------------------ performing

    def _settle(self) -> None:
        """Commands, the deadline, reading or not: after every call of the machine."""
        commands = self.machine.commands
        while commands and not self.closed:
            self._perform(*commands.pop(0))  # which may add others
        if self.closed:
            return
        self.watch.check_progress(self.machine)
        if self.pausing.deadline_changed:
            self._set_timer()
        self._set_reading()
        self._pass_eof()
        reasons = self.pausing.reasons
        # What waits for the broker to accept is on its way: a record with acks = 0 is not due any more.
        is_over = self.machine.idle and not reasons & Reason.DIALLING
        if reasons & Reason.DRAINING and is_over:
            self.close()

    def drain(self) -> None:
        """The gateway stops: take no further request; what is half here and what is due go on."""
        if self.machine.is_in_line and not self.closed:
            self.watch.broker_gone = True
            self.close()
        if not self.closed:
            self.watch.drained = True
            self.pausing.reasons |= Reason.DRAINING
            self._settle()

    def _resume(self, reason: int) -> None:
        self._step(partial(self.machine.resume, reason, self._clock.now_us()))
        self._settle()
        self._took()

    def _took(self, data: bytes | None = None) -> None:
        """Where time is charged: a step, with ``data`` of the client, has taken some."""
        request_time = self.machine.request_time
        if self._times is None or request_time is None or self.closed:
            return
        spent_ns, now_us = self._times.spend(self.watch.number), self._clock.now_us()
        if data is None:
            request_time.took(spent_ns, now_us)
        else:
            request_time.took_from_client(data, spent_ns, now_us)
        self._settle()

    def _charge_time_or_not(self) -> None:
        self.machine.charge_time(is_charged=self._cluster.shared.charges_time)

    def _perform(self, code: int, argument: object) -> None:
        match code:
            case Do.SEND_CLIENT:
                self._deliver(cast("bytes", argument))
            case Do.SEND_UPSTREAM:
                self._forward(cast("bytes", argument))
            case Do.RESUME | Do.YIELD:
                now_us = self._clock.now_us()
                self._step(partial(self.machine.resume, cast("int", argument), now_us))
            case Do.ASK:
                self._ask(*cast("tuple[int, Question]", argument))
            case Do.FIND_NODE:
                self._timeline.after_us(self._rng.choice(_DIAL_US), self._located)
            case Do.READ_UPSTREAM:
                self._read_down()
            case Do.STEP | Do.BREATHE:
                self._read_down()
                later = self._work if code == Do.STEP else self._read_on
                self._timeline.after_us(self._rng.choice((0, 0, 700)), later)
            case Do.CLOSE:
                self.watch.broker_gone = True  # what has gone up may lose its answer
                self.close()
            case Do.WARN:
                pass
            case _:
                msg = f"unknown command {code}"
                raise AssertionError(msg)

    def _step(self, step: Callable[[], bytes | bytearray | None]) -> None:
        try:
            self._forward(step())
        except ProtocolError:
            if not self.watch.login_failed:  # whoever goes on behind that is sent away
                raise
            self.watch.broker_gone = True
            self.close()

    def _ask(self, token: int, question: Question) -> None:
        if question == self._open_question:
            raise self.watch.fail(f"asked again before there was an answer: {question}")
        self._open_question = question
        self._asking.ask(question, partial(self._resolved, token))

    def _resolved(self, token: int, result: object) -> None:
        self._open_question = None
        if not self.closed:
            self._step(partial(self.machine.resolved, token, result, self._clock.now_us()))
            self._settle()

    def _located(self) -> None:
        """Names have been looked up: which broker has been reached."""
        if not self.closed:
            assert self.broker is not None, "the question was answered"
            self._forward(self.machine.located(self.broker.node_id, self._clock.now_us()))
            self._settle()

    def look_again(self) -> None:
        """Quotas have changed."""
        if not self.closed:
            self._charge_time_or_not()
            self.machine.look_again(self._clock.now_us())
            self._settle()

    def _set_reading(self) -> None:
        if self.machine.pauses_reading:
            self._incoming.pause()
        else:
            self._incoming.resume()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self.machine.next_deadline_ms(self._clock.monotonic_ms())
        if deadline_ms is not None:
            early_us = deadline_ms * 1000 - self._timeline.now_us
            late_us = self._rng.choice(_LATE_US)
            self._timer = self._timeline.after_us(max(0, early_us) + late_us, self._deadline)

    def _deadline(self) -> None:
        now_ms, now_us = self._clock.monotonic_ms(), self._clock.now_us()
        self._step(partial(self.machine.deadline_passed, now_ms, now_us))
        self._settle()
        self._took()

    def _wake(self) -> None:
        self._timeline.after_us(self._rng.choice((0, 0, 700)), self._woken)

    def _work(self) -> None:
        if not self.closed:
            self._step(partial(self.machine.step, self._clock.now_us()))
            self._settle()
            self._took()

    def _read_on(self) -> None:
        if not self.closed:
            self._deliver(self.machine.read_on(self._clock.now_us()))
            self._settle()
            self._read_down()
            self._took()

    def _woken(self) -> None:
        if self.closed:
            self.machine.pass_room_on()
            return
        self._step(partial(self.machine.woken, self._clock.now_us()))
        self._settle()

    def _deliver(self, data: bytes | bytearray | None) -> None:
        if data:
            self.watch.delivered(data)
            self._outgoing.send(data)

    # ------------------------------------------------------------------ the broker's end

    def _forward(self, data: bytes | bytearray | None) -> None:
        if not data:
            return
        self.watch.forwarded(data)
        if self._up is not None:
            self._up.send(data)
        elif self._before_dialled is not None:
            self._before_dialled.append(data)
        else:
            self._before_dialled = [data]
            self.pausing.reasons |= Reason.DIALLING
            self._timeline.after_us(self._rng.choice(_DIAL_US), self._dialled)

    def _dialled(self) -> None:
        if self.closed:
            return
        reached = self._dial(self)
        if reached is None:
            self.watch.broker_gone = True
            self.close()
            return
        self._up, self._down, self.broker = reached
        node_id, watch = self.broker.node_id, self.watch
        if self.machine.caller.node_id == UNKNOWN_NODE:
            watch.node_ids = {node_id}  # nothing is charged before it is found out
        if node_id != watch.node_id:
            watch.node_ids.add(node_id)
            known = node_id if watch.knows_node else UNKNOWN_NODE
            self.machine.redialled(self.broker.address, known)
        self._up.on_full = self._broker_full
        self._down.on_data = self._answered
        self._down.on_end = self._broker_closed
        waiting, self._before_dialled = self._before_dialled or [], None
        for data in waiting:
            self._up.send(data)
        self._resume(Reason.DIALLING)

    def _answered(self, data: bytes) -> None:
        if self.closed:
            return
        self.watch.fed(data)
        self._deliver(self.machine.from_upstream(data, self._clock.now_us()))
        self._settle()
        self._took()

    def _broker_full(self, full: bool) -> None:
        if self.closed:
            return
        if full:
            self.pausing.reasons |= Reason.UPSTREAM_FULL
            self._set_reading()
        else:
            self._resume(Reason.UPSTREAM_FULL)

    def _broker_closed(self) -> None:
        self.machine.upstream_gone()
        self.close()

    def _pass_eof(self) -> None:
        """The client sends no more, and all it has sent has gone on: the broker may know."""
        if self._eof and self._up is not None and not self.pausing.reasons:
            self._up.finish()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Client and broker are left; where half a frame is with the broker, it closes first."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.due_at_close = self.machine.due_count
        if self.machine.leaves_upstream_unread:
            due = (entry[1] for entry in self.machine.caller.due)
            self.watch.forget_unread(sum(code != Due.LOCAL for code in due))
        self.machine.close()
        self.machine.give_back_missing(self._clock.now_us())
        self._incoming.leave()
        self._outgoing.finish()
        if self._up is None:
            self.machine.upstream_gone()
            return
        self._up.finish()
        if self._down is not None:
            self._down.resume()
