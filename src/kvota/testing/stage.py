"""A stage for one connection's machine: bytes go in by hand, time passes by hand, no sockets.

It performs the machine's commands as the gateway's driver does.

>>> from kvota.testing.frames import produce
>>> stage = Stage(Cluster(quotas(PRODUCE=1_000)))
>>> forwarded = stage.client(produce(records=bytes(60_000)))
>>> stage.muted, stage.client(produce())
(True, b'')
>>> len(stage.advance(60_000)) == len(produce())
True
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Question, QuotaEngine, QuotaWindow
from kvota.model.bucket_settings import BucketSettings
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import CONFIGURABLE_TYPES, QuotaType
from kvota.session.budget import AnnouncedBudgets
from kvota.session.commands import Do
from kvota.session.connection import Connection
from kvota.session.facts import ClusterFacts
from kvota.session.outside import Errand, FixedQuotas, QuotaSource, Refusal
from kvota.session.pausing import Pausing, Reason
from kvota.session.produce_quota import ProduceQuota
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.session.quota_admins import QuotaAdmins
from kvota.session.settings import ConnectionSettings
from kvota.session.shared import Shared
from kvota.session.topology import Advertised, Topology
from kvota.testing.manual_clock import ManualClock
from kvota.wire.error_code import ErrorCode

ALL_TYPES = frozenset(CONFIGURABLE_TYPES)
GATEWAY = "gateway.example"
NODE_PORT_BASE = 20_000
NO_CLIENT_QUOTAS = FixedQuotas(
    ClientQuotas(), Refusal(ErrorCode.POLICY_VIOLATION, "nothing is altered on this stage")
)
NO_ADMINS = QuotaAdmins()
BROKER = ("broker-1.inside", 9092)


class Row(NamedTuple):
    """One recorded charge."""

    memo: ChargeMemo
    seq: int
    ts_us: int
    value: float
    throttle_ms: int
    upstream_ms: int
    outcome: int

    def columns(self) -> tuple[object, ...]:
        """Everything the event says, comparable between runs."""
        memo = self.memo
        columns = (memo.node_id, memo.quota_type, memo.user, memo.client_id, memo.tags)
        window = (memo.api_key, memo.api_version, memo.limit, memo.samples, memo.enforced)
        return (*columns, *window, *self[1:])


class Rows:
    """A sink that keeps every row, in the order in which they were written."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._seq = 0

    def next_seq(self) -> int:
        """The next number of a decision, from 0 on."""
        self._seq += 1
        return self._seq - 1

    def append(  # noqa: PLR0917  (the protocol's signature)
        self,
        memo: ChargeMemo,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_throttle_ms: int,
        outcome: int,
        /,
    ) -> None:
        """Keep one row."""
        row = Row(memo, seq, ts_us, value, throttle_ms, upstream_throttle_ms, outcome)
        self.rows.append(row)


def quotas(entity: QuotaEntity | None = None, **limits: float) -> ConfiguredQuotas:
    """A table of one entity (every user), e.g. ``quotas(PRODUCE=1000)``."""
    given = {QuotaType(name): limit for name, limit in limits.items()}
    return ConfiguredQuotas({entity or QuotaEntity(user=DEFAULT): given})


