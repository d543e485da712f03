"""The properties of every generation: what they mean, and each combination that is refused."""

from math import inf

import pytest

from kvota.volumes import PerVolumeLimit, SummedUsedLimit, Threshold
from kvota.volumes.iso_duration import parse_iso_duration_ms
from kvota.volumes.settings import VolumeSettings, read_volume_settings

P = "client.quota.callback.static"
BYTES = f"{P}.storage.per.volume.limit.min.available.bytes"
RATIO = f"{P}.storage.per.volume.limit.min.available.ratio"
B_BYTES = f"{P}.storage.perVolumeLimit.availableBytesBelow"
B_RATIO = f"{P}.storage.perVolumeLimit.availableRatioBelow"
SERVERS = f"{P}.kafka.admin.bootstrap.servers"
B_SERVERS = "client.quota.callback.kafka.admin.bootstrap.servers"
INTERVAL = f"{P}.storage.check-interval"
SOURCE = f"{P}.storage.volume.source"
FALLBACK = f"{P}.throttle.factor.fallback"
FACTOR = f"{P}.throttle.factor.source"
VALIDITY = f"{P}.throttle.factor.validity.duration"
EXCLUDED = f"{P}.excluded.principal.name.list"


def settings_of(properties: dict[str, str]) -> VolumeSettings:
    settings, faults = read_volume_settings(properties)
    assert faults == []
    return settings


def test_nothing_said_limits_nothing() -> None:
    settings = settings_of({})

    assert settings.limits == {"produce": inf, "fetch": inf, "request": inf}
    assert settings.source == "none"
    assert (settings.fallback, settings.validity_ms) == (1.0, 300_000)
    assert settings.warnings == ()


def test_a_configuration_of_the_released_cluster_mode() -> None:
    settings = settings_of({BYTES: "1000", SERVERS: "kafka:9092", f"{P}.produce": "1e6"})

    assert settings.source == "cluster"
    assert settings.limit == PerVolumeLimit(hard=Threshold(available_bytes=1000))
    assert settings.check_interval_ms == 60_000
    assert settings.limits["produce"] == 1e6
    assert settings.admin == {"bootstrap.servers": "kafka:9092"}


def test_a_configuration_of_the_first_generation() -> None:
    settings = settings_of(
        {f"{P}.storage.soft": "800", f"{P}.storage.hard": "900", INTERVAL: "5", "log.dirs": "/a, /b"}
    )  # fmt: skip

    assert settings.source == "local"
    assert settings.limit == SummedUsedLimit(soft_bytes=800, hard_bytes=900)
    assert settings.check_interval_ms == 5_000
    assert settings.log_dirs == ("/a", "/b")


def test_a_configuration_of_the_first_draft() -> None:
    settings = settings_of(
        {
            SOURCE: "cluster",
            f"{B_BYTES}.hard": "1",
            f"{B_RATIO}.soft": "0.05",
            B_SERVERS: "kafka:9092",
            f"{P}.fallback.throttle.factor": "0.5",
        }
    )

    assert settings.limit == PerVolumeLimit(
        hard=Threshold(available_bytes=1), soft=Threshold(available_ratio=0.05)
    )
    assert settings.fallback == 0.5


