"""Producers that crash-loop under a quota on new producer ids, while the broker and the gateway go and come.

A tenant for each library, each with a quota of its own that it is over all the time; and two whose producers live
through all of it. What a client reports as delivered is in the broker's log exactly once, whatever else becomes of it.
"""

import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from tests.endurance.client_process import CLIENTS, ClientProcess, java_client, python_client
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import HOST, NODES_MAX
from tests.endurance.judging import judge_log
from tests.endurance.topic_log import all_of, read_log

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

PARTITIONS = 3
LIBRARIES = ("java", "librdkafka", "kafka-python", "aiokafka")
# Their toolchains are not everybody's.
FURTHER_LIBRARIES = ("franz-go", "kafkajs")


@dataclass(frozen=True, kw_only=True)
class IdStorm:
    """How long, against what quota, and who is killed meanwhile.

    Attributes:
        libraries: a tenant of each.
        producers: of a tenant at a time; one that is through is followed by another one.
        records: of each producer.
        rate, window_s: new ids of a tenant per window.
        victims: "gateway" is ended in order, "gateway!" and "broker" are killed; all are started again.
        between_s: before each of them, and at the end.
    """

    libraries: Sequence[str]
    producers: int
    records: int
    rate: float
    window_s: int
    victims: Sequence[str]
    between_s: float

    @property
    def seconds(self) -> float:
        """How long clients go on, at least."""
        return self.between_s * (len(self.victims) + 1)


def users_of(plan: IdStorm) -> dict[str, str]:
    """The secret of each tenant; the broker must have them."""
    return {library: f"{library}-secret" for library in plan.libraries}


def run_id_storm(folder: Path, plan: IdStorm) -> Findings:
    """All tenants at once, before a broker of their own; what they say stays in the folder."""
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(host=HOST, users=users_of(plan)))
        for library in plan.libraries:
            kafka.create_topic(library, partitions=PARTITIONS)
        programs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-programs-")))
        commands = {library: _command(library, programs) for library in plan.libraries}
        gateway = stack.enter_context(_gateway(kafka, folder / "gateway", plan))
        clients = {
            library: stack.enter_context(
                ClientProcess(
                    folder,
                    library,
                    [*command, *_arguments(gateway, library, plan)],
                    end_s=300.0,
                )
            )
            for library, command in commands.items()
        }
        for client in clients.values():
            client.wait_until_it_began()
        _go_and_come(kafka, gateway, plan)
        for client in clients.values():
            client.ask_to_end()
        said = {library: client.result() for library, client in clients.items()}
        servers = kafka.bootstrap_servers
        logs = {library: read_log(servers, library, PARTITIONS) for library in plan.libraries}
        assert gateway.stop() == 0
        found = Findings({"seconds": plan.seconds, "victims": list(plan.victims)})
        found.expect("Traceback" not in gateway.log, "the gateway's log has a stack trace")
    rows = _rows_by_user(folder / "gateway" / "record")
    for library, lines in said.items():
        judged = _judged(library, _in_order(library, logs[library]), lines, rows[library], plan)
        judged.expect(rows[library]["rejected"] > 0, "nobody was refused, so nothing was shown")
        found.add(library, judged)
    return found


def _gateway(kafka: LocalKafka, folder: Path, plan: IdStorm) -> GatewayProcess:
    config = gateway_toml(
        upstream=kafka.sasl_bootstrap_servers,
        node_ids=f"0-{NODES_MAX}",
        enforce={"PRODUCER_ID": True},
        record="record",
        kafka={
            "producer.id.quota.window.size.seconds": plan.window_s,
            "producer.id.quota.cache.cleanup.scheduler.interval.ms": 1000,
        },
    )
    quotas = f"[[quota]]\nuser_default = true\nproducer_ids_rate = {plan.rate}\n"
    return GatewayProcess(folder, config=config, quotas=quotas)


def _arguments(gateway: GatewayProcess, library: str, plan: IdStorm) -> list[str]:
    whole = (PARTITIONS, plan.producers, plan.records)
    secret = users_of(plan)[library]
    return [gateway.bootstrap_servers, library, secret, library, *map(str, whole)]


