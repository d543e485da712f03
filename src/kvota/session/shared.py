"""What all connections of one gateway have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvota.engine import Answer, Question, QuotaEngine
from kvota.engine.thread_share import ThreadShare, counted
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.decision_sink import DecisionSink
from kvota.model.quota_callback import ClientQuotaCallback, tell
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.quota_api.description import Descriptions
from kvota.session.api_counts import ApiCounts
from kvota.session.budget import AnnouncedBudget, AnnouncedBudgets
from kvota.session.early_charges import EarlyCharges
from kvota.session.facts import ClusterFacts
from kvota.session.fetch_room import WaitingFetches
from kvota.session.init_producer_ids import InitProducerIds
from kvota.session.offered_versions import OfferedVersions
from kvota.session.outside import BrokerSettings, QuotaSource
from kvota.session.produce_quota import ProduceQuota
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.session.quota_admins import QuotaAdmins
from kvota.session.settings import ConnectionSettings
from kvota.session.topology import Topology
from kvota.session.whole_requests import WholeRequests

# Answers that are read whole: coordinators, settings, error texts. Of Metadata only the brokers are kept.
WHOLE_ANSWERS_BYTES = 128 * 2**20
# Of a broker's own metrics: 2 samples of 30 s.
_EXEMPT_WINDOW = QuotaWindow(2, 30_000)


@dataclass(slots=True, kw_only=True)
class Shared:
    """The gateway's one engine, one record, and what it knows of the cluster.

    ``settings``, ``broker_settings``, ``quota_admins`` and ``default_callback`` are replaced; nothing else is, but
    for the flag and the sum.

    Attributes:
        default_callback: decides for clients about which ``engine.callback`` has not answered in time.
        client_quotas: the configured quotas as Kafka's tools describe and alter them.
        descriptions: how they were described last.
        broker_settings: of the gateway, as Kafka's tools describe and alter a broker's; None: it has none.
        quota_admins: who may alter them where no authorizer of the cluster can say.
        shows_certificate: brokers are shown the gateway's certificate: to them a client without a login is the gateway.
        produce_quotas: what a Produce is charged on beside its bytes.
        producer_ids: which producer ids may produce.
        name_claim: of bearer tokens, in which the user's name stands (``sasl.oauthbearer.sub.claim.name``).
        users_of_logins: who one is whose name cannot be read, by mechanism.
        finds_token_owners: it can be asked whose a delegation token is.
        init_producer_ids: how often each user has asked for one.
        whole_requests: memory for requests that are kept whole.
        whole_answers: memory for answers that are kept until they are whole.
        waiting_fetches: memory for large Fetches that wait for room.
        early_charges: the charges of requests that are not here yet.
        asks_for_logins: true once a broker has accepted a login.
        is_memory_short: connections hold much: answers go on as early as they can.
        api_counts: how many requests were taken.
        offered_versions: by brokers, kept once for all connections.
        exempt_ns: what requests took for which no time is charged, since it is charged for others.
        exempt_share: the same over the last 30 to 60 s, in percent of one thread, as a broker's.
    """

    engine: QuotaEngine
    sink: DecisionSink
    topology: Topology
    budgets: AnnouncedBudgets
    facts: ClusterFacts
    settings: ConnectionSettings
    default_callback: ClientQuotaCallback
    client_quotas: QuotaSource
    descriptions: Descriptions = field(default_factory=Descriptions)
    broker_settings: BrokerSettings | None = None
    quota_admins: QuotaAdmins = field(default_factory=QuotaAdmins)
    shows_certificate: bool = False
    produce_quotas: tuple[ProduceQuota, ...] = ()
    producer_ids: ProducerIdQuota = field(default_factory=ProducerIdQuota)
    init_producer_ids: InitProducerIds = field(default_factory=InitProducerIds)
    name_claim: str = "sub"
    users_of_logins: Mapping[str, str] = field(default_factory=dict)
    finds_token_owners: bool = False
    whole_requests: WholeRequests = field(init=False)
    whole_answers: AnnouncedBudget = field(init=False)
    waiting_fetches: WaitingFetches = field(default_factory=WaitingFetches)
    early_charges: EarlyCharges = field(default_factory=EarlyCharges)
    asks_for_logins: bool = field(default=False, init=False)
    is_memory_short: bool = field(default=False, init=False)
    api_counts: ApiCounts = field(default_factory=ApiCounts)
    offered_versions: OfferedVersions = field(default_factory=OfferedVersions)
    exempt_ns: int = field(default=0, init=False)
    exempt_share: ThreadShare = field(
        default_factory=lambda: ThreadShare(_EXEMPT_WINDOW), init=False
    )

    def __post_init__(self) -> None:
        self.whole_requests = WholeRequests(self.budgets)
        self.whole_answers = self.budgets.another(limit_bytes=WHOLE_ANSWERS_BYTES)

    @property
    def charges_time(self) -> bool:
        """True where requests are charged with the time they take: anybody has a REQUEST quota.

        A callback that is not asked here may have one for anybody: then time is charged where REQUEST is enforced.
        """
        callback = self.engine.callback
        if callback.answers_at_once:
            return callback.enabled(QuotaType.REQUEST)
        return QuotaType.REQUEST in self.settings.enforced

    def exempt_time(self, spent_ns: int, now_ms: int) -> None:
        """Requests for which no time is charged have taken so long."""
        before, self.exempt_ns = self.exempt_ns, self.exempt_ns + spent_ns
        self.exempt_share.record(counted(self.exempt_ns)[0] - counted(before)[0], now_ms)

    def put_in_force(self, settings: ConnectionSettings) -> None:
        """Other settings from now on; connections find out what is enforced with their next request."""
        changed = self.settings.enforced ^ settings.enforced
        self.settings = settings
        for quota_type in changed:
            self.engine.outdate(quota_type)

    def replace_quotas(self, quotas: ConfiguredQuotas) -> None:
        """Put these configured quotas in force, for clients of whom the callback does not know, too."""
        self.change_quotas(self.engine.quotas.changes_to(quotas))

    def change_quotas(self, changes: Sequence[QuotaChange]) -> None:
        """Put a batch of changed quotas in force, for clients of whom the callback does not know, too."""
        if self.default_callback is not self.engine.callback:
            for change in changes:
                tell(self.default_callback, change)
        self.engine.apply(changes)

    def replace_producer_id_rates(self, quotas: ClientQuotas, now_ms: int | None = None) -> None:
        """Put the rates of new producer ids in force that are among these quotas; ``now_ms``: as their ``replace``."""
        self.producer_ids.replace(quotas, now_ms)
        self.engine.outdate(QuotaType.PRODUCE)  # its routes say whether ids are looked at

    def change_producer_id_rates(
        self, changes: Sequence[KeyChange], now_ms: int | None = None
    ) -> None:
        """Put those of these changes in force that are rates of new producer ids; ``now_ms``: as their ``change``."""
        if self.producer_ids.change(changes, now_ms):
            self.engine.outdate(QuotaType.PRODUCE)

    def replace_callback(
        self,
        callback: ClientQuotaCallback,
        *,
        by_broker: bool,
        answers: Mapping[Question, Answer],
    ) -> None:
        """Put another callback in force, and tell it what has become of its ``initial_quotas`` meanwhile."""
        quotas = self.engine.quotas
        self.engine.replace_callback(callback, by_broker=by_broker, answers=answers)
        self.engine.replace_quotas(quotas)
