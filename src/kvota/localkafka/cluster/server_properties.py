"""A node that is broker and controller at once reads its settings from ``server.properties``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvota.localkafka.cluster.listeners import Listener
from kvota.localkafka.cluster.ports import NodePorts
from kvota.model.errors import UsageError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"

# By itself a broker sends every consumer to the leader.
RACK_SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
}
_MODULES = "org.apache.kafka.common.security"
# Without the address of somebody's keys a broker takes tokens that nobody has signed: whoever sends one is whom it names.
_OAUTH_SETTINGS = {
    "oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
}


def server_properties(  # noqa: PLR0913  (all by name)
    node: NodePorts,
    nodes: Sequence[NodePorts],
    *,
    host: str,
    data: Path,
    listeners: Sequence[Listener],
    users: Mapping[str, str],
    oauth: bool = False,
) -> dict[str, str]:
    """Return the settings of one node of the cluster ``nodes``; all listen on ``host`` and say so.

    They are small where Kafka's defaults are sized for servers: few partitions of internal topics, few
    threads, a small buffer of the log cleaner, which the default heap here could not hold.
    """
    replicas = str(min(3, len(nodes)))
    addresses = [f"{each.name}://{host}:{node.listeners[each.name]}" for each in listeners]
    protocols = {each.name: each.protocol for each in listeners} | {"CONTROLLER": "PLAINTEXT"}
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "listeners": ",".join([*addresses, f"CONTROLLER://{host}:{node.controller}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{other.node_id}@{host}:{other.controller}" for other in nodes
        ),
        "log.dirs": str(data),
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        # A node that was killed is found out in 3 s instead of 9.
        "broker.heartbeat.interval.ms": "300",
        "broker.session.timeout.ms": "3000",
        # Brokers talk to each other without a name; with an authorizer they need this.
        "super.users": "User:ANONYMOUS",
    }
    mechanisms = (*(MECHANISMS if users else ()), *([OAUTHBEARER] if oauth else ()))
    if mechanisms:
        settings["sasl.enabled.mechanisms"] = ",".join(mechanisms)
    logins = (_sasl_settings(users) if users else {}) | (_OAUTH_SETTINGS if oauth else {})
    for listener in listeners:
        own = {**(logins if listener.has_users else {}), **listener.settings}
        settings |= {f"{listener.prefix}{key}": value for key, value in own.items()}
    return settings


def format_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def check_users(users: Mapping[str, str]) -> None:
    """Raises UsageError where a name or a secret is empty or has a control character."""
    for name, secret in users.items():
        for what, text in (("name", name), ("secret", secret)):
            if not text or not text.isprintable():
                msg = f'user "{name}": the {what} is empty or has a control character'
                raise UsageError(msg)


def _sasl_settings(users: Mapping[str, str]) -> dict[str, str]:
    options = " ".join(
        f"{_quoted('user_' + name)}={_quoted(secret)}" for name, secret in users.items()
    )
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        "plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {options};",
        "scram-sha-256.sasl.jaas.config": scram,
        "scram-sha-512.sasl.jaas.config": scram,
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(value: str) -> str:
    # Readers of Java properties take anything but ASCII, and a backslash, only as an escape.
    escaped = value.replace("\\", "\\\\")
    units = escaped.encode("utf-16-be")
    codes = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
