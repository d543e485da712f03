"""The callback of docs/quota-callbacks.md, as it is written there."""

import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.app.check_callback import check_files
from kvota.app.cli.main import main
from kvota.callbacks import load_callback
from kvota.engine import QuotaEngine
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

PAGE = Path(__file__).parents[3] / "docs" / "quota-callbacks.md"
NAME = "team_quotas.TeamQuotaCallback"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    (code,) = CODE
    made = types.ModuleType("team_quotas")
    exec(compile(code, str(PAGE), "exec"), made.__dict__)
    sys.modules["team_quotas"] = made
    yield
    del sys.modules["team_quotas"]


def test_a_team_shares_one_counter_until_it_has_a_quota_of_its_own() -> None:
    callback = load_callback(NAME, {}, ConfiguredQuotas())
    engine = QuotaEngine(callback, {})
    users = ("orders.web", "orders.etl")
    for question in [engine.question(QuotaType.PRODUCE, 1, user, "c") for user in users]:
        engine.learn(question, question.ask(callback))

    (lane,) = {engine.lane(QuotaType.PRODUCE, 1, user, "c", 0) for user in users}

    assert lane is not None
    assert (lane.tags, lane.limit) == ("team=orders", 1_000_000.0)
    engine.apply([QuotaChange(QuotaEntity(user="orders"), QuotaType.PRODUCE, 5.0)])
    for question in engine.due_questions():
        engine.learn(question, question.ask(callback))
    assert lane.limit == 5.0


@pytest.mark.parametrize(
    ("callback", "code", "said"),
    [
        (NAME, 0, "no fault found"),
        ("team_quotas.SomebodyElse", 2, "team_quotas has no SomebodyElse"),
    ],
)
def test_check_loads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], callback: str, code: int, said: str
) -> None:
    (tmp_path / "quotas.toml").write_text("")
    (tmp_path / "gateway.toml").write_text(
        '[upstream]\nbootstrap_servers = ["kafka:9092"]\n'
        f'[kafka]\n"client.quota.callback.class" = "{callback}"\n'
        '"client.quota.callback.team.default" = 5e6\n'
    )

    assert main(["gateway", "-c", f"{tmp_path}/gateway.toml", "--check"]) == code

    told = capsys.readouterr()
    assert said in told.out + told.err


@pytest.mark.timeout(200)
def test_a_strict_type_checker_has_nothing_to_say(tmp_path: Path) -> None:
    (code,) = CODE
    (tmp_path / "team_quotas.py").write_text(code)
    wrong = code.replace("-> float | None:", "-> str:")
    (tmp_path / "wrong_quotas.py").write_text(wrong)

    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
            *("--cache-dir", str(tmp_path / "cache"), "team_quotas.py", "wrong_quotas.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PAGE.parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert wrong != code
    found = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert all(line.startswith("wrong_quotas.py:") for line in found), checked.stdout
    # It has understood the interface: another type of an answer is one.
    assert any("[override]" in line for line in found), checked.stdout + checked.stderr


KAFKA_TABLES = [
    block
    for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if block.startswith("[kafka]")
]


@pytest.mark.parametrize("table", KAFKA_TABLES, ids=range(len(KAFKA_TABLES)))
def test_each_table_of_the_page_is_taken_as_it_stands_there(tmp_path: Path, table: str) -> None:
    (tmp_path / "quotas.toml").write_text("")
    upstream = '[upstream]\nbootstrap_servers = ["kafka:9092"]\n'
    if table.count("\n") < 3:  # the first one has no groups yet
        table += '"client.quota.callback.group.a.users" = "x"\n'
    (tmp_path / "gateway.toml").write_text(upstream + table)

    config, _, _ = check_files(tmp_path / "gateway.toml")

    assert config.kafka.places
