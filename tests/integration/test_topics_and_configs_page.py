"""The command lines of docs/topics-and-configs.md, as they are written there, one after the other."""

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka

PAGE = (Path(__file__).parents[2] / "docs" / "topics-and-configs.md").read_text()
# A broker follows its controller.
_KNOWN_S = 60.0


def lines_of(command: str) -> list[str]:
    """Those that stand for themselves, not in a sentence."""
    return re.findall(rf"^ {{4}}kvota ({command} .*)$", PAGE, re.MULTILINE)


def run(line: str, kafka: LocalKafka) -> int:
    assert "127.0.0.1:9092" in line
    return main(shlex.split(line.replace("127.0.0.1:9092", kafka.bootstrap_servers)))


def test_the_lines_on_topics_do_what_the_page_says(
    kafka: LocalKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topics.txt").write_text("payments\nrefunds\n")
    lines = lines_of("topics")
    assert len(lines) == 7
    for line in lines:
        end = time.monotonic() + _KNOWN_S
        while code := run(line, kafka):
            assert "describe" in line, line
            assert time.monotonic() < end, (line, code)
    said = capsys.readouterr().out
    assert "`orders: created; partitions 3, replication factor 1`" in PAGE
    assert "orders: created; partitions 3, replication factor 1\n" in said
    assert "payments: created; " in said
    assert "invoices: altered; partitions 6\n" in said
    assert said.endswith("orders: deleted\ninvoices: deleted\n")
    assert run("topics delete payments refunds --bootstrap-server 127.0.0.1:9092", kafka) == 0


def test_the_lines_on_configs_do_what_the_page_says(
    kafka: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of("configs")
    assert len(lines) == 11
    for line in lines:
        end = time.monotonic() + _KNOWN_S
        # A quota is deleted once the broker has followed its controller.
        while code := run(line, kafka):
            assert "--delete-config" in line, line
            assert time.monotonic() < end, (line, code)
    said = capsys.readouterr().out
    assert said.startswith("Completed updating config for user orders.\n")
    assert "All configs for broker 1 are:\n" in said
    assert json.loads(said[said.index("\n{\n") :])["schema"] == 1
    # It is the cluster of other tests, too.
    for words in (
        "--user orders --delete-config SCRAM-SHA-512",
        "--user-defaults --client web --delete-config request_percentage",
        "--ip-defaults --delete-config connection_creation_rate",
    ):
        line = f"configs --bootstrap-server 127.0.0.1:9092 --alter {words}"
        end = time.monotonic() + _KNOWN_S
        while code := run(line, kafka):
            assert time.monotonic() < end, (words, code)
