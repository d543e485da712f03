"""Each client once directly at the brokers and once through the gateway, with TLS and SCRAM on all ways; what it has said is compared.

Some go through the gateway a second time, at a listener where all nodes have one port and each a name of its own (SNI). In front of the gateway stands a tap inside TLS that keeps all bytes that clients get.
"""

import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.matrix.programs import PROGRAMS, CannotBuildError
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import Acl, LocalKafka
from kvota.localkafka.cluster.acls import ResourceType
from kvota.localkafka.jars.trust_store import write_trust_store
from kvota.localkafka.processes.command_line import SHORT_LIVED

DIRECT, THROUGH, BY_NAME = "direct", "through", "by name"
# Not the gateway's host and not the tap's: in what clients get it may not stand.
BROKERS_HOST = "127.0.0.2"
USER, SECRET = "matrix", "matrix-secret"
PREFIX, DENIED = "m-", "closed"
_END_S = 240.0
_OWN: tuple[ResourceType, ...] = ("topic", "group", "transactional_id")
_ACLS = (
    *(
        Acl(user=USER, operation="all", resource=resource, name=PREFIX, is_prefix=True)
        for resource in _OWN
    ),
    Acl(user=USER, operation="describe"),
)
_QUOTAS = f"""
[[quota]]
user = "{USER}"
producer_byte_rate = "10GB/s"
consumer_byte_rate = "10GB/s"
controller_mutation_rate = 1000.0
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one client on all its ways.

    Attributes:
        steps: ``step: result`` on each way that it has gone, the client's own names taken out.
        failed: why there is none, by way; a client that cannot be built fails on none.
        skipped: why it could not be built.
        seconds: on each way.
    """

    steps: dict[str, list[str]]
    failed: dict[str, str]
    seconds: dict[str, float]
    skipped: str = ""

    @property
    def is_same(self) -> bool:
        """Whether all went well, and the same on all ways."""
        return not self.failed and all(said == self.steps[DIRECT] for said in self.steps.values())

    def differences(self) -> list[str]:
        """What differs, in words."""
        lines = [f"{way}: {words}" for way, words in self.failed.items()]
        ways = {way: set(said) for way, said in self.steps.items()}
        for way in ways.keys() - {DIRECT}:
            for one, other in ((DIRECT, way), (way, DIRECT)):
                lines += [f"{one}, not {other}: {line}" for line in sorted(ways[one] - ways[other])]
        return lines


@contextmanager
def secured_place(folder: Path) -> Iterator[TappedGateway]:
    """Three brokers with TLS, SCRAM and ACLs, the gateway and a tap in front of it."""
    kafka = LocalKafka(
        nodes=3,
        host=BROKERS_HOST,
        users={USER: SECRET},
        acls=_ACLS,
        tls="none",
        properties={
            # kafka-python asks for the topic that it deletes again: it may have it made anew before.
            "auto.create.topics.enable": "false",
            # A member of a share group hears of its partitions with its second heartbeat.
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.heartbeat.interval.ms": "500",
        },
        java_options=SHORT_LIVED,
    )
    with kafka:
        kafka.create_topic(DENIED, partitions=1, replication_factor=3)
        with tapped_gateway(
            folder / "gateway", kafka, quotas=_QUOTAS, sasl=True, tls=True, by_name=True
        ) as way:
            yield way


def run_matrix(
    place: TappedGateway,
    folder: Path,
    names: Iterable[str],
    *,
    records: int,
    at_once: int = 2,
    told: Callable[[str, Outcome], None] = lambda _name, _outcome: None,
) -> dict[str, Outcome]:
    """Runs these clients, each on its ways one after the other.

    Args:
        place: see ``secured_place``.
        folder: for what has to be built, and what clients say on standard error.
        names: of PROGRAMS.
        records: that each of them produces.
        at_once: how many clients run.
        told: of each as it ends.
    """
    trust_store = folder / "trust.jks"
    pem = place.kafka.authority.certificate.read_text()
    write_trust_store([ssl.PEM_cert_to_DER_cert(pem)], trust_store)

    def every_way(name: str) -> Outcome:
        outcome = _every_way(place, folder, trust_store, name, records)
        told(name, outcome)
        return outcome

    wanted = list(names)
    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(wanted, pool.map(every_way, wanted), strict=True))


def _every_way(
    place: TappedGateway, folder: Path, trust_store: Path, name: str, records: int
) -> Outcome:
    program = PROGRAMS[name]
    steps: dict[str, list[str]] = {DIRECT: [], THROUGH: []}
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}
    try:
        command = program.command(folder)
    except CannotBuildError as error:
        return Outcome(steps=steps, failed=failed, seconds=seconds, skipped=str(error))
    trusted = trust_store if program.has_trust_store else place.kafka.authority.certificate
    servers = {
        DIRECT: place.kafka.sasl_tls_bootstrap_servers,
        THROUGH: place.bootstrap_servers,
    }
    if program.goes_by_name:
        servers[BY_NAME] = place.by_name
    for way, at in servers.items():
        own = f"{PREFIX}{name}-{way}".lower().replace(" ", "-")
        arguments = [at, USER, SECRET, str(trusted), own, str(records), DENIED, *program.more]
        began_s = time.monotonic()
        said, words = _run([*command, *arguments])
        seconds[way] = round(time.monotonic() - began_s, 1)
        steps[way] = [line.replace(own, "NAME") for line in said]
        if words:
            failed[way] = words
    return Outcome(steps=steps, failed=failed, seconds=seconds)


def _run(command: list[str]) -> tuple[list[str], str]:
    """What it has said, and why it has failed, if it has."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=err, timeout=_END_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        out.seek(0)
        err.seek(0)
        said, words = out.read().splitlines(), err.read()[-1500:]
    end = f"not done in {_END_S:g} s" if code == -1 else f"ended with {code}"
    return said, f"{end} after {said[-1:]}: {words}" if code else ""
