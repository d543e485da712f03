"""The brokers of a world: scripted ones at the other end of the gateway's connections."""

from random import Random

from kio.schema.errors import ErrorCode
from tests.simulation.pipe import Pipe
from tests.simulation.timeline import Timeline
from tests.simulation.watch import Watch

from kvota.testing.script import Script
from kvota.testing.scripted_broker import Reply, ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster

# Larger than what the session waits for whole.
_STREAMED_BYTES = 150_000


class DrawnScript(Script):
    """Late answers, errors, throttle times of the broker's own, answers of all sizes.

    Half of the connections get Fetch answers of one size: there is always more to read.
    """

    def __init__(self, rng: Random, cluster: ScriptedCluster) -> None:
        self._rng = rng
        self._cluster = cluster
        self._steady_bytes = rng.choice((None, None, None, 3_000, 30_000, 120_000, _STREAMED_BYTES))
        self._naming = rng.choice((0.1, 0.7))

    def delay_ms(self, key: int) -> int:
        return self._rng.choice((0, 0, 1, 5, 30, 200, 900))

    def throttle_ms(self, key: int) -> int:
        return self._rng.choice((0, 0, 0, 0, 0, 7, 800, 60_000))

    def produce_error(self) -> int:
        return self._rng.choice((0, 0, 0, ErrorCode.not_leader_or_follower.value))

    def authenticate_error(self) -> int:
        failed = ErrorCode.sasl_authentication_failed.value
        return failed if self._rng.random() < 0.1 else 0

    def fetched_bytes(self) -> int:
        if self._steady_bytes is not None:
            return self._steady_bytes
        return self._rng.choice((0, 50, 50, 2_000, 2_000, 9_000, 40_000, _STREAMED_BYTES))

    def fetched_partitions(self) -> int:
        return 1 if self._steady_bytes is not None else self._rng.choice((0, 1, 1, 3))

    def named_nodes(self, key: int) -> tuple[int, ...]:
        return tuple(self._cluster.brokers) if self._rng.random() < self._naming else ()


class BrokerEnd:
    """A broker's end of one connection: takes requests, answers them in order, each after a while.

    Attributes:
        replies: what became of each request, in order.
        gone: the broker has left in the middle of things.
    """

    def __init__(
        self,
        timeline: Timeline,
        scripted: ScriptedBroker,
        watch: Watch,
        *,
        incoming: Pipe,
        outgoing: Pipe,
    ) -> None:
        self.replies: list[Reply] = []
        self.gone = False
        self._timeline = timeline
        self._scripted = scripted
        self._watch = watch
        self._outgoing = outgoing
        self._incoming = incoming
        self._ready_us = 0
        self._unsent = 0
        self._ended = False
        incoming.on_data = self._received
        incoming.on_end = self._gateway_left

    @property
    def node_id(self) -> int:
        return self._scripted.node_id

    @property
    def address(self) -> tuple[str, int]:
        return self._scripted.cluster.brokers[self.node_id]

    def die(self) -> None:
        """Gone, in the middle of an answer or of a request."""
        if not self.gone:
            self.gone = self._watch.broker_gone = True
            self._incoming.leave()
            self._outgoing.tear()

    def _received(self, data: bytes) -> None:
        for reply in self._scripted.receive(data):
            self.replies.append(reply)
            self._ready_us = max(self._ready_us, self._timeline.now_us + reply.delay_ms * 1000)
            self._unsent += 1
            self._timeline.after_us(
                self._ready_us - self._timeline.now_us, lambda reply=reply: self._answer(reply)
            )

    def _answer(self, reply: Reply) -> None:
        self._unsent -= 1
        if not self.gone:
            self._outgoing.send(reply.answer)
            if self._ended and not self._unsent:
                self._outgoing.finish()

    def _gateway_left(self) -> None:
        """No more requests: answer what there is, then close. Half a frame is worth nothing."""
        self._ended = True
        if not self._unsent:
            self._outgoing.finish()