@dataclass
class Cluster:
    """What the connections of one gateway share, and the clock.

    The one place of this kit that knows how an engine is made and given other quotas.

    Attributes:
        table: the quotas in force at the start.
        enforced: quota types in force; the others are in shadow mode.
        windows: of quota types that have another window than Kafka's default.
        budget_bytes: announced bytes on their way to one broker.
        limits: further ``ConnectionSettings``.
        nodes: the lowest and the highest node id the gateway serves.
        clock: time passes here only.
        sink: takes the rows.
        callback: decides who shares a counter; Kafka's own rules if None.
        produce_quotas, producer_ids: what a Produce is charged on beside its bytes.
        client_quotas: as Kafka's tools describe them.
        quota_admins: who may alter them where no authorizer can say.
        shows_certificate: brokers are shown the gateway's certificate.
    """

    table: ConfiguredQuotas = field(default_factory=ConfiguredQuotas)
    enforced: frozenset[QuotaType] = ALL_TYPES
    windows: Mapping[QuotaType, QuotaWindow] = field(default_factory=dict)
    buckets: Mapping[QuotaType, BucketSettings] = field(default_factory=dict)
    budget_bytes: int = 128 * 2**20
    limits: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[int, int] = (0, 9)
    clock: ManualClock = field(default_factory=ManualClock)
    sink: Rows = field(default_factory=Rows)
    callback: ClientQuotaCallback | None = None
    produce_quotas: tuple[ProduceQuota, ...] = ()
    producer_ids: ProducerIdQuota = field(default_factory=ProducerIdQuota)
    client_quotas: QuotaSource = NO_CLIENT_QUOTAS
    quota_admins: QuotaAdmins = NO_ADMINS
    shows_certificate: bool = False

    def __post_init__(self) -> None:
        default_callback = DefaultQuotaCallback(self.table)
        self.engine = QuotaEngine(
            self.callback or default_callback, dict(self.windows), dict(self.buckets)
        )
        self.shared = Shared(
            engine=self.engine,
            sink=self.sink,
            topology=Topology(
                Advertised(
                    host=GATEWAY,
                    node_port_base=NODE_PORT_BASE,
                    node_id_min=self.nodes[0],
                    node_id_max=self.nodes[1],
                )
            ),
            budgets=AnnouncedBudgets(limit_bytes=self.budget_bytes),
            facts=ClusterFacts(),
            settings=ConnectionSettings(enforced=self.enforced, **self.limits),
            default_callback=default_callback,
            client_quotas=self.client_quotas,
            quota_admins=self.quota_admins,
            shows_certificate=self.shows_certificate,
            produce_quotas=self.produce_quotas,
            producer_ids=self.producer_ids,
        )

    def enforce(self, enforced: frozenset[QuotaType]) -> None:
        """Put other quota types in force, as a reload does."""
        settings = replace(self.shared.settings, enforced=enforced)
        self.shared.put_in_force(settings)

    @property
    def rows(self) -> list[Row]:
        """The rows written so far."""
        return self.sink.rows

    @property
    def now_ms(self) -> int:
        """Unix milliseconds."""
        return self.clock.now_ms()

    def replace_quotas(self, quotas: ConfiguredQuotas) -> None:
        """Put other quotas in force, as a reload does; connections have to ``look_again``."""
        self.shared.replace_quotas(quotas)

    def purge_counters(self) -> int:
        """Forget idle counters, as the gateway does from time to time; returns how many."""
        return self.engine.purge_expired(self.now_ms)


class _LoggedPausing(Pausing):
    """Keeps a list of the mutes."""

    def __init__(self, *, cap_ms: int, log: list[int]) -> None:
        super().__init__(cap_ms=cap_ms)
        self._log = log

    def mute(self, throttle_ms: int) -> None:
        self._log.append(throttle_ms)
        super().mute(throttle_ms)


