"""A real Kafka with users, and the ways to it on which attacks are run: ``Field.run``.

All ways lead to the same brokers. Each run has counters of its own: a new gateway process, or a client
id or user that the broker has not met.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.adversary import good_client
from tests.adversary.cluster_log import carried_out
from tests.adversary.cpu_time import CpuTime
from tests.adversary.frames import produce
from tests.adversary.good_client import GoodClient
from tests.adversary.housekeeping import (
    connections_max_in_force,
    delete_topics,
    quotas_in_force,
)
from tests.adversary.memory import Memory
from tests.adversary.target import Attack, Entity, Finding, Got, Target, Way
from tests.integration.raw_client import RawClient

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.errors import ProtocolError, UnreachableError

READABLE_TOPIC, READABLE_RECORD_BYTES, READABLE_RECORDS = "readable", 999_000, 20
_WRITABLE_TOPIC, _BESIDE_TOPIC = "writable", "beside"
_TOPICS = (READABLE_TOPIC, _WRITABLE_TOPIC, _BESIDE_TOPIC)
_GATED_USER, _GOOD_USER = "mallory", "good"
_DIRECT_USERS = tuple(f"mallory-{number}" for number in range(40))
_ENFORCED = {"PRODUCE": True, "FETCH": True, "CONTROLLER_MUTATION": True}
_NO_LIMIT = 10.0**12


class BrokerEndedError(Exception):
    """The broker did not live through an attack, or answers nobody any more: the field is of no more use.

    Attributes:
        found: until then, if it came to that.
    """

    def __init__(self, words: str, found: Finding | None) -> None:
        super().__init__(words)
        self.found = found


class Field:
    """The cluster; ready on entry, gone on exit.

    Args:
        folder: for the gateways' files.
        nodes: of the cluster.
        host: where the brokers listen, and what they advertise.
    """

    def __init__(self, folder: Path, *, nodes: int = 1, host: str = "127.0.0.1") -> None:
        users = (_GATED_USER, _GOOD_USER, *_DIRECT_USERS)
        self.kafka = LocalKafka(
            nodes=nodes,
            host=host,
            users={name: _secret(name) for name in users},
            # An attack that is let through writes gigabytes; they need not stay.
            properties={
                "log.retention.bytes": str(256 << 20),
                "log.segment.bytes": str(64 << 20),
                "log.retention.check.interval.ms": "5000",
                "log.segment.delete.delay.ms": "1000",
                "message.max.bytes": str(20 << 20),
                "num.partitions": "10",
                # Under some attacks a broker does not get round to its heartbeats.
                "broker.session.timeout.ms": "30000",
                "controller.quorum.fetch.timeout.ms": "15000",
            },
            heap_mb=1_500 if nodes == 1 else 500,
            java_options=SHORT_LIVED,
        )
        self._folder, self._numbers = folder, count(1)
        self._direct_users = iter(_DIRECT_USERS)

    def __enter__(self) -> Self:
        self.kafka.start()
        self.kafka.create_topic(READABLE_TOPIC, configs={"retention.bytes": "-1"})
        self.kafka.create_topic(_WRITABLE_TOPIC)
        self.kafka.create_topic(_BESIDE_TOPIC)
        with RawClient(self.kafka.nodes[0].address) as client:
            record = produce(READABLE_TOPIC, READABLE_RECORD_BYTES, client_id="preload")
            for _ in range(READABLE_RECORDS):
                client.send(record)
                client.frame()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kafka.stop(keep_logs=kind is not None and issubclass(kind, Exception))

    async def run(
        self, attack: Attack, way: Way, seconds: float, *, beside_gateway: bool = False
    ) -> Finding:
        """Runs an attack, a good client beside it; one more straight at the broker, if wished.

        Raises:
            BrokerEndedError: the broker did not live through it, or did not answer for minutes.
        """
        found: Finding | None = None
        try:
            with self.target(attack, way) as target:
                straight = self._broker_nodes(attack)[0]
                others = [straight] if beside_gateway and way is not Way.BROKER else []
                found = await self._run_at(target, attack, seconds, others)
            done = None
            if attack.unit == "partitions" and way is not Way.BROKER:
                done = carried_out(self.kafka, target.client_id)
            delete_topics(self._addresses, keeping=_TOPICS)
        except (UnreachableError, ProtocolError) as error:
            raise BrokerEndedError(self._words_of_end(error), found) from error
        return replace(found, carried_out=done)

    async def _run_at(
        self, target: Target, attack: Attack, seconds: float, others: Sequence[tuple[str, int]]
    ) -> Finding:
        login = GOOD_LOGIN if attack.entity.logs_in else None
        pids = {"attackers": os.getpid(), "broker": self.kafka.nodes[0].pid}
        if target.gateway_pid is not None:
            pids["gateway"] = target.gateway_pid
        with ExitStack() as stack:
            good, *straight = [
                stack.enter_context(GoodClient(address, _BESIDE_TOPIC, attack.good, login))
                for address in (target.address, *others)
            ]
            memory = Memory(target.gateway_pid) if target.gateway_pid is not None else None
            got, used, begin = Got(), CpuTime(pids), time.monotonic()
            await attack.run(target, seconds, got)
            elapsed_s = time.monotonic() - begin
            cores = used.cores()
            waits, *straight_waits = [each.waits() for each in (good, *straight)]
        return Finding(
            attack=attack,
            way=target.way,
            seconds=elapsed_s,
            got=got,
            good=waits,
            growth_mib=memory.growth_mib() if memory is not None else None,
            record=self._folder / target.client_id / "record" if memory is not None else None,
            straight=straight_waits[0] if straight_waits else None,
            cores=cores,
        )

    def _words_of_end(self, error: Exception) -> str:
        try:
            self.kafka.check()
        except UnreachableError as end:
            return str(end)
        return str(error)

    @contextmanager
    def target(self, attack: Attack, way: Way) -> Iterator[Target]:
        """A way to the brokers under the quota of an attack; gone at the end."""
        number = next(self._numbers)
        client_id = f"{way.value}-{attack.name}-{number}"
        if way is Way.BROKER:
            user = next(self._direct_users) if attack.entity is Entity.USER else _GATED_USER
            nodes = self._broker_nodes(attack)
            target = self._target(attack, way, client_id, user, (nodes[0], *nodes), None)
            with (
                quotas_in_force(self._addresses, attack, client_id, user),
                connections_max_in_force(self._addresses, attack.broker_connections_max),
            ):
                yield target
        else:
            first_port = free_port_range(2 + len(self.kafka.nodes))
            ports = (first_port, *(first_port + 1 + node.node_id for node in self.kafka.nodes))
            addresses = tuple(("127.0.0.1", port) for port in ports)
            with self._gateway(attack, way, client_id, first_port) as process:
                yield self._target(attack, way, client_id, _GATED_USER, addresses, process.pid)
                assert process.running, f"the gateway is gone; its log:\n{process.log[-3000:]}"

    def _target(
        self,
        attack: Attack,
        way: Way,
        client_id: str,
        user: str,
        addresses: tuple[tuple[str, int], ...],
        pid: int | None,
    ) -> Target:
        """The first address is where clients bootstrap."""
        reads = "consumer_byte_rate" in attack.quotas
        topic = READABLE_TOPIC if reads else _WRITABLE_TOPIC
        return Target(
            way=way,
            address=addresses[0],
            nodes=addresses[1:],
            client_id=client_id,
            user=user,
            secret=_secret(user),
            logs_in=attack.entity.logs_in,
            topic=topic,
            limits=attack.quotas,
            places=attack.places,
            gateway_pid=pid,
        )

    @property
    def _addresses(self) -> tuple[tuple[str, int], ...]:
        """Of the brokers, for nobody's quota."""
        return tuple(node.address for node in self.kafka.nodes)

    def _broker_nodes(self, attack: Attack) -> tuple[tuple[str, int], ...]:
        if attack.entity.logs_in:
            return tuple((self.kafka.host, node.ports.sasl) for node in self.kafka.nodes)
        return self._addresses

    def _gateway(self, attack: Attack, way: Way, client_id: str, first_port: int) -> GatewayProcess:
        login = attack.entity.logs_in
        config = gateway_toml(
            # Not the name by which the broker speaks of itself: a counter is the broker's.
            upstream=_by_another_name(
                self.kafka.sasl_bootstrap_servers if login else self.kafka.bootstrap_servers
            ),
            first_port=first_port,
            node_ids=f"0-{len(self.kafka.nodes)}",
            enforce=_ENFORCED,
            record="record",
            limits=attack.limits,
        )
        for quota_type in ("PRODUCE", "FETCH"):
            table = f"[quotas.{quota_type}]\n"
            config = config.replace(table, f'{table}algorithm = "{way.value}"\n')
        return GatewayProcess(
            self._folder / client_id,
            config=config,
            quotas=_quotas_toml(attack, client_id),
        )


def _secret(user: str) -> str:
    return f"{user}-secret"


GOOD_LOGIN = (_GOOD_USER, _secret(_GOOD_USER))


def _by_another_name(servers: str) -> str:
    return servers.replace("127.0.0.1:", "localhost:")


def _quotas_toml(attack: Attack, client_id: str) -> str:
    if not attack.quotas:
        return ""
    whose = {
        Entity.CLIENT_ID: f'client_id = "{client_id}"',
        Entity.SHARED_CLIENT_ID: f'client_id = "{client_id}"',
        Entity.EVERY_CLIENT_ID: "client_id_default = true",
        Entity.USER: f'user = "{_GATED_USER}"',
    }[attack.entity]
    rates = "".join(f"{name} = {value}\n" for name, value in attack.quotas.items())
    good = "".join(f"{name} = {_NO_LIMIT}\n" for name in attack.quotas)
    text = f"[[quota]]\n{whose}\n{rates}"
    if attack.entity is Entity.EVERY_CLIENT_ID:
        text += f'[[quota]]\nclient_id = "{good_client.CLIENT_ID}"\n{good}'
    return text
