"""A file of quotas in shadow mode at a gateway: nobody is held back, it is told who would be, and then it is applied."""

import io
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_controller_mutation_quota import NONE, REFUSED, Place

from kvota.app.cli.main import main
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

WANTED = """
quotas:
  - client_id: tried-ci
    controller_mutation_rate: 1/s
  - client_id: tried-other
    controller_mutation_rate: 100/s
  - user: tried-batch
    producer_ids_rate: 100
"""
FAULT, SAID_S = r"next\.yaml:6:\d+: quotas\[1\]\.controller_mutation_rate", 60.0
OTHERS = WANTED.replace("1/s", "2/s")


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path: Path) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"CONTROLLER_MUTATION": True},
        source="file",
        http_port=0,
    )
    with GatewayProcess(tmp_path, config=config, quotas="") as process:
        yield process


@pytest.fixture
def place(gateway: GatewayProcess) -> Place:
    return Place("tried", ("127.0.0.1", gateway.first_port + 2))


def kvota(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["quotas", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def file(gateway: GatewayProcess) -> Path:
    """The gateway tries it."""
    path = gateway.folder / "next.yaml"
    path.write_text(WANTED)
    config = (gateway.folder / "gateway.toml").read_text()
    gateway.reload("", config.replace("[quotas]\n", '[quotas]\nshadow = "next.yaml"\n', 1))
    assert "quotas.shadow: none -> next.yaml" in gateway.log
    return path


def test_who_would_be_held_back_is_told_and_nobody_is(
    gateway: GatewayProcess, place: Place, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ("--url", gateway.http_url)
    # 11 windows: 11 partitions at once under the quotas that are only tried, then half a minute of waiting.
    first, second = place.topics("ci")
    assert place.create("ci", {first: 41}) == (0, {first: NONE})
    assert place.create("ci", {second: 2}) == (0, {second: NONE})
    assert place.create("other", {"tried-other-0": 1}) == (0, {"tried-other-0": NONE})

    code, out, _ = kvota(capsys, "shadow", *url)
    assert code == 1
    summary, line = out.splitlines()
    assert summary.startswith("next.yaml in shadow mode since ")
    assert "of 2 with a limit 1 would be held back; 3 decisions" in summary
    assert line.startswith("client tried-ci CONTROLLER_MUTATION: 1.00 /s (in force: none)")
    assert "1 of 2 would wait (50 %)" in line
    told = json.loads(kvota(capsys, "shadow", *url, "--output", "json")[1])
    assert [(one["client_id"], one["would_be_held"]) for one in told["worst"]] == [
        ("tried-ci", 1),
        ("tried-other", 0),
    ]

    # A fault in it is said with its place, and the one before goes on.
    file.write_text(WANTED.replace("100/s", "-1/s"))
    gateway.reload("", (gateway.folder / "gateway.toml").read_text())
    end = time.monotonic() + SAID_S
    # Warnings come behind the line that tells of the reload.
    while not re.search(FAULT, gateway.log):
        assert time.monotonic() < end, gateway.log[-3_000:]
        time.sleep(0.02)
    assert json.loads(kvota(capsys, "shadow", *url, "--output", "json")[1])["counters"] == 2
    config = (gateway.folder / "gateway.toml").read_text()
    gateway.reload("", config.replace('shadow = "next.yaml"\n', ""))
    assert kvota(capsys, "shadow", *url)[0] == 2


def test_only_what_was_tried_for_so_long_is_applied(
    gateway: GatewayProcess,
    place: Place,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    others = gateway.folder / "others.yaml"
    others.write_text(OTHERS)
    options = ("--bootstrap-server", gateway.bootstrap_servers, "--yes", "--url", gateway.http_url)

    def apply(path: Path, *more: str) -> tuple[int, str]:
        code, _, said = kvota(capsys, "apply", str(path), *options, "--shadowed", *more)
        return code, said

    for path, more, code_wanted, words in (
        (file, ("1h",), 1, "and --shadowed wants 1 h 00 min"),
        (others, ("1ms",), 1, "wants other quotas than"),
        (file, ("1ms", "--prune"), 2, "what --prune would remove was not tried"),
    ):
        code, said = apply(path, *more)
        assert (code, words in said) == (code_wanted, True), said
    big, next_one, last = (f"tried-applied-{number}" for number in range(3))
    # Half a minute of waiting, in which the next one has to come.
    assert place.create("ci", {big: 41}) == (0, {big: NONE})
    assert place.create("ci", {next_one: 1}) == (0, {next_one: NONE})

    code, said = apply(file, "1ms")
    assert code == 0
    assert "client tried-ci CONTROLLER_MUTATION: 1.00 /s (in force: none)" in said
    assert "not tried in shadow mode: producer_ids_rate; " in said
    assert place.create("ci", {last: 30}) == (0, {last: NONE})
    assert place.create("ci", {"tried-applied-3": 1})[1] == {"tried-applied-3": REFUSED}


def test_a_gateway_that_tries_nothing_says_how_to(
    gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = kvota(capsys, "shadow", "--url", gateway.http_url)
    assert code == 2
    assert 'shadow = "FILE"' in said
    wanted = gateway.folder / "next.yaml"
    wanted.write_text(WANTED)
    apply = ("apply", str(wanted), "--bootstrap-server", gateway.bootstrap_servers, "--yes")
    code, _, said = kvota(capsys, *apply, "--shadowed", "1ms", "--url", gateway.http_url)
    assert code == 1
    assert "has not tried" in said
