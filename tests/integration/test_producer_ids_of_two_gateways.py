"""Two gateways before one cluster, whose refusals know nothing of each other: what clients were told is true all the same."""

import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError
from tests.endurance.client_process import ClientProcess, java_client, python_client
from tests.endurance.judging import judge_numbers
from tests.endurance.topic_log import read_log

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

# So many clients, each with a topic of one partition: so many partitions are kept back while all are refused.
LIBRARIES = ("java", "librdkafka", "kafka-python")
RECORDS_PER_S = 200
_WINDOW_S = 5
# One id, which is spent before the clients come, and the next one after more than an hour; then a token each 0.1 s.
_NOBODY, _EVERYBODY = 0.001, 50
_AT_MOST_S = 90.0


def quotas(rate: float) -> str:
    return f"[[quota]]\nuser_default = true\nproducer_ids_rate = {rate}\n"


class SharedAddress:
    """One address of both gateways, as a load balancer is: a connection goes to the first one that takes it.

    For clients that never go back to their bootstrap servers.
    """

    HOST, BEHIND = "127.0.0.3", ("127.0.0.4", "127.0.0.5")

    def __init__(self, ports: range) -> None:
        self.bootstrap_servers = f"{self.HOST}:{ports[0]}"
        self._listening = [socket.create_server((self.HOST, port)) for port in ports]
        for listening in self._listening:
            threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def close(self) -> None:
        for listening in self._listening:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        port = listening.getsockname()[1]
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client, port), daemon=True).start()

    def _relay(self, client: socket.socket, port: int) -> None:
        for host in self.BEHIND:
            try:
                gateway = socket.create_connection((host, port))
            except OSError:
                continue
            back = threading.Thread(target=_copy, args=(gateway, client), daemon=True)
            back.start()
            _copy(client, gateway)
            back.join()
            gateway.close()
            break
        client.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """To the end of either; then neither goes on."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def shared() -> Iterator[SharedAddress]:
    first = free_port_range(4, SharedAddress.HOST)
    address = SharedAddress(range(first, first + 4))
    yield address
    address.close()


@pytest.fixture
def gateways(
    kafka: LocalKafka, tmp_path: Path, shared: SharedAddress
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    port = int(shared.bootstrap_servers.rpartition(":")[2])
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(
                GatewayProcess(
                    tmp_path / host,
                    config=gateway_toml(
                        upstream=kafka.bootstrap_servers,
                        node_ids="0-2",
                        enforce={"PRODUCER_ID": True},
                        kafka={"producer.id.quota.window.size.seconds": _WINDOW_S},
                        limits={"mute_time_max": "500ms"},
                        http_port=0,
                    )
                    + f'[listeners.shared]\nhost = "{host}"\nadvertised_host = "{shared.HOST}"\n'
                    + f"bootstrap_port = {port}\nnode_port_base = {port + 1}\n",
                    quotas=quotas(_NOBODY),
                )
            )
            for host in shared.BEHIND
        )
        yield one, other


class KafkaPython:
    """The same as ``clients/producing.py``, of another library, in a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            delivery_timeout_ms=300_000,
            max_block_ms=300_000,
            reconnect_backoff_max_ms=500,
        )
        self._topic = topic
        self._ending = threading.Event()
        self._futures: list[object] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Have it send no more where the test has failed; else it has ended."""
        self._ending.set()
        with suppress(KafkaTimeoutError):  # what it could not send keeps it open
            self._producer.close(timeout=5)

    def _run(self) -> None:
        while not self._ending.wait(1 / RECORDS_PER_S):
            value = f"0-{len(self._futures)}".encode()
            self._futures.append(self._producer.send(self._topic, value, partition=0))

    def result(self) -> list[str]:
        self._ending.set()
        self._thread.join()
        self._producer.flush(_AT_MOST_S)
        self._producer.close(timeout=5)
        failed = [
            f"failed 0-{number} {future.exception}"  # type: ignore[attr-defined]
            for number, future in enumerate(self._futures)
            if future.failed()  # type: ignore[attr-defined]
        ]
        told = sum(future.is_done for future in self._futures)  # type: ignore[attr-defined]
        return [*failed, f"sent 0 {len(self._futures)} {told}"]


def kept_back(gateway: GatewayProcess) -> int:
    """In how many partitions a refused batch keeps back what comes behind it."""
    with urllib.request.urlopen(f"{gateway.http_url}/metrics", timeout=60) as answer:
        found = re.search(
            r"^kvota_producer_ids_refused_partitions (\S+)$", answer.read().decode(), re.MULTILINE
        )
    assert found is not None
    return int(float(found[1]))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _AT_MOST_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def spend_the_token(gateway: GatewayProcess, topic: str) -> None:
    """The only new id that it lets in for an hour is not one of the clients."""
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap_servers, "enable.idempotence": True}
    )
    producer.produce(topic, b"0-0")
    assert producer.flush(_AT_MOST_S) == 0


def in_the_logs(kafka: LocalKafka) -> dict[str, int]:
    """How many records there are, while more come."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "nobody"})
    ends = {one: consumer.get_watermark_offsets(TopicPartition(one, 0), 60) for one in LIBRARIES}
    consumer.close()
    return {one: end for one, (_, end) in ends.items()}


