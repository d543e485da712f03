"""The command lines of docs/topics-and-configs.md, as they are written there, one after the other."""

import re
import shlex
import time
from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka

PAGE = (Path(__file__).parents[2] / "docs" / "topics-and-configs.md").read_text()
# A broker follows its controller.
_KNOWN_S = 10.0


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
