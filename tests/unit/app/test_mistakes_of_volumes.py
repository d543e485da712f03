"""What people get wrong in the properties of full disks: ``--check`` names the line, the value and what to do."""

from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.app.gateway_process import gateway_toml

P = "client.quota.callback.static"
ADMIN = f"{P}.kafka.admin"
HARD = f"{P}.storage.per.volume.limit.min.available.bytes"
SOFT = f"{P}.storage.perVolumeLimit.availableBytesBelow.soft"
SOFT_RATIO = f"{P}.storage.perVolumeLimit.availableRatioBelow.soft"
HARD_RATIO = f"{P}.storage.per.volume.limit.min.available.ratio"
SOFT_USED, HARD_USED = f"{P}.storage.soft", f"{P}.storage.hard"
SOURCE = f"{P}.storage.volume.source"
SCOPE = f"{P}.throttle.factor.scope"
VALIDITY = f"{P}.throttle.factor.validity.duration"
FALLBACK = f"{P}.throttle.factor.fallback"
INTERVAL = f"{P}.storage.check-interval"
STATIC = {"client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback"}
LOCAL = {HARD_USED: 5, INTERVAL: 10, "log.dirs": "/"}
WATCHED = {f"{ADMIN}.bootstrap.servers": "k:1", f"{P}.storage.check-interval": 10}
LOGIN = {
    f"{ADMIN}.security.protocol": "SASL_PLAINTEXT",
    f"{ADMIN}.sasl.mechanism": "PLAIN",
    f"{ADMIN}.sasl.jaas.config": "x required username='a' password='secret-of-a';",
}


def checked(folder: Path, properties: dict[str, int | float | str]) -> int:
    text = gateway_toml(upstream="127.0.0.1:1", enforce={"PRODUCE": True}, kafka=properties)
    (folder / "gateway.toml").write_text(text)
    (folder / "quotas.toml").write_text("")
    return main(["gateway", "--check", "-c", str(folder / "gateway.toml")])


