"""What is set dynamically under Kafka's names of a broker's settings, laid over what gateway.toml says."""

from collections.abc import Mapping
from dataclasses import replace

from kvota.app.config import GatewayConfig
from kvota.app.kafka_properties import FACTOR_SCOPE
from kvota.app.quota_settings import QuotaSourceKind
from kvota.callbacks import ChosenCallback
from kvota.callbacks.grouped import GROUP_PREFIX
from kvota.callbacks.loading import choose, names_of_own, prefixes_of
from kvota.callbacks.partition_share import SHARE_PREFIX
from kvota.model.broker_settings import (
    CALLBACK_CLASS,
    NO_SETTINGS,
    WINDOW_DEFAULTS,
    WINDOW_SETTINGS,
    DescribedSetting,
    Kind,
    SettingChanges,
    Settings,
    Source,
    is_gateways,
    with_changes,
)
from kvota.model.errors import UsageError
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.quota_api.broker_settings import fault_of_number, number_of
from kvota.session.outside import Refusal
from kvota.volumes.settings import (
    ADMIN_PREFIXES,
    EXCLUDED,
    FETCH,
    KNOWN_PROPERTIES,
    PRODUCE,
    REQUEST,
)
from kvota.wire.error_code import ErrorCode

# Of the static callback's properties these are its own; the others are about volumes, and need a restart.
_STATIC = frozenset({PRODUCE, FETCH, REQUEST, EXCLUDED})
_OF_VOLUMES = frozenset({*KNOWN_PROPERTIES, FACTOR_SCOPE}) - _STATIC
# What holds no secrets. The properties of somebody's own class may.
_SHOWN = (GROUP_PREFIX, SHARE_PREFIX)


class RunningConfig:
    """What a gateway runs by.

    Attributes:
        written: what gateway.toml says, as far as it was taken over.
        settings: what is set dynamically, and in force.
        config: both together.
        said: why the stored settings are not in force, as it was said last; empty: nothing was.
    """

    def __init__(self, written: GatewayConfig, settings: Settings = NO_SETTINGS) -> None:
        self.said = ""
        self.replace(written, settings)

    def replace(self, written: GatewayConfig, settings: Settings) -> None:
        """Go by these from now on.

        Raises:
            UsageError: the settings cannot be in force with this file.
        """
        self.config = overlaid(written, settings)
        self.written = written
        self.settings = settings

    @property
    def described(self) -> tuple[DescribedSetting, ...]:
        """All settings, as a broker describes its own."""
        return _described(self.written, self.settings)


def overlaid(config: GatewayConfig, settings: Settings) -> GatewayConfig:
    """What is in force with these dynamic settings.

    Raises:
        UsageError: a number is none, or the callback's class is not one of those that may be chosen so.
    """
    if not settings:
        return config
    kafka = config.kafka
    windows = {of_type: _window(config, settings, of_type) for of_type in CONFIGURABLE_TYPES}
    class_name = settings.get(CALLBACK_CLASS)
    if class_name is not None and class_name not in allowed_classes(config):
        raise UsageError(_not_allowed(config, class_name))
    of_callback = {
        name: value
        for name, value in settings.items()
        if name not in WINDOW_DEFAULTS and name != CALLBACK_CLASS
    }
    callback = choose(
        class_name or kafka.callback.class_name, {**kafka.callback_properties, **of_callback}
    )
    rates = replace(config.gateway.connection_rates, window=windows[QuotaType.PRODUCE])
    return replace(
        config,
        gateway=replace(config.gateway, connection_rates=rates),
        kafka=replace(kafka, windows=windows, callback=callback),
    )


