"""Rolling restarts of brokers and gateways, in order, under Kafka's own verifiable clients and others, over TLS with SCRAM on both sides.

What was acknowledged is in the log once, in the order of its producer; a group sees each record, and none again that it has
committed; a copy in transactions has each record once. Two gateways serve all clients: while one drains and comes again its
clients go to the other one.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from tests.endurance.client_process import (
    ClientProcess,
    java_client,
    python_client,
    with_properties,
)
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import NODES_MAX, Quota, gateway_config
from tests.endurance.judging import GROUP_EVENTS, judge_copy, judge_group, judge_log, judge_numbers
from tests.endurance.recorded import rows_by_outcome
from tests.endurance.topic_log import read_log
from tests.endurance.verifiable import (
    Source,
    Verifiable,
    verifiable_consumer,
    verifiable_producer,
)

from kvota.app.gateway_process import GatewayProcess, free_port_range
from kvota.localkafka import Authority, LocalKafka
from kvota.model.quota_type import Algorithm

USER, SECRET = "rolling", "rolling-secret"
PARTITIONS = 6
GATEWAYS = 2
LIBRARIES = ("librdkafka", "java")
_PATIENCE_S = 120.0
_LOOK_S = 0.5
# What Kafka's producer says to who sends while another thread closes it.
_CLOSED_BY_ITSELF = (
    "Producer closed while send in progress",
    "Cannot perform operation after producer has been closed",
)
_TLS = """
[gateway.tls]
certfile = "{server.certificate}"
keyfile = "{server.key}"

