"""The table [quotas] of gateway.toml: where the quotas are, who may alter them, how each type is held."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kvota.app import config_values as values
from kvota.app.config_reader import Reader
from kvota.model.bucket_settings import BucketSettings
from kvota.model.client_quotas import CONNECTION_RATE_KEY
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS, Algorithm, QuotaType
from kvota.session.producer_id_quota import REFUSALS
from kvota.session.quota_admins import QuotaAdmins, is_loopback
from kvota.wire.error_code import ErrorCode


class QuotaSourceKind(StrEnum):
    """Where configured quotas come from."""

    TOML = "toml"  # a file that people write
    FILE = "file"  # one of the gateway's own, altered by Kafka's tools
    TOPIC = "topic"  # one of the cluster, which several gateways share


# Keys that would be right one level below.
_REMEDIES = {
    key: f"It belongs to a quota type: [quotas.PRODUCE] and below it {key} = {example}."
    for key, example in (
        ("enforce", "true"),
        ("algorithm", '"token_bucket"'),
        ("burst", '"1s"'),
        ("debt_max", '"15s"'),
    )
}
_FILE_NAMES = {
    QuotaSourceKind.TOML: "quotas.toml",
    QuotaSourceKind.FILE: "quotas.json",
    QuotaSourceKind.TOPIC: "quotas.json",
}
_TOPIC = "kvota-quotas"
_PRODUCER_ID = QuotaType.PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """What [quotas] says.

    Attributes:
        source: where quotas come from.
        file: that of the source; of a topic, what it has had last.
        topic: its name, where it is the source.
        shadow: a file of quotas that are tried in shadow mode beside those in force; None: none are.
        callback_classes: dotted names of callbacks that may be chosen over the network, beside kvota's own.
        admins: who may alter quotas where no authorizer of the cluster can say.
        enforced: quota types in force; the others are in shadow mode.
        enforces_connection_rates: whether connection_creation_rate is in force, or only watched.
        buckets: the quota types that are counted by a token bucket.
        refuses_ids_with: what a partition is answered whose batch is refused for its producer id.
        saved_ids: where is kept while the gateway does not run which producer ids are known.
    """

    source: QuotaSourceKind
    file: Path
    topic: str
    shadow: Path | None = None
    callback_classes: tuple[str, ...]
    admins: QuotaAdmins
    enforced: frozenset[QuotaType]
    enforces_connection_rates: bool
    buckets: dict[QuotaType, BucketSettings]
    refuses_ids_with: ErrorCode
    saved_ids: Path

    @property
    def place(self) -> str:
        """Where quotas are, in words: a file, or e.g. ``topic kvota-quotas``."""
        return f"topic {self.topic}" if self.source is QuotaSourceKind.TOPIC else str(self.file)


def read_quota_settings(reader: Reader, path: Path, *, listens_at: str) -> QuotaSettings:
    """Read the table; ``path`` is that of gateway.toml, ``listens_at`` the gateway's host."""
    folder = path.parent
    quotas = reader.table("quotas")
    of_table = ("source", "file", "topic", "shadow", "callback_classes", "admins")
    known = (*of_table, *CONFIGURABLE_TYPES, _PRODUCER_ID, CONNECTION_RATE_KEY)
    reader.known(("quotas",), known, remedies=_REMEDIES)
    source = quotas.value("source", QuotaSourceKind.TOML, _read_source)
    file = quotas.value("file", _FILE_NAMES[source], values.read_path)
    topic = quotas.value("topic", _TOPIC, values.read_topic)
    if "topic" in quotas.data and source is not QuotaSourceKind.TOPIC:
        quotas.fault("topic", f'means nothing to source = "{source}"', 'Add source = "topic".')
    if source is not QuotaSourceKind.TOML and file.endswith(".toml"):
        quotas.fault(
            "file",
            f'"{file}" is a file that people write, and source = "{source}" keeps a JSON document',
            'Write e.g. "quotas.json"; gateway import-quotas --from takes the quotas over.',
        )
    shadow = quotas.value("shadow", None, values.read_path)
    enforced, buckets = _of_types(reader)
    reader.known(("quotas", CONNECTION_RATE_KEY), ("enforce",))
    of_connections = reader.table("quotas", CONNECTION_RATE_KEY)
    reader.known(("quotas", _PRODUCER_ID), ("enforce", "refuse_with", "saved"))
    of_ids = reader.table("quotas", _PRODUCER_ID)
    if of_ids.value("enforce", False, values.read_boolean):  # noqa: FBT003
        enforced.add(_PRODUCER_ID)
    return QuotaSettings(
        source=source,
        file=folder / file,
        topic=topic,
        shadow=None if shadow is None else folder / shadow,
        callback_classes=quotas.value("callback_classes", (), values.read_class_names),
        admins=_admins(reader, listens_at=listens_at),
        enforced=frozenset(enforced),
        enforces_connection_rates=of_connections.value("enforce", False, values.read_boolean),  # noqa: FBT003
        buckets=buckets,
        refuses_ids_with=of_ids.value("refuse_with", REFUSALS[0], values.read_refusal),
        saved_ids=folder / of_ids.value("saved", f"{path.stem}.producer-ids", values.read_path),
    )


def _read_source(value: object) -> QuotaSourceKind:
    return QuotaSourceKind(values.read_choice(value, tuple(QuotaSourceKind)))


def _admins(reader: Reader, *, listens_at: str) -> QuotaAdmins:
    """Unless said otherwise, who is on this machine, where nobody else can connect; else nobody."""
    reader.known(("quotas", "admins"), ("users", "hosts"))
    table = reader.table("quotas", "admins")
    if not table.data:
        return QuotaAdmins(loopback=is_loopback(listens_at))
    return QuotaAdmins(
        users=frozenset(table.value("users", list[str](), values.read_users)),
        hosts=frozenset(table.value("hosts", set[str](), values.read_addresses)),
    )


def _of_types(reader: Reader) -> tuple[set[QuotaType], dict[QuotaType, BucketSettings]]:
    """Read which types are enforced, and which of them count by a debt bucket."""
    enforced: set[QuotaType] = set()
    buckets: dict[QuotaType, BucketSettings] = {}
    default = BucketSettings()
    for quota_type in CONFIGURABLE_TYPES:
        table = reader.table("quotas", quota_type)
        algorithms = FACTS[quota_type].algorithms
        has_choice = len(algorithms) > 1
        choices = ("algorithm", "burst", "debt_max") if has_choice else ()
        reader.known(("quotas", quota_type), ("enforce", *choices))
        if table.value("enforce", False, values.read_boolean):  # noqa: FBT003
            enforced.add(quota_type)
        if not has_choice:
            continue
        algorithm = table.value("algorithm", algorithms[0], values.read_algorithm)
        burst_ms = table.value("burst", default.burst_ms, values.read_burst_ms)
        debt_max_ms = table.value("debt_max", default.debt_max_ms, values.read_debt_max_ms)
        if algorithm is Algorithm.TOKEN_BUCKET:
            buckets[quota_type] = BucketSettings(burst_ms=burst_ms, debt_max_ms=debt_max_ms)
        else:
            for name in ("burst", "debt_max"):
                if name in table.data:
                    table.fault(
                        name,
                        "means nothing to a sampled rate",
                        'Add algorithm = "token_bucket", or take it away.',
                    )
    return enforced, buckets