def test_both_names_of_a_level_may_say_the_same() -> None:
    settings = settings_of({BYTES: "5", f"{B_BYTES}.hard": "5", SERVERS: "k:1", B_SERVERS: "k:1"})

    assert settings.limit == PerVolumeLimit(hard=Threshold(available_bytes=5))


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({BYTES: "-1", SERVERS: "k:1"}, BYTES),
        ({BYTES: "x", SERVERS: "k:1"}, BYTES),
        ({BYTES: "1.5", SERVERS: "k:1"}, BYTES),
        ({RATIO: "-0.1", SERVERS: "k:1"}, RATIO),
        ({RATIO: "1.1", SERVERS: "k:1"}, RATIO),
        ({RATIO: "NaN", SERVERS: "k:1"}, RATIO),
        ({FALLBACK: "1.01"}, FALLBACK),
        ({FALLBACK: "NaN"}, FALLBACK),
        ({FALLBACK: ""}, FALLBACK),
        ({f"{P}.produce": "lots"}, f"{P}.produce"),
        ({f"{P}.fetch": "NaN"}, f"{P}.fetch"),
        ({INTERVAL: "1m"}, INTERVAL),
        ({INTERVAL: "3000000000"}, INTERVAL),
        ({VALIDITY: "5m"}, VALIDITY),
        ({VALIDITY: "P1M"}, VALIDITY),
        ({VALIDITY: "P1W"}, VALIDITY),
        ({BYTES: "1", RATIO: "0.1", SERVERS: "k:1"}, RATIO),
        ({f"{B_BYTES}.hard": "1", RATIO: "0.1", SERVERS: "k:1"}, RATIO),
        ({f"{B_BYTES}.soft": "1", f"{B_RATIO}.soft": "0.1", BYTES: "0", SERVERS: "k:1"}, f"{B_RATIO}.soft"),
        ({BYTES: "1", f"{B_BYTES}.hard": "2", SERVERS: "k:1"}, f"{B_BYTES}.hard"),
        ({RATIO: "0.1", f"{B_RATIO}.hard": "0.2", SERVERS: "k:1"}, f"{B_RATIO}.hard"),
        ({FALLBACK: "0.1", f"{P}.fallback.throttle.factor": "0.2"}, f"{P}.fallback.throttle.factor"),
        ({SERVERS: "k:1", B_SERVERS: "k:2", BYTES: "1"}, B_SERVERS),
        ({BYTES: "1"}, SERVERS),
        ({BYTES: "1", SERVERS: " "}, SERVERS),
        ({SOURCE: "cluster", SERVERS: "k:1"}, BYTES),
        ({SOURCE: "cluster", f"{B_BYTES}.soft": "1", SERVERS: "k:1"}, BYTES),
        ({SOURCE: "cluster", BYTES: "1"}, SERVERS),
        ({SOURCE: "cluster", BYTES: "1", SERVERS: "k:1", f"{P}.storage.hard": "1"}, f"{P}.storage.hard"),
        ({BYTES: "1", SERVERS: "k:1", f"{P}.storage.soft": "1"}, f"{P}.storage.soft"),
        ({SOURCE: "local", BYTES: "1"}, BYTES),
        ({SOURCE: "nowhere"}, SOURCE),
        ({SOURCE: "my."}, SOURCE),
        ({SOURCE: "my.Disks"}, BYTES),
        ({SOURCE: "my.Disks", BYTES: "1", f"{P}.storage.hard": "1"}, f"{P}.storage.hard"),
        ({FACTOR: "factor"}, FACTOR),
        ({FACTOR: ""}, FACTOR),
        ({FACTOR: "my.Factor", BYTES: "1"}, BYTES),
        ({FACTOR: "my.Factor", f"{P}.storage.soft": "1"}, f"{P}.storage.soft"),
        ({FACTOR: "my.Factor", SOURCE: "local"}, SOURCE),
        ({FACTOR: "my.Factor", SOURCE: "my.Disks"}, SOURCE),
        ({f"{B_BYTES}.hard": "5", f"{B_BYTES}.soft": "4", SERVERS: "k:1"}, f"{B_BYTES}.soft"),
        ({f"{B_RATIO}.hard": "0.5", f"{B_RATIO}.soft": "0.4", SERVERS: "k:1"}, f"{B_RATIO}.soft"),
        ({f"{P}.storage.hard": "5", INTERVAL: "1"}, "log.dirs"),
        ({f"{P}.storage.soft": "5"}, "log.dirs"),
        ({SOURCE: "local"}, "log.dirs"),
        ({f"{P}.storage.hard": "5", INTERVAL: "1", "log.dirs": " , "}, "log.dirs"),
        ({INTERVAL: "60", f"{P}.storage.check.interval": "PT1M"}, f"{P}.storage.check.interval"),
        ({f"{P}.storage.hard": "-1"}, f"{P}.storage.hard"),
        ({EXCLUDED: "User:"}, EXCLUDED),
        ({EXCLUDED: "User:User:a"}, EXCLUDED),
        ({EXCLUDED: "User:a;;User:b"}, EXCLUDED),
        ({EXCLUDED: "xUser:foo"}, EXCLUDED),
        ({EXCLUDED: "Group:User:a"}, EXCLUDED),
        ({EXCLUDED: "User:a;b"}, EXCLUDED),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_key(properties: dict[str, str], key: str) -> None:
    _, faults = read_volume_settings(properties)

    assert [fault.place for fault in faults] == [key]
    assert faults[0].problem
    assert faults[0].remedy.endswith((".", '".'))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("User:a; User:b", {"a", "b"}),
        ("User:a;", {"a"}),
        ("User:a ;User:b", {"a", "b"}),
        ("User:CN=x,O=y", {"CN=x,O=y"}),
        ("", set()),
    ],
)
def test_excluded_principals(text: str, names: set[str]) -> None:
    assert settings_of({EXCLUDED: text}).excluded == names