[upstream.tls]
cafile = "{brokers}"
"""


@dataclass(frozen=True, kw_only=True)
class Rolling:
    """How long, and under what load.

    Attributes:
        seconds: whole rounds, at least one, until so much time has passed; in a round each broker and each gateway is stopped in
            order and started again, one after the other.
        between_s: after one is back, and all replicas are in sync, before the next one.
        verifiable_per_s: records of Kafka's verifiable producer.
        libraries: of further producers.
        producers: of each of these libraries.
        records_per_s: of each of them.
        limit: of each client id, in bytes per second of Produce.
        protocols: of the groups of verifiable consumers.
        members: of each of these groups.
        with_copy: the verifiable producer's topic is copied in transactions, too.
    """

    seconds: float
    between_s: float
    verifiable_per_s: int
    libraries: Sequence[str]
    producers: int
    records_per_s: int
    limit: float
    protocols: Sequence[str]
    members: int
    with_copy: bool


def run_rolling(kafka: LocalKafka, folder: Path, algorithm: Algorithm, plan: Rolling) -> Findings:
    """All clients at once; the cluster has ``tls`` and the user. What clients say stays in the folder."""
    topics = _make_topics(kafka, algorithm, plan)
    authority = Authority(folder / "tls")
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(_gateway(kafka, folder, authority, number, algorithm, plan))
            for number in range(GATEWAYS)
        ]
        clients = _Clients(kafka, folder, authority, gateways, topics, plan)
        for client in clients.all:
            stack.enter_context(client)
        clients.wait_until_they_began()
        found = _roll(kafka, gateways, plan)
        said = clients.end()
        servers = kafka.bootstrap_servers
        logs = {name: read_log(servers, topic, PARTITIONS) for name, topic in topics.items()}
        if plan.with_copy:
            copy = read_log(servers, topics["copy"], PARTITIONS, is_committed=True)
        for gateway in gateways:
            found.expect(gateway.stop() == 0, "a gateway has not drained in order")
            found.expect("Traceback" not in gateway.log, "a gateway's log has a stack trace")
            found.expect(SECRET not in gateway.log, "a gateway's log has the secret")
    found.figures["rows"] = [
        rows_by_outcome(folder / f"gateway-{number}" / "record") for number in range(GATEWAYS)
    ]
    found.add("verifiable producer", _judge_sender(logs["verifiable"], clients.sender))
    for name in plan.libraries:
        found.add(name, judge_numbers(logs[name], said[name]))
    for protocol, group in clients.groups.items():
        events = [event for one in group for event in one.events(*GROUP_EVENTS)]
        found.add(f"verifiable consumers, {protocol}", judge_group(logs["verifiable"], events))
    if plan.with_copy:
        found.add("copy", judge_copy(logs["verifiable"], copy))
    return found


def _make_topics(kafka: LocalKafka, algorithm: Algorithm, plan: Rolling) -> dict[str, str]:
    replicas = len(kafka.nodes)
    safe = {"min.insync.replicas": str(max(1, replicas - 1))}
    topics = {
        name: f"rolling-{algorithm}-{name}".replace("_", "-")
        for name in ("verifiable", *plan.libraries, "copy")
    }
    for topic in topics.values():
        kafka.create_topic(topic, PARTITIONS, replicas, safe)
    return topics


# ------------------------------------------------------------------ gateways and clients


def _gateway(
    kafka: LocalKafka,
    folder: Path,
    authority: Authority,
    number: int,
    algorithm: Algorithm,
    plan: Rolling,
) -> GatewayProcess:
    server = authority.issue(f"gateway-{number}", hosts=["127.0.0.1"])
    servers = kafka.sasl_tls_bootstrap_servers
    config = gateway_config(kafka, free_port_range(NODES_MAX + 2), algorithm, servers=servers)
    tls = _TLS.format(server=server, brokers=kafka.authority.certificate)
    quotas = Quota(plan.limit, 1e12).toml
    return GatewayProcess(folder / f"gateway-{number}", config=config + tls, quotas=quotas)


class _Clients:
    """All that there are, each in a process of its own.

    Attributes:
        sender: Kafka's verifiable producer.
        groups: the members of each group of its verifiable consumers, by protocol.
    """

    def __init__(
        self,
        kafka: LocalKafka,
        folder: Path,
        authority: Authority,
        gateways: Sequence[GatewayProcess],
        topics: Mapping[str, str],
        plan: Rolling,
    ) -> None:
        bootstrap = ",".join(gateway.bootstrap_servers for gateway in gateways)
        ways = _properties(folder, authority)
        java = ways["java"]
        source = Source(kafka, folder, bootstrap, topics["verifiable"], java)
        self.sender = verifiable_producer(source, plan.verifiable_per_s)
        self.groups = {
            protocol: [
                verifiable_consumer(source, f"verifiable-{protocol}", protocol, number)
                for number in range(plan.members)
            ]
            for protocol in plan.protocols
        }
        rate = (PARTITIONS, "rolling", plan.producers, plan.records_per_s)
        copying = (bootstrap, topics["verifiable"], topics["copy"], "copy", "consumer")
        copy = with_properties(java_client("Copying", *copying), java)
        self._copies = [ClientProcess(folder, "copy", copy)] if plan.with_copy else []
        self._others = {
            library: ClientProcess(
                folder, library, _producing(library, bootstrap, topics, rate, ways)
            )
            for library in plan.libraries
        }

    @property
    def all(self) -> list[ClientProcess]:
        members = [member for group in self.groups.values() for member in group]
        return [self.sender, *members, *self._others.values(), *self._copies]

    def wait_until_they_began(self) -> None:
        for client in (self.sender, *self._others.values(), *self._copies):
            client.wait_until_it_began()
        for group in self.groups.values():
            # The first of its members may have all partitions for a while.
            _wait_until(
                lambda group=group: any(one.has_begun() for one in group), "nobody consumes"
            )  # type: ignore[misc]

    def end(self) -> dict[str, list[str]]:
        """Producers first; who consumes, when all has been consumed. Returns what the other libraries' producers have said."""
        for producer in (self.sender, *self._others.values()):
            producer.ask_to_end()
        self.sender.result()
        said = {name: client.result() for name, client in self._others.items()}
        count = len(self.sender.events("producer_send_success"))
        for group in self.groups.values():
            _wait_until(
                lambda group=group: len(_seen_by(group)) >= count,  # type: ignore[misc]
                "a group does not come to the end",
            )
        members = [member for group in self.groups.values() for member in group]
        for client in (*self._copies, *members):
            client.ask_to_end()
        for client in (*self._copies, *members):
            client.result()
        return said


