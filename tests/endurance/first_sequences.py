"""Producers whose first batch is refused while the next ones pass: who holds it for delivered?

``PLAIN``: a tap refuses it in the place of a broker without a gateway, so what is lost there Kafka and its clients lose. ``THROUGH``: the same tap behind
a gateway. ``QUOTA``: nobody but the gateway refuses, by the quota on new producer ids, and the tap behind it only watches what
goes on to the broker.
"""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from tests.endurance.client_process import ClientProcess, java_client, python_client
from tests.endurance.first_sequence_tap import FirstSequenceTap, PartitionStory
from tests.endurance.topic_log import all_of, read_log

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import Listener, LocalKafka

PLAIN, THROUGH, QUOTA = "plain broker", "through the gateway", "the gateway's quota"
LIBRARIES = ("java", "librdkafka", "kafka-python", "aiokafka")
# They have a setting for requests in flight; aiokafka has none.
PIPELINING = ("java", "librdkafka", "kafka-python")

_HOST, _TAP_HOST, _LISTENER = "127.0.0.2", "127.0.0.3", "TAPPED"
# In each window; one id comes at once, and is spent before the clients come.
_NOBODY, _EVERYBODY = 0.001, 100_000
# Longer than a round: within the first one a batch that is not the first of its producer shows that this has been running, and is let in.
_WINDOW_S = 180
_AT_MOST_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Beginnings:
    """One round of one library.

    Attributes:
        where: ``PLAIN``, ``THROUGH`` or ``QUOTA``.
        in_flight: requests of a producer at a time.
        error: that the tap answers; of no meaning under ``QUOTA``.
        producers: how many, each with an id and a partition of its own.
        records: of each producer.
        patience_s: how long a client tries.
        overtaken_s: how long the tap waits for a second batch; a client with one request in flight sends none.
    """

    library: str
    where: str
    in_flight: int
    error: int = 19
    producers: int = 5
    records: int = 10
    patience_s: int = 15
    overtaken_s: float = 1.0


@dataclass
class Outcome:
    """What came of one round.

    Attributes:
        refused: producers whose first batch the tap has refused.
        overtaken: of these, those whose next batch had passed by then.
        delivered, failed, silent: records, as the client has told, or has not.
        in_the_log, twice: records.
        lost: records that were reported as delivered and are not in the log.
        errors: that the client has told, by name.
        second, first_again: what the broker has said to the first batch behind the refused one, and to that when it came again: producers by
            error code; -1: it has not come.
        began_with: the sequence of the first batch that the broker has had of a partition: producers by it.
    """

    refused: int
    overtaken: int
    delivered: int
    failed: int
    silent: int
    in_the_log: int
    twice: int
    lost: int
    errors: dict[str, int]
    second: dict[int, int]
    first_again: dict[int, int]
    began_with: dict[int, int]


@contextmanager
def tapped_kafka() -> Iterator[LocalKafka]:
    """A broker with one listener more, which leads clients to the tap."""
    first = free_port_range(2, _HOST)
    settings = {
        "advertised.listeners": f"PLAINTEXT://{_HOST}:{first},{_LISTENER}://{_TAP_HOST}:{first + 1}"
    }
    tapped = Listener(name=_LISTENER, protocol="PLAINTEXT")
    with LocalKafka(host=_HOST, listeners=[tapped], properties=settings, first_port=first) as kafka:
        yield kafka