@pytest.mark.parametrize(
    ("properties", "name", "said"),
    [
        ({f"{ADMIN}.bootstrap.servers": "kafka-1"}, f"{ADMIN}.bootstrap.servers", '"kafka-1" is not host:port, e.g.'),
        (LOGIN | {f"{ADMIN}.sasl.mechanism": "SCRAM-SHA-1"}, f"{ADMIN}.sasl.mechanism", '"SCRAM-SHA-1" cannot be spoken; PLAIN, SCRAM'),
        (LOGIN | {f"{ADMIN}.sasl.jaas.config": "x required username='secret-of-a';"}, f"{ADMIN}.sasl.jaas.config", "no user name and password can be read from it. Write e.g."),
        (LOGIN | {f"{ADMIN}.security.protocol": "PLAINTEXT"}, f"{ADMIN}.sasl.mechanism", "has no effect with security.protocol=PLAINTEXT. Write security.protocol = SASL_PLAINTEXT"),
        (LOGIN | {f"{ADMIN}.security.protocol": "SASL"}, f"{ADMIN}.security.protocol", '"SASL" cannot be spoken; PLAINTEXT, SASL_PLAINTEXT'),
        ({f"{ADMIN}.sasl.mechanisms": "PLAIN"}, f"{ADMIN}.sasl.mechanisms", "is not a property that is known here; known are bootstrap.servers"),
        ({f"{ADMIN}.request.timeout.ms": "30s"}, f"{ADMIN}.request.timeout.ms", '"30s" is not a number of milliseconds above 0'),
        ({f"{P}.excluded.principal.name.list": "user:a"}, f"{P}.excluded.principal.name.list", '"user:a": the type of a principal is written "User:". Write e.g.'),
        ({INTERVAL: 0, f"{P}.storage.check.interval": "PT1S"}, f"{P}.storage.check.interval", f"set together with {INTERVAL}. Keep one"),
        ({HARD: "5GB"}, HARD, '"5GB" is not a number of type LONG. Write a whole number of bytes'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_it_is_refused_with_its_line(
    properties: dict[str, int | float | str],
    name: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert checked(tmp_path, {**WATCHED, HARD: 1, **properties}) == 2

    told = capsys.readouterr().err
    lines = (tmp_path / "gateway.toml").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith(f'"{name}"'))
    assert f'gateway.toml:{number}: kafka."{name}": {said}' in told
    assert "secret-of-a" not in told


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (WATCHED, f"{P}.storage.check-interval is set, and no limit of volumes is: they are not looked at"),
        ({**WATCHED, HARD: 1, f"{P}.storage.check-interval": -5}, f"{P}.storage.check-interval is -5: the volumes' limits are never looked at"),
        ({**WATCHED, HARD: 1, f"{P}.storage.check-interval": 10_000}, "10000 are seconds, 2.78 h; were milliseconds meant?"),
        ({VALIDITY: "PT1M"}, f"kafka.{VALIDITY} is set, and no limit of volumes is: it does nothing; write e.g. {HARD_RATIO} = 0.1"),
        ({FALLBACK: 0.5}, f"kafka.{FALLBACK} is set, and no limit of volumes is"),
        ({f"{P}.fallback.throttle.factor": 0.5}, f"kafka.{P}.fallback.throttle.factor is set, and no limit of volumes is"),
        ({SOURCE: "local", "log.dirs": "/"}, f"kafka.{SOURCE} is set, and no limit of volumes is: it does nothing; write e.g. {HARD_USED} = "),
        ({**LOCAL, SCOPE: "broker"}, f"kafka.{SOURCE} is local: its disks are no broker's"),
        ({**WATCHED, HARD: 1, "log.dirs": "/"}, f"kafka.log.dirs is read where {SOURCE} = local only"),
        ({SOFT_USED: 5, INTERVAL: 10, "log.dirs": "/"}, f"kafka.{SOFT_USED} is set without {HARD_USED}"),
        ({**WATCHED, HARD_RATIO: 1.0}, f"kafka.{HARD_RATIO} = 1: each volume is at this limit even while it is empty"),
        ({**WATCHED, HARD: 5, SOFT: 5}, f"kafka.{SOFT} is the hard limit: there is no line between the two"),
        ({**WATCHED, HARD_RATIO: 0.5, SOFT_RATIO: 0.5}, f"kafka.{SOFT_RATIO} is the hard limit"),
        ({**LOCAL, "log.dirs": "/,/no/such/place"}, "kafka.log.dirs: /no/such/place is not there: it is not looked at"),
        ({**STATIC, f"{P}.produce": -1}, f"kafka.{P}.produce is a limit of 1 per second, not none at all"),
        ({**STATIC, f"{P}.fetch": 0}, f"kafka.{P}.fetch is a limit of 0 per second, not none at all"),
    ],
)  # fmt: skip
def test_it_is_doubted(
    properties: dict[str, int | float | str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert checked(tmp_path, properties) == 0

    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({SCOPE: "broker"}, f'kafka."{SCOPE}": set, and no limit of a volume is: there is no factor. Write a limit, e.g. "{HARD_RATIO}" = 0.1, or take it out.'),
        ({SCOPE: "cluster", INTERVAL: 10}, f'kafka."{SCOPE}": set, and no limit of a volume is'),
        ({HARD_USED: 5}, 'kafka."log.dirs": missing, and the volumes of this machine are to be looked at. Write the directories'),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused(
    properties: dict[str, int | float | str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert checked(tmp_path, properties) == 2

    assert said in capsys.readouterr().err


@pytest.mark.parametrize("properties", [LOCAL, {**WATCHED, HARD: 1, SOFT: 5, SCOPE: "broker"}])
def test_what_is_whole_is_not_doubted(
    properties: dict[str, int | float | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, properties) == 0

    # Of the quotas that are not there it says something else.
    assert "kafka." not in capsys.readouterr().out