def _seen_by(group: Sequence[Verifiable]) -> set[tuple[int, int]]:
    """Partitions and offsets; what was not committed may have come twice."""
    events = (event for one in group for event in one.events("record_data"))
    return {(event["partition"], event["offset"]) for event in events}


def _producing(
    library: str,
    bootstrap: str,
    topics: Mapping[str, str],
    rate: tuple[object, ...],
    ways: Mapping[str, Path],
) -> list[str]:
    arguments = (bootstrap, topics[library], *rate)
    if library == "java":
        return with_properties(java_client("Producing", *arguments), ways[library])
    return with_properties(python_client("producing", *arguments), ways[library])


def _properties(folder: Path, authority: Authority) -> dict[str, Path]:
    """How clients of each library get in."""
    common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    login = f'username="{USER}" password="{SECRET}";'
    java = common | {
        "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        # Kafka's verifiable producer would not send again by itself, and so not be idempotent either.
        "retries": str(2**31 - 1),
        "enable.idempotence": "true",
    }
    librdkafka = common | {
        "sasl.username": USER,
        "sasl.password": SECRET,
        "ssl.ca.location": str(authority.certificate),
    }
    paths = {}
    for library, properties in {"java": java, "librdkafka": librdkafka}.items():
        paths[library] = folder / f"{library}.properties"
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        paths[library].write_text("".join(lines))
    return paths


def _wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(_LOOK_S)


# ------------------------------------------------------------------ rolling


def _roll(kafka: LocalKafka, gateways: Sequence[GatewayProcess], plan: Rolling) -> Findings:
    found = Findings()
    begin = time.monotonic()
    restarts: Counter[str] = Counter()
    slowest_drain_s = 0.0
    while not restarts or time.monotonic() - begin < plan.seconds:
        for node in kafka.nodes:
            kafka.stop_node(node.node_id)
            kafka.start_node(node.node_id)
            _wait_until_in_sync(kafka)
            restarts["brokers"] += 1
            time.sleep(plan.between_s)
        for gateway in gateways:
            began_s = time.monotonic()
            found.expect(gateway.stop() == 0, "a gateway has not drained in order")
            slowest_drain_s = max(slowest_drain_s, time.monotonic() - began_s)
            gateway.start()
            restarts["gateways"] += 1
            time.sleep(plan.between_s)
    found.figures["seconds"] = round(time.monotonic() - begin)
    found.figures["restarts"] = dict(restarts)
    found.figures["slowest drain, s"] = round(slowest_drain_s, 1)
    return found


def _wait_until_in_sync(kafka: LocalKafka) -> None:
    """As one who rolls brokers waits: before that the next one would be one too many."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def is_so() -> bool:
        topics = admin.list_topics(timeout=30).topics.values()
        parts = [part for topic in topics for part in topic.partitions.values()]
        return bool(parts) and all(len(part.isrs) == len(part.replicas) for part in parts)

    _wait_until(is_so, "replicas do not come back into sync")


# ------------------------------------------------------------------ judging


def _judge_sender(log: Sequence[Sequence[str]], sender: Verifiable) -> Findings:
    """Values are 0, 1, 2 …: each partition has them in their order."""
    acknowledged = {event["value"] for event in sender.events("producer_send_success")}
    (counted,) = sender.events("tool_data")
    last = str(counted["sent"] - 1)
    failed = {
        event["value"]: event["message"]
        for event in sender.events("producer_send_error")
        # The tool closes its producer beside the thread that sends: its last record may never have been taken.
        if event["value"] != last or event["message"] not in _CLOSED_BY_ITSELF
    }
    numbered = [[f"0-{value}" for value in partition] for partition in log]
    found = judge_log(
        numbered,
        sent={f"0-{number}" for number in range(counted["sent"])},
        delivered={f"0-{value}" for value in acknowledged},
    )
    found.figures["failed"] = len(failed)
    found.expect(not failed, f"{len(failed)} records were reported as failed: {failed}")
    found.expect(counted["acked"] == len(acknowledged), "it counts otherwise than it tells")
    return found