@pytest.mark.timeout(600)
def test_a_client_whose_batch_was_refused_goes_on_at_another_gateway_and_loses_nothing(
    gateways: tuple[GatewayProcess, GatewayProcess],
    shared: SharedAddress,
    kafka: LocalKafka,
    tmp_path: Path,
) -> None:
    one, other = gateways
    began_s = time.monotonic()
    servers = f"{one.bootstrap_servers},{other.bootstrap_servers}"
    for topic in (*LIBRARIES, "token"):
        kafka.create_topic(topic, partitions=1)
    for gateway in gateways:
        spend_the_token(gateway, "token")

    def numbers(library: str) -> tuple[object, ...]:
        return (servers, library, 1, library, 1, RECORDS_PER_S)

    with (
        ClientProcess(tmp_path, "java", java_client("Producing", *numbers("java"))) as java,
        ClientProcess(
            tmp_path, "librdkafka", python_client("producing", *numbers("librdkafka"))
        ) as librdkafka,
        KafkaPython(shared.bootstrap_servers, "kafka-python") as kafka_python,
    ):
        everybody = len(LIBRARIES)
        wait_until(lambda: kept_back(one) + kept_back(other) == everybody, "all are refused")

        # Ended in order, with their first batches refused: at the other one they are refused anew, and then let in.
        assert one.stop() == 0
        wait_until(lambda: kept_back(other) == everybody, "all are refused at the other gateway")
        assert in_the_logs(kafka) == dict.fromkeys(LIBRARIES, 0)
        other.reload(quotas(_EVERYBODY))
        wait_until(lambda: kept_back(other) == 0, "all go on")
        wait_until(lambda: all(in_the_logs(kafka).values()), "all have written")

        # Behind its first window a gateway takes nobody for one that has been running before there was a quota.
        wait_until(lambda: time.monotonic() > began_s + _WINDOW_S, "a window is over")
        # Killed in the midst of it: the first one has never let these ids in, and refuses what follows.
        one.start()
        other.kill()
        wait_until(lambda: kept_back(one) == everybody, "all are refused at the first gateway")
        before = in_the_logs(kafka)
        one.reload(quotas(_EVERYBODY))
        wait_until(lambda: kept_back(one) == 0, "all go on again")
        wait_until(
            lambda: all(count > before[name] for name, count in in_the_logs(kafka).items()),
            "all have written again",
        )

        java.ask_to_end()
        librdkafka.ask_to_end()
        said = {"kafka-python": kafka_python.result()}
        said |= {client.name: client.result() for client in (java, librdkafka)}
    for library, lines in said.items():
        found = judge_numbers(read_log(kafka.bootstrap_servers, library, 1), lines)
        assert found.missed == [], (library, found.figures)