def test_excluded_names_of_the_old_way_are_taken_with_a_warning() -> None:
    settings = settings_of({EXCLUDED: "a, b"})

    assert settings.excluded == {"a", "b"}
    assert 'write "User:a"' in settings.warnings[0]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({INTERVAL: "60000"}, "were milliseconds meant?"),
        ({INTERVAL: "0", BYTES: "1", SERVERS: "k:1"}, "never looked at"),
        ({f"{P}.storage.hard": "5", "log.dirs": "/a"}, "never looked at"),
        ({FACTOR: "my.Factor", INTERVAL: "0"}, "my.Factor is never asked"),
        (
            {f"{P}.storage.soft": "9", f"{P}.storage.hard": "5", INTERVAL: "1", "log.dirs": "/a"},
            "it never throttles",
        ),
        (
            {BYTES: "1", SERVERS: "k:1", VALIDITY: "PT60S"},
            "the fallback comes into force between two looks",
        ),
    ],
)
def test_what_is_allowed_and_probably_not_meant_is_said(
    properties: dict[str, str], said: str
) -> None:
    assert said in settings_of(properties).warnings[0]


@pytest.mark.parametrize("seconds", ["0", "-1", "-2147483648"])
def test_an_interval_of_nothing_means_no_looks(seconds: str) -> None:
    settings = settings_of({BYTES: "1", INTERVAL: seconds})

    assert (settings.source, settings.check_interval_ms) == ("none", 0)


def test_the_admin_clients_properties_lose_their_prefix() -> None:
    settings = settings_of({f"{P}.kafka.admin.sasl.mechanism": "PLAIN", SERVERS: "k:1"})

    assert settings.admin == {"sasl.mechanism": "PLAIN", "bootstrap.servers": "k:1"}


def test_a_password_is_in_no_fault() -> None:
    _, faults = read_volume_settings(
        {
            f"{P}.kafka.admin.sasl.jaas.config": "secret-1",
            "client.quota.callback.kafka.admin.sasl.jaas.config": "secret-2",
        }
    )

    assert len(faults) == 1
    assert "secret" not in f"{faults[0]}"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT5M", 300_000),
        ("pt0.5s", 500),
        ("P2DT3H4M", 183_840_000),
        ("PT-6H+3M", -21_420_000),
        ("-PT-6H+3M", 21_420_000),
        ("PT-0.5S", -500),
        ("PT-1.5S", -1_500),
        ("PT0.0000001S", 0),
    ],
)
def test_durations_as_java_reads_them(text: str, ms: int) -> None:
    assert parse_iso_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "5m", "P1Y", "P1W", "PT1.5M", "PT1S2M", "P9999999999999999D"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="PT5M"):
        parse_iso_duration_ms(text)


def test_a_volume_source_of_ones_own_gets_its_own_properties() -> None:
    settings = settings_of({SOURCE: "my.Disks", f"{SOURCE}.file": "/f", BYTES: "1"})

    assert (settings.source, settings.own_class, settings.tells_factor) == (
        "own",
        "my.Disks",
        False,
    )
    assert settings.own_properties == {"file": "/f"}
    assert settings.limit == PerVolumeLimit(hard=Threshold(available_bytes=1))
    assert settings.check_interval_ms == 60_000


def test_a_factor_source_needs_no_limit() -> None:
    settings = settings_of({FACTOR: "my.Factor", f"{FACTOR}.url": "u", f"{SOURCE}.url": "v"})

    assert (settings.source, settings.own_class, settings.tells_factor) == (
        "own",
        "my.Factor",
        True,
    )
    assert (settings.own_properties, settings.limit) == ({"url": "u"}, None)