def run_beginnings(kafka: LocalKafka, folder: Path, plan: Beginnings) -> Outcome:
    """One round; ``folder`` is new, and has all that was said afterwards."""
    folder.mkdir(parents=True)
    topic = re.sub("[^a-z0-9]+", "-", folder.name.lower())
    kafka.create_topic(topic, partitions=plan.producers + 1)
    host, _, port = kafka.servers_of(_LISTENER).rpartition(":")
    listen = _TAP_HOST, int(port)
    error = None if plan.where == QUOTA else plan.error
    with ExitStack() as stack:
        tap = stack.enter_context(
            FirstSequenceTap(listen, (host, int(port)), error=error, overtaken_s=plan.overtaken_s)
        )
        servers = f"{_TAP_HOST}:{port}"
        gateway = None
        if plan.where != PLAIN:
            gateway = stack.enter_context(_gateway(servers, folder / "gateway", plan.where))
            servers = gateway.bootstrap_servers
        if gateway is not None and plan.where == QUOTA:
            _spend_the_token(gateway, topic, partition=plan.producers)
        client = stack.enter_context(
            ClientProcess(
                folder,
                plan.library,
                _command(plan, servers, topic),
                end_s=plan.patience_s + _AT_MOST_S,
            )
        )
        if gateway is not None and plan.where == QUOTA:
            _let_in_when_all_are_refused(gateway, plan)
        said = client.result()
        stories = [tap.partitions[number] for number in range(plan.producers)]
    log = Counter(all_of(read_log(kafka.bootstrap_servers, topic, plan.producers)))
    return _outcome(plan, said, log, stories)


def _gateway(upstream: str, folder: Path, where: str) -> GatewayProcess:
    config = gateway_toml(
        upstream=upstream,
        node_ids="0-1",
        enforce={"PRODUCER_ID": True},
        kafka={"producer.id.quota.window.size.seconds": _WINDOW_S},
        limits={"mute_time_max": "500ms"},
        http_port=0,
    )
    return GatewayProcess(
        folder, config=config, quotas=_quotas(_NOBODY if where == QUOTA else _EVERYBODY)
    )


def _quotas(rate: float) -> str:
    return f"[[quota]]\nuser_default = true\nproducer_ids_rate = {rate}\n"


def _command(plan: Beginnings, servers: str, topic: str) -> list[str]:
    numbers = (plan.producers, plan.records, plan.in_flight, plan.patience_s)
    if plan.library == "java":
        return java_client("Beginning", servers, topic, *numbers)
    return python_client("beginning", plan.library, servers, topic, *numbers)


def _spend_the_token(gateway: GatewayProcess, topic: str, partition: int) -> None:
    """By a record that is nobody's, in a partition behind those of the producers."""
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap_servers, "enable.idempotence": True}
    )
    producer.produce(topic, b"", partition=partition)
    assert producer.flush(_AT_MOST_S) == 0


def _let_in_when_all_are_refused(gateway: GatewayProcess, plan: Beginnings) -> None:
    end = time.monotonic() + _AT_MOST_S
    while _kept_back(gateway) < plan.producers:
        assert time.monotonic() < end, f"not all of {plan.producers} producers have been refused"
        time.sleep(0.05)
    # What was sent behind a refused batch has come, too.
    time.sleep(0.5)
    gateway.reload(_quotas(_EVERYBODY))


def _kept_back(gateway: GatewayProcess) -> int:
    """In how many partitions a refused batch keeps back what comes behind it."""
    with urllib.request.urlopen(f"{gateway.http_url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r"^kvota_producer_ids_refused_partitions (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _outcome(
    plan: Beginnings, said: list[str], log: Counter[str], stories: list[PartitionStory]
) -> Outcome:
    delivered = {line.split()[1] for line in said if line.startswith("delivered ")}
    failed = [line.split()[1:] for line in said if line.startswith("failed ")]
    return Outcome(
        refused=sum(story.is_refused for story in stories),
        overtaken=sum(story.is_overtaken for story in stories),
        delivered=len(delivered),
        failed=len(failed),
        silent=plan.producers * plan.records - len(delivered) - len(failed),
        in_the_log=sum(log.values()),
        twice=sum(count > 1 for count in log.values()),
        lost=len(delivered - log.keys()),
        errors=dict(Counter(error for _, error in failed)),
        second=_counted(story.later_codes() for story in stories),
        first_again=_counted(story.codes_of_first() for story in stories),
        began_with=dict(Counter(story.answers[0][0] for story in stories if story.answers)),
    )


def _counted(codes: Iterable[Sequence[int]]) -> dict[int, int]:
    """How often each code came first; -1: the broker was not asked."""
    return dict(Counter((of_partition or [-1])[0] for of_partition in codes))