def _window(config: GatewayConfig, settings: Settings, quota_type: QuotaType) -> QuotaWindow:
    window = config.windows[quota_type]
    numbers = []
    names = FACTS[quota_type].window_properties
    for name, now in zip(names, (window.samples, window.sample_ms // 1000), strict=True):
        text = settings.get(name)
        problem = None if text is None else fault_of_number(name, text)
        if problem is not None:
            raise UsageError(problem)
        numbers.append(now if text is None else number_of(text) or now)
    return QuotaWindow(numbers[0], numbers[1] * 1000)


def allowed_classes(config: GatewayConfig) -> tuple[str, ...]:
    """Callbacks that may be chosen over the network: nothing else is ever imported because of it."""
    names = (*names_of_own(), config.kafka.callback.class_name, *config.quotas.callback_classes)
    return tuple(dict.fromkeys(names))


def refusal_of(config: GatewayConfig, stored: Settings, changes: SettingChanges) -> Refusal | None:
    """Why these changes cannot be made, as far as names tell; None: they may be tried."""
    after = with_changes(stored, changes)
    added = [name for name, value in changes.items() if value is not None]
    fixed = [name for name in added if _needs_restart(name)]
    if fixed:
        listed = ", ".join(sorted(fixed))
        words = f"Cannot update these configs dynamically: [{listed}]"
        return Refusal(ErrorCode.INVALID_REQUEST, words)
    class_name = after.get(CALLBACK_CLASS, config.kafka.callback.class_name)
    if class_name not in allowed_classes(config):
        return Refusal(ErrorCode.INVALID_CONFIG, _not_allowed(config, class_name))
    for name in added:
        if name not in WINDOW_DEFAULTS and name != CALLBACK_CLASS and not _takes(class_name, name):
            words = (
                f"{name} is no property of {class_name}, which would be the {CALLBACK_CLASS}. Name another "
                "class with it, or correct the name"
            )
            return Refusal(ErrorCode.INVALID_CONFIG, words)
    return None


def _not_allowed(config: GatewayConfig, class_name: str) -> str:
    return (
        f"Invalid value {class_name} for configuration {CALLBACK_CLASS}: it is none of "
        f"{', '.join(allowed_classes(config))}. A class of your own may be chosen from here once "
        f"quotas.callback_classes in {config.path} has its name"
    )


def _needs_restart(name: str) -> bool:
    return name in _OF_VOLUMES or name.startswith(ADMIN_PREFIXES)


def _takes(class_name: str, name: str) -> bool:
    """Whether a callback takes any notice of a property."""
    if class_name.endswith(".StaticQuotaCallback") and name in _STATIC:
        return True
    return name.startswith(prefixes_of(class_name))


def _described(written: GatewayConfig, settings: Settings) -> tuple[DescribedSetting, ...]:
    kafka = written.kafka
    numbers: dict[str, int] = {}
    for of_type in CONFIGURABLE_TYPES:
        window, names = kafka.windows[of_type], FACTS[of_type].window_properties
        numbers.update(zip(names, (window.samples, window.sample_ms // 1000), strict=True))
    in_file = {name: str(numbers[name]) for name in WINDOW_SETTINGS if name in kafka.places}
    if kafka.callback.class_name != ChosenCallback().class_name:
        in_file[CALLBACK_CLASS] = kafka.callback.class_name
    in_file |= {
        name: value for name, value in kafka.callback_properties.items() if is_gateways(name)
    }
    all_names = dict.fromkeys((*WINDOW_SETTINGS, CALLBACK_CLASS, *in_file, *settings))
    is_fixed = written.quotas.source is QuotaSourceKind.TOML  # people write these, too
    return tuple(
        _described_setting(name, settings, in_file, is_fixed=is_fixed) for name in all_names
    )


def _described_setting(
    name: str, settings: Settings, in_file: Mapping[str, str], *, is_fixed: bool
) -> DescribedSetting:
    defaults = {each: str(number) for each, number in WINDOW_DEFAULTS.items()}
    sources = (
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, settings),
        (Source.STATIC_BROKER_CONFIG, in_file),
        (Source.DEFAULT_CONFIG, defaults),
    )
    is_known = name in WINDOW_DEFAULTS or name == CALLBACK_CLASS or name in KNOWN_PROPERTIES
    kind = (
        Kind.INT
        if name in WINDOW_DEFAULTS
        else Kind.CLASS
        if name == CALLBACK_CLASS
        else Kind.STRING
    )
    return DescribedSetting(
        name=name,
        kind=kind,
        values=tuple((source, values[name]) for source, values in sources if name in values),
        is_sensitive=not is_known and not name.startswith(_SHOWN),
        is_read_only=is_fixed or _needs_restart(name),
    )