def _command(library: str, programs: Path) -> list[str]:
    """Of the program, ready for its arguments."""
    if library == "java":
        return java_client("Storming")
    if library == "franz-go":
        program = programs / "storming"
        _make(["go", "build", "-o", str(program), "."], CLIENTS / "storming_go")
        return [str(program)]
    if library == "kafkajs":
        folder = shutil.copytree(CLIENTS / "storming_node", programs / "node")
        _make(["npm", "install", "--no-audit", "--no-fund"], folder)
        return ["node", str(folder / "storming.js")]
    return python_client("storming", library)


def _make(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


def _go_and_come(kafka: LocalKafka, gateway: GatewayProcess, plan: IdStorm) -> None:
    for victim in plan.victims:
        time.sleep(plan.between_s)
        if victim == "broker":
            kafka.kill(1)
            kafka.start_node(1)
        else:
            if victim == "gateway":
                assert gateway.stop() == 0
            else:
                gateway.kill()
            gateway.start()
    time.sleep(plan.between_s)


def _in_order(library: str, log: list[list[str]]) -> list[list[str]]:
    """KafkaJS gives its word for each send on its own, and none for their order."""
    if library != "kafkajs":
        return log

    def place(value: str) -> tuple[str, int]:
        producer, _, number = value.rpartition("-")
        return producer, int(number)

    return [sorted(partition, key=place) for partition in log]


def _judged(
    library: str,
    log: Sequence[Sequence[str]],
    said: Sequence[str],
    rows: Counter[str],
    plan: IdStorm,
) -> Findings:
    """Delivered records once; those that were reported as failed at most once."""
    sent: set[str] = set()
    producers = told = 0
    for words in (line.split() for line in said if line.startswith("sent ")):
        _, producer, count, of_them_told = words
        sent |= {f"{producer}-{number}" for number in range(int(count))}
        producers, told = producers + 1, told + int(of_them_told)
    failed = {line.split()[1] for line in said if line.startswith("failed ")}
    overtaken = set[str]()
    if library == "librdkafka":
        overtaken = _overtaken(log, sent - failed, plan)
    found = judge_log(log, sent=sent, delivered=sent - failed - overtaken)
    found.figures |= {
        "producers": producers,
        "failed": len(failed),
        "overtaken": len(overtaken),
        "silent": len(sent) - told,
        "new ids": rows["admitted"],
        "refusals": rows["rejected"],
    }
    found.expect(told == len(sent), f"the client is silent about {len(sent) - told} records")
    return found


def _overtaken(log: Sequence[Sequence[str]], delivered: set[str], plan: IdStorm) -> set[str]:
    """Those that librdkafka loses without a gateway, too (docs/producer-ids.md, "A hole of Kafka's own").

    A broker that comes back refuses a producer's first batch for a partition, takes the one behind it, and the client holds
    both for delivered. That a gateway's refusals make no such hole ``test_first_sequences`` shows, without any that is
    allowed.
    """
    found = set[str]()
    for value in delivered - set(all_of(log)):
        producer, _, number = value.rpartition("-")
        partition = int(number)
        if partition < PARTITIONS and any(one.startswith(f"{producer}-") for one in log[partition]):
            found.add(value)
    at_most = plan.victims.count("broker") * plan.producers * PARTITIONS
    return found if len(found) <= at_most else set()


def _rows_by_user(record: Path) -> dict[str, Counter[str]]:
    """How many new ids of each user have had which outcome."""
    found: dict[str, Counter[str]] = {}
    for path in record.glob("*.parquet"):
        columns = ["user", "quota_type", "outcome", "value"]
        for row in pq.read_table(path, columns=columns).to_pylist():
            if row["quota_type"] == "PRODUCER_ID":
                outcome = "rejected" if row["outcome"] == "rejected" else "admitted"
                found.setdefault(row["user"], Counter())[outcome] += round(row["value"])
    return found
