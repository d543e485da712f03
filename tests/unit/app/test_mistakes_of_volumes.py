"""What people get wrong in the properties of full disks: ``--check`` names the line, the value and what to do."""

from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.app.gateway_process import gateway_toml

P = "client.quota.callback.static"
ADMIN = f"{P}.kafka.admin"
HARD = f"{P}.storage.per.volume.limit.min.available.bytes"
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
