"""The table [kafka] of gateway.toml: Kafka's own property names, as a broker's server.properties has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvota.app import config_values as values
from kvota.app.config_reader import Reader, Table
from kvota.callbacks.loading import ChosenCallback, choose, prefixes_of
from kvota.engine.layered_bloom import Layering
from kvota.gateway.settings import GatewayLimits
from kvota.model.broker_settings import CALLBACK_CLASS, WINDOW_DEFAULTS, WINDOW_SETTINGS
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.volumes.settings import (
    ADMIN_PREFIXES,
    FACTOR_SOURCE,
    HARD_RATIO,
    KNOWN_PROPERTIES,
    PREFIX,
    VolumeSettings,
    own_prefixes,
    read_volume_settings,
)

# Ours: whether a full disk slows all producers down, or those of its broker.
FACTOR_SCOPE = f"{PREFIX}.throttle.factor.scope"

_IDS_WINDOW_S = "producer.id.quota.window.size.seconds"
_IDS_SAMPLES = "producer.id.quota.window.num"
_IDS_LAYERS = "producer.id.quota.cache.layer.count"
_IDS_FALSE_POSITIVES = "producer.id.quota.cache.false.positive.rate"
_IDS_SWEEP_MS = "producer.id.quota.cache.cleanup.scheduler.interval.ms"
# KIP-936; its default of 10 ms for the last one would keep a processor busy with nothing.
_OF_PRODUCER_IDS = (_IDS_WINDOW_S, _IDS_SAMPLES, _IDS_LAYERS, _IDS_FALSE_POSITIVES, _IDS_SWEEP_MS)

_IDLE_MS = "connections.max.idle.ms"
_NAME_CLAIM = "sasl.oauthbearer.sub.claim.name"
_PER_IP, _PER_IP_OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProperties:
    """What the table says.

    Attributes:
        windows: of each quota type.
        callback: its class, and the properties that it is configured with.
        callback_properties: what there is for any callback, whichever is chosen.
        places: where in the file each property stands.
        volumes: whether and how full disks throttle.
        factor_per_broker: a full disk slows down the producers of its broker only.
        id_layering: how long a producer id stays known, and how surely.
        id_rate_samples: in how many samples of that time the rate of new ids is measured that metrics show.
        id_sweep_ms: so often what is known of each user is looked at.
        connections_per_ip_max, connections_per_ip_overrides, connections_idle_ms: as Kafka has them.
        name_claim: of bearer tokens, in which the user's name stands.
    """

    windows: dict[QuotaType, QuotaWindow]
    callback: ChosenCallback
    callback_properties: Mapping[str, str]
    places: Mapping[str, str] = field(compare=False)
    volumes: VolumeSettings
    factor_per_broker: bool
    id_layering: Layering
    id_rate_samples: int
    id_sweep_ms: int
    connections_per_ip_max: int
    connections_per_ip_overrides: dict[str, int]
    connections_idle_ms: int
    name_claim: str


def read_kafka_properties(reader: Reader) -> KafkaProperties:
    """Read the table; its faults go to the reader."""
    of_gateway = (CALLBACK_CLASS, FACTOR_SCOPE, _PER_IP, _PER_IP_OVERRIDES, _IDLE_MS, _NAME_CLAIM)
    gateways_own = (*WINDOW_SETTINGS, *of_gateway, *_OF_PRODUCER_IDS)
    known = (*gateways_own, *KNOWN_PROPERTIES)
    said = _texts(reader)
    prefixes = (
        *ADMIN_PREFIXES,
        *prefixes_of(said.get(CALLBACK_CLASS, ChosenCallback().class_name)),
        *own_prefixes(said),
    )
    kafka = reader.properties("kafka", known, prefixes=prefixes)
    of_callback = {
        key: _text(value) for key, value in kafka.data.items() if key not in gateways_own
    }
    volumes, faults = read_volume_settings(of_callback)
    for fault in faults:
        kafka.fault(fault.place, fault.problem, fault.remedy)
    if volumes.tells_factor and FACTOR_SCOPE in kafka.data:
        kafka.fault(
            FACTOR_SCOPE,
            f"set together with {FACTOR_SOURCE}, whose factor is that of all brokers",
            "Keep one of the two.",
        )
    elif volumes.limit is None and FACTOR_SCOPE in kafka.data and not faults:
        kafka.fault(
            FACTOR_SCOPE,
            "set, and no limit of a volume is: there is no factor",
            f'Write a limit, e.g. "{HARD_RATIO[0]}" = 0.1, or take it out.',
        )
    per_ip_max, per_ip_overrides = _connections_per_ip(kafka)
    return KafkaProperties(
        windows=_windows(kafka),
        callback=choose(
            kafka.value(CALLBACK_CLASS, ChosenCallback().class_name, values.read_class_name),
            of_callback,
        ),
        callback_properties=of_callback,
        places={key: kafka.place(key) for key in (CALLBACK_CLASS, *kafka.data)},
        volumes=volumes,
        factor_per_broker=kafka.value(FACTOR_SCOPE, "cluster", values.read_factor_scope)
        == "broker",
        id_layering=_id_layering(kafka),
        id_rate_samples=kafka.value(_IDS_SAMPLES, 11, values.read_rate_samples),
        id_sweep_ms=kafka.value(_IDS_SWEEP_MS, 60_000, values.read_sweep_ms),
        connections_per_ip_max=per_ip_max,
        connections_per_ip_overrides=per_ip_overrides,
        connections_idle_ms=kafka.value(_IDLE_MS, GatewayLimits().idle_ms, values.read_idle_ms),
        name_claim=kafka.value(_NAME_CLAIM, "sub", values.read_text),
    )


def _id_layering(kafka: Table) -> Layering:
    default = Layering()
    seconds = kafka.value(_IDS_WINDOW_S, default.window_ms // 1000, values.read_window_seconds)
    return Layering(
        window_ms=seconds * 1000,
        layers=kafka.value(_IDS_LAYERS, default.layers, values.read_layers),
        false_positive_rate=kafka.value(
            _IDS_FALSE_POSITIVES, default.false_positive_rate, values.read_false_positives
        ),
    )


def _connections_per_ip(kafka: Table) -> tuple[int, dict[str, int]]:
    per_ip_max = kafka.value(
        _PER_IP, GatewayLimits().connections_per_ip_max, values.read_connections_per_ip
    )
    none: dict[str, int] = {}
    overrides = kafka.value(_PER_IP_OVERRIDES, none, values.read_connections_per_ip_overrides)
    if not per_ip_max and not overrides:
        kafka.fault(
            _PER_IP,
            f"0, and {_PER_IP_OVERRIDES} names nobody: no client could connect",
            "Write 1 or more, or name those who may.",
        )
    return per_ip_max, overrides


def _texts(reader: Reader) -> Mapping[str, str]:
    """What is said, before anything else is read: names of classes say which properties there may be."""
    found = reader.properties("kafka", (), prefixes=("",)).data
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _windows(kafka: Table) -> dict[QuotaType, QuotaWindow]:
    windows: dict[tuple[str, str], QuotaWindow] = {}
    of_types = {of_type: FACTS[of_type].window_properties for of_type in CONFIGURABLE_TYPES}
    for samples_name, seconds_name in dict.fromkeys(of_types.values()):
        samples = kafka.value(samples_name, WINDOW_DEFAULTS[samples_name], values.read_samples)
        seconds = kafka.value(
            seconds_name, WINDOW_DEFAULTS[seconds_name], values.read_window_seconds
        )
        windows[samples_name, seconds_name] = QuotaWindow(samples, seconds * 1000)
    return {quota_type: windows[names] for quota_type, names in of_types.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
