"""A real Apache Kafka of 1 to n nodes on this machine, for as long as a ``with`` block lasts."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kvota.files.run_folder import RunFolder
from kvota.localkafka.cluster import admin
from kvota.localkafka.cluster.acls import AUTHORIZER_SETTINGS, Acl, add_acls, knows_acls
from kvota.localkafka.cluster.awaiting import await_so
from kvota.localkafka.cluster.certificates import Authority
from kvota.localkafka.cluster.listeners import (
    ClientAuth,
    Listener,
    check_listeners,
    client_properties,
    listeners_of,
    with_certificates,
)
from kvota.localkafka.cluster.node import Node, words_of_end
from kvota.localkafka.cluster.ports import NodePorts, choose_ports
from kvota.localkafka.cluster.reachable import CLIENT_PROPERTIES, Reachable
from kvota.localkafka.cluster.server_properties import (
    RACK_SETTINGS,
    check_users,
    format_properties,
    server_properties,
)
from kvota.localkafka.cluster.storage import format_storage, new_id
from kvota.localkafka.jars import class_archive
from kvota.localkafka.jars.class_path import KAFKA_VERSION, kafka_classpath
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command
from kvota.model.errors import UnreachableError, UsageError

NODES_MAX = 9  # a laptop's memory; Kafka itself would take more

# One node alone has the machine's memory for itself.
_HEAP_MB_ALONE, _HEAP_MB = 400, 300
_STOP_S = 3
_STOP_AND_ARCHIVE_S = 60
_STOP_ONE_S = 10
_PORT_ATTEMPTS_MAX = 3
_PORT_TAKEN = "Address already in use"
_ARCHIVE = "classes.jsa"


class LocalKafka(Reachable):
    """Kafka in KRaft mode; every node is broker and controller.

    ::

        with LocalKafka(nodes=3, users={"alice": "alice-secret"}) as kafka:
            kafka.create_topic("orders", partitions=6, replication_factor=3)
            kafka.bootstrap_servers  # "127.0.0.1:21001,127.0.0.1:27313,127.0.0.1:30417"

    Nodes die with this process, even by ``kill -9``. Data and logs lie in a temporary folder that is
    removed at the end; after a failure the logs stay, and a line on stderr says where.
    """

    def __init__(  # noqa: PLR0913 - keyword options, all with a default
        self,
        *,
        nodes: int = 1,
        version: str = KAFKA_VERSION,
        host: str = "127.0.0.1",
        users: Mapping[str, str] | None = None,
        oauth: bool = False,
        acls: Sequence[Acl] | None = None,
        tls: ClientAuth | None = None,
        listeners: Sequence[Listener] = (),
        racks: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        first_port: int | None = None,
        heap_mb: int | None = None,
        folder: Path | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Describes a cluster; ``start`` or ``with`` starts it.

        Args:
            nodes: how many, 1 to 9.
            version: a Kafka version of the lock file.
            host: a loopback address on which all listeners are and which they advertise.
            users: name to secret; with users there is a SASL_PLAINTEXT listener too.
            oauth: whether that listener is there, and takes OAUTHBEARER, with tokens that nobody has signed: who
                sends one is whom it names.
            acls: rules for these users, which may do nothing else then; None: everybody may do
                everything, as ANONYMOUS, who has not logged in, always may.
            tls: whether clients need a certificate, at a listener SSL that there is then, and with users SASL_SSL,
                which needs none. Both show a certificate for ``host`` and localhost by an ``authority`` of its own.
            listeners: further ones of each node.
            racks: one for each node; consumers with a ``client.rack`` read in theirs then (KIP-392).
            properties: settings of ``server.properties`` that win over ours.
            first_port: PLAINTEXT port of the first node, the others follow; free ones if None.
            heap_mb: of each node; 400 for one node, else 300.
            folder: for data and logs in place of a temporary one; empty, but that ``node-N/data`` may be
                there for some nodes, each empty: a file system of its own.
            java_options: more options of the nodes' JVMs, ``SHORT_LIVED`` for tests.

        Raises:
            UsageError: the number of nodes or racks, a user, a listener or the first port is no good.
        """
        if not 1 <= nodes <= NODES_MAX:
            msg = f"{nodes} nodes cannot be had; take 1 to {NODES_MAX}"
            raise UsageError(msg)
        if racks and len(racks) != nodes:
            msg = f"{len(racks)} racks for {nodes} nodes: name one for each node"
            raise UsageError(msg)
        self.version, self.users, self.oauth = version, dict(users or {}), oauth
        check_users(self.users)
        listeners = [*listeners_of(users=bool(self.users) or oauth, tls=tls), *listeners]
        check_listeners(listeners, tls)
        super().__init__(host, listeners)
        self._acls, self._tls, self._racks = acls, tls, tuple(racks)
        self.folder, self._ready = Path(), False
        self._run_folder: RunFolder | None = None
        self._node_count, self._properties = nodes, dict(properties or {})
        self._first_port, self._folder_wanted = first_port, folder
        self._heap_mb = heap_mb or (_HEAP_MB_ALONE if nodes == 1 else _HEAP_MB)
        self._java_options = tuple(java_options)

    # ------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        # Ctrl-C and exit are ends like any other, not failures that somebody will look into.
        self.stop(keep_logs=kind is not None and issubclass(kind, Exception))

    def start(self) -> None:
        """Starts all nodes; returns when each answers and knows all others.

        Raises:
            UnreachableError: a node did not get ready; the text quotes its log. Or jars are missing.
            UsageError: ``first_port`` is taken, or ``host`` is not an address of this machine.
        """
        kafka_classpath(self.version)
        for attempt in range(1, _PORT_ATTEMPTS_MAX + 1):
            try:
                self._start_once()
            except UnreachableError:
                # Somebody may have taken a port between our look and Kafka's; others will do.
                taken = any(_PORT_TAKEN in node.log_text() for node in self.nodes)
                again = taken and self._first_port is None and attempt < _PORT_ATTEMPTS_MAX
                self.stop(keep_logs=not again)
                if not again:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                self._ready = True
                return

    def stop(self, *, keep_logs: bool = False) -> None:
        """Ends all nodes and removes the folder, or all of it but the logs.

        They get SIGTERM, and SIGKILL where they are not gone soon: the data goes anyway, and of
        several nodes the last ones wait for a quorum that is no more.
        """
        if self.folder == Path():
            return
        making_archive = self._ready and not keep_logs and bool(self._archive_options())
        if making_archive:
            sys.stderr.write("keeping an archive of Kafka's classes: later starts are quicker\n")
        for node in self.nodes:
            node.signal(signal.SIGTERM)
        patience_s = _STOP_AND_ARCHIVE_S if making_archive else _STOP_S
        deadline_s = time.monotonic() + patience_s
        for node in self.nodes:
            if not node.wait(max(0.0, deadline_s - time.monotonic())):
                node.kill()
        if making_archive:
            self._keep_archive()
        self._leave_folder(keep_logs=keep_logs)
        self.folder, self._ready = Path(), False
        self._authority = None

    def _leave_folder(self, *, keep_logs: bool) -> None:
        own, self._run_folder = self._run_folder, None
        if keep_logs:
            for node in self.nodes:
                shutil.rmtree(node.data_path, ignore_errors=True)
            sys.stderr.write(f"Kafka's logs are kept in {self.folder}\n")
            if own is not None:
                own.keep()
        elif own is not None:
            own.remove()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def let_go(self) -> None:
        """Lets the nodes outlive this process; ending them is then somebody else's task."""
        for node in self.nodes:
            node.let_go()

    def check(self) -> None:
        """Raises UnreachableError, with the end of its log, if a node has ended by itself."""
        for node in self.nodes:
            if not node.running:
                raise UnreachableError(words_of_end(node))

    def kill(self, node_id: int) -> None:
        """Ends one node with ``kill -9``; returns when it is gone."""
        self.node(node_id).kill()

    def stop_node(self, node_id: int) -> None:
        """Ends one node in order: its partitions move first. After 10 s it is killed."""
        node = self.node(node_id)
        node.signal(signal.SIGTERM)
        if not node.wait(_STOP_ONE_S):
            node.kill()

    def start_node(self, node_id: int) -> None:
        """Starts a node that was killed or stopped, with the same ports and data.

        Raises:
            UnreachableError: it did not get ready; the text quotes its log.
        """
        node = self.node(node_id)
        node.start()
        await_so(
            f"node {node_id} is registered again",
            lambda: node_id in admin.live_broker_ids(node.address),
            [node],
        )

    # ------------------------------------------------------------ tools

    def java_command_line(self, main_class: str, *args: str) -> list[str]:
        """Return the command of a Java client that may run long, for ``subprocess.Popen``."""
        return kafka_command(
            self.version, main_class, args, log_level="WARN", log_stream="SYSTEM_ERR"
        )

    def run_tool(
        self, main_class: str, *args: str, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command line tools to its end (1 to 2 s).

        Raises:
            UnreachableError: it did not end in time.
        """
        command = kafka_command(
            self.version,
            main_class,
            args,
            log_level="WARN",
            log_stream="SYSTEM_ERR",
            java_options=SHORT_LIVED,
        )
        try:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            msg = f"{main_class} {' '.join(args)} did not end in {timeout_s:g} s"
            raise UnreachableError(msg) from error

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic without a JVM; returns when all running nodes know its leaders.

        Raises:
            UsageError: Kafka refuses; the text has its error.
        """
        running = [node for node in self.nodes if node.running]
        admin.create_topic(
            running[0].address,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
        )
        self.await_topic(name, partitions)

    def await_topic(self, name: str, partitions: int) -> None:
        """Returns when all running nodes know leaders of so many partitions; of 0: that the topic is gone.

        Raises:
            UnreachableError: a node has ended meanwhile, or two minutes have passed.
        """
        running = [node for node in self.nodes if node.running]
        for node in running:
            await_so(
                f'node {node.node_id} knows {partitions} partitions of topic "{name}"',
                lambda node=node: admin.knows_topic(node.address, name, partitions),  # type: ignore[misc]
                running,
            )

    def add_acls(self, *acls: Acl) -> None:
        """Lets users do more, or less; returns when all running nodes go by it.

        Raises:
            UsageError: the cluster was made without ``acls`` and asks nobody; or Kafka refuses a rule.
        """
        if self._acls is None:
            msg = "the cluster has no authorizer; write LocalKafka(acls=[]), or with the rules"
            raise UsageError(msg)
        running = [node for node in self.nodes if node.running]
        add_acls(running[0].address, acls)
        for node in running:
            await_so(
                f"node {node.node_id} knows the rules",
                lambda node=node: knows_acls(node.address, acls),  # type: ignore[misc]
                running,
            )

    # ------------------------------------------------------------ inside

    def _start_once(self) -> None:
        self.folder = self._new_folder()
        names = [each.name for each in self._listeners]
        ports = choose_ports(self.host, self._node_count, listeners=names, first=self._first_port)
        self._make_certificates()
        cluster_id = new_id()
        self.nodes = [self._new_node(own, ports, cluster_id) for own in ports]
        for node in self.nodes:
            node.start()
        self._await_all()

    def _make_certificates(self) -> None:
        if self._tls is None:
            return
        folder = self.folder / "tls"
        self._authority = Authority(folder)
        client = client_properties(self._authority, self._authority.issue("client"))
        (folder / CLIENT_PROPERTIES).write_text(format_properties(client))
        server = self._authority.issue("server", hosts=[self.host, "localhost"])
        self._listeners = with_certificates(self._listeners, server, self._authority, self._tls)

    def _new_folder(self) -> Path:
        if self._folder_wanted is not None:
            self._folder_wanted.mkdir(parents=True, exist_ok=True)
            return self._folder_wanted
        self._run_folder = RunFolder("kafka-")
        return self._run_folder.path

    def _new_node(self, own: NodePorts, ports: Sequence[NodePorts], cluster_id: str) -> Node:
        folder = self.folder / f"node-{own.node_id}"
        folder.mkdir(exist_ok=True)
        node = Node(
            version=self.version,
            host=self.host,
            ports=own,
            folder=folder,
            heap_mb=self._heap_mb,
            java_options=(*self._java_options, *self._archive_options()),
        )
        settings = server_properties(
            own,
            ports,
            host=self.host,
            data=node.data_path,
            listeners=self._listeners,
            users=self.users,
            oauth=self.oauth,
        )
        if self._acls is not None:
            settings |= AUTHORIZER_SETTINGS
        if self._racks:
            settings |= RACK_SETTINGS | {"broker.rack": self._racks[own.node_id - 1]}
        node.configure(settings | self._properties)
        format_storage(
            node.data_path, version=self.version, cluster_id=cluster_id, node_id=own.node_id
        )
        return node

    def _await_all(self) -> None:
        ids = {node.node_id for node in self.nodes}
        for node in self.nodes:
            await_so(
                f"node {node.node_id} answers and knows all {len(ids)} brokers",
                lambda node=node: admin.live_broker_ids(node.address) == ids,  # type: ignore[misc]
                self.nodes,
            )
        if self._acls:
            self.add_acls(*self._acls)
        if not self.users:
            return
        admin.add_scram_users(self.nodes[0].address, self.users)
        for node in self.nodes:
            await_so(
                f"node {node.node_id} knows all users",
                lambda node=node: admin.knows_users(node.address, self.users),  # type: ignore[misc]
                self.nodes,
            )

    # An archive of classes is written by a node that ends in order while nothing depends on the
    # time that takes: one node, in a folder that nobody asked for.

    def _archive_options(self) -> list[str]:
        if self._node_count > 1 or self._folder_wanted is not None:
            return []
        return class_archive.making_options(self.version, self.folder / _ARCHIVE)

    def _keep_archive(self) -> None:
        (node,) = self.nodes
        made = self.folder / _ARCHIVE
        if made.exists() and node.exit_code != -signal.SIGKILL:
            class_archive.keep(self.version, made)