class Stage:
    """One connection of a cluster.

    Args:
        cluster: what it shares with others; one without quotas if None.
        number: of the connection.
        cap_ms: how long one mute lasts at most.
        node_id: of the broker behind it; ``UNKNOWN_NODE``: it is found out.
        dialled: address of that broker.

    Attributes:
        to_broker: everything forwarded so far.
        to_client: everything answered so far.
        mutes: the throttle times of all mutes.
        warnings: what is for the log: texts, and refused logins.
        breaths: how often others had their turn before what the broker had sent went on.
        closed: why the machine has asked for its end; empty: it has not.
        wakes: how often the announced-bytes budget has woken it.
        reads_broker: false while it leaves the broker's bytes unread.
        asked: tokens and questions for the quota callback.
        finds: how often it has asked which broker was reached.
        errands: what it has asked for of the world around.
        step_ns: how long each step takes, where that is charged: what one side sends, or time that passes.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        number: int = 1,
        cap_ms: int = 30_000,
        node_id: int = 1,
        dialled: tuple[str, int] = BROKER,
    ) -> None:
        self.cluster = cluster or Cluster()
        self.to_broker = b""
        self.to_client = b""
        self.mutes: list[int] = []
        self.warnings: list[object] = []
        self.asked: list[tuple[int, Question]] = []
        self.closed = ""
        self.breaths = 0
        self.wakes = 0
        self.finds = 0
        self.errands: list[Errand] = []
        self.reads_broker = True
        self.step_ns = 0
        self.pausing = _LoggedPausing(cap_ms=cap_ms, log=self.mutes)
        self._deadline_ms: int | None = None
        self.machine = Connection(
            self.cluster.shared,
            self.pausing,
            number=number,
            dialled=dialled,
            node_id=node_id,
            client_host="192.0.2.1",
            wake=self._wake,
        )
        self._charge_time_or_not()

    def _charge_time_or_not(self) -> None:
        self.machine.charge_time(is_charged=self.cluster.shared.charges_time)

    def client(self, *chunks: bytes) -> bytes:
        """The client sends; returns what goes to the broker because of it."""
        before = len(self.to_broker)
        for chunk in chunks:
            self.to_broker += self.machine.from_client(chunk, self._now_us) or b""
            self._perform()
            if self.machine.request_time is not None:
                self.machine.request_time.took_from_client(chunk, self.step_ns, self._now_us)
                self._perform()
        return self.to_broker[before:]

    def broker(self, *chunks: bytes) -> bytes:
        """The broker sends; returns what reaches the client because of it."""
        before = len(self.to_client)
        for chunk in chunks:
            self.to_client += self.machine.from_upstream(chunk, self._now_us) or b""
            self._perform()
            self._took()
        return self.to_client[before:]

    def advance(self, ms: int) -> bytes:
        """Time passes; returns what goes to the broker because a mute ends meanwhile."""
        before = len(self.to_broker)
        clock = self.cluster.clock
        end_ms = clock.monotonic_ms() + ms
        while self._deadline_ms is not None and self._deadline_ms <= end_ms:
            clock.advance(max(0, self._deadline_ms - clock.monotonic_ms()))
            self._go_on(self.machine.deadline_passed(clock.monotonic_ms(), clock.now_us()))
        clock.advance(end_ms - clock.monotonic_ms())
        return self.to_broker[before:]

    def end(self) -> None:
        """Client and broker have closed."""
        self.machine.close()
        self.machine.give_back_missing(self._now_us)
        self.machine.upstream_gone()

    @property
    def muted(self) -> bool:
        """True while a quota keeps the client back."""
        return bool(self.pausing.reasons & Reason.MUTED)

    # ------------------------------------------------------------------ the driver

    @property
    def _now_us(self) -> int:
        return self.cluster.clock.now_us()

    def _perform(self) -> None:
        commands = self.machine.commands
        while commands:
            code, argument = commands.pop(0)
            if code == Do.SEND_CLIENT:
                self.to_client += cast("bytes", argument)
            elif code == Do.SEND_UPSTREAM:
                self.to_broker += cast("bytes", argument)
            elif code in {Do.RESUME, Do.YIELD}:
                self._go_on(self.machine.resume(cast("int", argument), self._now_us))
            elif code == Do.STEP:
                self._go_on(self.machine.step(self._now_us))
            elif code == Do.BREATHE:
                self.breaths += 1
                self.to_client += self.machine.read_on(self._now_us) or b""
            elif code == Do.CLOSE:
                self.closed = str(argument)
                self.end()
            else:
                self._note(code, argument)
        if self.closed:
            self._deadline_ms = None
        elif self.pausing.deadline_changed:
            self._deadline_ms = self.machine.next_deadline_ms(self.cluster.clock.monotonic_ms())

    def _note(self, code: int, argument: object) -> None:
        """What a test answers itself, or only looks at."""
        if code == Do.ASK:
            self.asked.append(cast("tuple[int, Question]", argument))
        elif code == Do.FIND_NODE:
            self.finds += 1
        elif code == Do.ERRAND:
            self.errands.append(cast("Errand", argument))
        elif code == Do.READ_UPSTREAM:
            self.reads_broker = bool(argument)
        else:
            assert code == Do.WARN, code
            self.warnings.append(argument)

    def _go_on(self, forwarded: bytes | bytearray | None) -> None:
        self.to_broker += forwarded or b""
        self._perform()
        self._took()

    def _took(self) -> None:
        if self.machine.request_time is not None:
            self.machine.request_time.took(self.step_ns, self._now_us)
            self._perform()

    def _wake(self) -> None:
        self.wakes += 1

    def wake_up(self) -> bytes:
        """What the driver does some time after the budget has woken it."""
        before = len(self.to_broker)
        self._go_on(self.machine.woken(self._now_us))
        return self.to_broker[before:]

    def resume(self, reason: int) -> bytes:
        """A reason to pause is over; returns what goes to the broker because of it."""
        before = len(self.to_broker)
        self._go_on(self.machine.resume(reason, self._now_us))
        return self.to_broker[before:]

    def answer(self, token: int, result: object) -> bytes:
        """What ``Do.ASK`` asked for is here; returns what goes to the broker because of it."""
        before = len(self.to_broker)
        self._go_on(self.machine.resolved(token, result, self._now_us))
        return self.to_broker[before:]

    def located(self, node_id: int) -> bytes:
        """What ``Do.FIND_NODE`` asked for is here; returns what goes to the broker because of it."""
        before = len(self.to_broker)
        self._go_on(self.machine.located(node_id, self._now_us))
        return self.to_broker[before:]

    def tell(self, result: object) -> bytes:
        """What the last errand has brought; returns what goes to the broker because of it."""
        before = len(self.to_broker)
        self._go_on(self.machine.told(result, self._now_us))
        return self.to_broker[before:]

    def look_again(self) -> None:
        """Quotas have changed."""
        self._charge_time_or_not()
        self.machine.look_again(self._now_us)
        self._perform()
