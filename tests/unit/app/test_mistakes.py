"""What people type by mistake: each answer names the place and the value, and what to do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvota.app.cli.main import COMMANDS, main

UPSTREAM = '[upstream]\nbootstrap_servers = ["127.0.0.1:9092"]\n'
AT = "--bootstrap-server 127.0.0.1:9"
ENTRY = '[[quota]]\nuser = "orders"\n'


@pytest.fixture(autouse=True)
def _stands_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KVOTA_CALLED", raising=False)


def typed(words: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code, whether argparse or the command itself refuses."""
    arguments = words.split()
    monkeypatch.setattr("sys.argv", ["kvota", *arguments])
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gatway", 'there is no command "gatway". Did you mean "gateway"?'),
        ("frobnicate", 'there is no command "frobnicate". Known are demo, gateway'),
        ("gateway start", '"start" is not one of run, reload, import-quotas.'),
        ("gateway relod", '"relod" is not one of run, reload, import-quotas. Did you mean "reload"?'),
        ("gateway -check", 'there is no option "-check", did you mean "--check"'),
        ("gateway --chek", 'there is no option "--chek". Did you mean "--check"?'),
        ("gateway --debug", 'Did you mean "--log-level debug"?'),
        ("gateway --log-level warn", '"warn" is not one of debug, info, warning, error. Did you mean "warning"?'),
        ("gateway reload --check", "reload checks the files by itself"),
        ("gateway --connect", "--connect belongs to --check"),
        ("gateway -c nowhere.toml", "nowhere.toml: there is no such file. Create it, or correct the path. The least"),
        ("gateway -c .", ".: is a folder. Name the file in it."),
        ("usage record", '--table is required. Did you mean "--events record"?'),
        ("record show record", 'required: --events. Did you mean "--events record"?'),
        ("replay record --events .", "--factors is required. See"),  # --law takes no word
        ("usage --event record", 'there is no option "--event". Did you mean "--events"?'),
        ("usage --events . --json", 'Did you mean "--output json"?'),
        ("usage --events . --from 2026-11-21", 'Did you mean "--since"?'),
        ("usage --events . --limit 5", 'Did you mean "--top"?'),
        ("usage --events . --by users", '"users" is not one of user, client, user-client, tags. Did you mean "user"?'),
        ("usage --events . --since yesterday", '"yesterday" is not a time; write e.g. 2026-11-21'),
        (
            "usage --events . --since 2026-11-22T10:00 --until 2026-11-22T09:00",
            "--since 2026-11-22T10:00:00 is not before --until 2026-11-22T09:00:00",
        ),
        ("replay --events . --candidates 8mb/s", '"8mb/s" is not a byte rate; write e.g. "8MB/s"'),
        ("replay --events . --candidates 1MB/s, 2MB/s", '"1MB/s," has a quota missing; write them without blanks'),
        ("replay --events . --law --burst 1", '"1" is not a time; write e.g. "1s"'),
        ("recommend --events . --capacity 20MB/s", '"20MB/s" names no quota type; write e.g. PRODUCE=20MB/s'),
        ("recommend --events . --capacity PRODUCE=20mbps", '"20mbps" is not a byte rate; write e.g. "20MB/s", or "2.5MB/s" if bits'),
        (
            "recommend --events . --capacity PRODUCE=1MB/s --min-hours soon",
            '"soon" is not a time; write e.g. "30s" or "1h30m"',
        ),
        (
            "recommend --events . --capacity PRODUCE=1MB/s --plan-file nowhere/plan.toml",
            "nowhere/plan.toml cannot be written: No such file or directory. Name a file in a folder",
        ),
        (
            "recommend --events . --capacity PRODUCE=1MB/s --plan-file .",
            ". cannot be written: it is a folder",
        ),
        ("status -w", 'there is no option "-w".'),
        ("status analytics", '"analytics" is one word too many.'),
        ("status --every 5", 'argument --every: "5" is not a time; write e.g. "5s"'),
        ("status --top all", 'argument --top: "all" is not a number from 1 to 1000'),
        ("status --json", 'Did you mean "--output json"?'),
        ("status", "gateway.toml: there is no such file. Name the file that the gateway runs with (-c FILE), or where"),
        ("explain", "or where it answers, as its log says: --url http://127.0.0.1:9180"),
        ("explain analytics", '"analytics" is one word too many. Did you mean "--user analytics"?'),
        ("explain --client app", 'there is no option "--client". Did you mean "--client-id"?'),
        ("explain --url localhost:9180", '"localhost:9180" is no URL of a gateway. Write e.g. http://127.0.0.1:9180'),
        ("volumes --over 5", '"5" is not a time; write e.g. "5s"'),
        ("topics create", "required: --bootstrap-server"),
        ("topics crate orders", '"crate" is not one of create, alter, delete, describe, list. Did you mean "create"?'),
        (f"topics create {AT}", "name the topics to create, or a file with --from-file"),
        (f"topics delete a b a {AT}", 'topic "a" is named twice: the command line, the command line'),
        (f"topics create a --partitions 0 {AT}", '"0" is not a number from 1 on'),
        (f"topics create a --replication-factor all {AT}", '"all" is not a number from 1 on'),
        (f"topics create a --config retention.ms {AT}", '"retention.ms" is not NAME=VALUE, e.g. retention.ms=3600000'),
        (f"topics create a --config b=1 --config b=2 {AT}", '--config: "b" is there twice; which value holds?'),
        (f"topics create a --timeout 5 {AT}", '"5" is not a time; write e.g. "5s"'),
        (f"topics create a --json {AT}", 'Did you mean "--output json"?'),
        (f"topics alter a {AT}", "required: --partitions"),
        (f"topics delete a --partitions 3 {AT}", 'there is no option "--partitions".'),
        (f"topics create --from-file nowhere {AT}", "nowhere: cannot be read: No such file or directory"),
        (f"topics list --command-config nowhere {AT}", "nowhere: cannot be read: No such file or directory"),
        ("topics list --bootstrap-server kafka", '"kafka" is not '),
        ("kafka tool", "which tool? Known are "),
        ("kafka tool topic --list", 'there is no tool "topic". Did you mean "topics"?'),
        ("kafka strat", '"strat" is not one of up, down, status, tool'),
        ("kafka up --nodes three", 'argument --nodes: "three" is not a whole number.'),
        ("kafka up --nods 3", 'there is no option "--nods". Did you mean "--nodes"?'),
        ("kafka up --user alice", '"alice" is not NAME=SECRET, e.g. alice=alice-secret'),
        ("kafka up --racks a,b", "2 racks for 1 nodes: name one for each node"),
        ("kafka up --user a=1 --user a=2", '--user: "a" is there twice; which secret holds?'),
        ("demo --seconds 20s", '"20s" is not a number of seconds from 5 to 600'),
    ],
)  # fmt: skip
def test_wrong_words_are_answered_with_what_was_meant(
    words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(words, monkeypatch) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[quotas]\nproduce = true\n", 'quotas.produce: unknown key. Did you mean "PRODUCE"?'),
        ("[quotas.produce]\nenforce = true\n", 'Did you mean "PRODUCE"?'),
        ("[quotas.MUTATION]\n", 'quotas.MUTATION: unknown key. Did you mean "CONTROLLER_MUTATION"?'),
        (
            "[quotas]\nenforce = true\n",
            "quotas.enforce: unknown key. It belongs to a quota type: [quotas.PRODUCE] and below it enforce = true.",
        ),
        ("[gateway]\nport = 9192\n", 'Did you mean one of "bootstrap_port", "node_port_base"?'),
        ('[record]\nage_max = "30 days"\n', 'Write e.g. "30d".'),
        ('[record]\nage_max = "2 weeks"\n', 'Write e.g. "14d".'),
        ('[record]\nbytes_max = "10 gigabytes"\n', 'Write e.g. "10GB".'),
        ('[record]\nbytes_max = "500mb"\n', 'Write e.g. "500MB".'),
        ('[limits]\ndrain_time = "10"\n', 'Write e.g. "10s".'),
        ('[limits]\nrequest_bytes_max = "100 MB/s"\n', 'Write e.g. "100MB".'),
        ('[quotas]\nfile = "gone.toml"\n', "gone.toml: there is no such file. Create it (an empty one means no quotas)"),
        ("[http]\nport = 9192\n", "gateway.toml:4: http.port: 9192 is also a port at which the gateway serves Kafka's clients."),
        ('[record]\nfolder = ""\n', 'record.folder: "" is not the name of a file or folder.'),
        ('[record]\nfolder = "/proc/record"\n', "record.folder: /proc/record cannot be used: /proc cannot be written to: "),
        ('[quotas]\nfile = "."\n', ".: is a folder. Name the file in it."),
    ],
)  # fmt: skip
def test_a_slip_in_gateway_toml_is_answered_with_what_was_meant(
    config: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gateway.toml").write_text(UPSTREAM + config)
    Path("quotas.toml").touch()

    assert typed("gateway --check", monkeypatch) == 2

    assert said in capsys.readouterr().err


def test_servers_with_blanks_between_are_shown_as_a_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gateway.toml").write_text('[upstream]\nbootstrap_servers = "kafka-1:9092 kafka-2:9092"\n')
    Path("quotas.toml").touch()

    assert typed("gateway --check", monkeypatch) == 2

    assert 'Write e.g. ["kafka-1:9092", "kafka-2:9092"].' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("quotas", "said"),
    [
        ('user = "orders"\n', "user: unknown key. It belongs to an entry: write [[quota]] above it."),
        (f"{ENTRY}produce = 5\n", 'Did you mean one of "producer_byte_rate", "producer_ids_rate"?'),
        (f'{ENTRY}producer_byte_rate = "8 mb/s"\n', '"8 mb/s" is not a byte rate. Write "8MB/s".'),
        (f'{ENTRY}producer_byte_rate = "8MB"\n', 'Write "8MB/s".'),
        (f'{ENTRY}producer_byte_rate = "8Mb/s"\n', 'Write "8MB/s", or "1MB/s" if bits are meant.'),
        (f'{ENTRY}controller_mutation_rate = "30 per minute"\n', 'Write "0.5/s".'),
    ],
)  # fmt: skip
def test_a_slip_in_quotas_toml_is_answered_with_what_was_meant(
    quotas: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gateway.toml").write_text(UPSTREAM)
    Path("quotas.toml").write_text(quotas)

    assert typed("gateway --check", monkeypatch) == 2

    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "say what to do: either --alter or --describe"),
        ("--describe --alter --user a", "say what to do: either --alter or --describe"),
        ("--describe --usr a", 'there is no option "--usr". Did you mean "--user"?'),
        ("--describe --entity-type user", '--entity-type: "user" is not one of topics, clients, users, brokers, ips'),
        ("--describe", "name an entity type: --entity-type, or --user, --client"),
        ("--describe --user a --user b", "--user is there twice; which holds?"),
        ("--describe --user a --ip 192.0.2.1", "only users and clients stand together"),
        ("--describe --user a --entity-default", "--entity-default do not go with --user, --client, …"),
        ("--describe --broker one", 'a broker is named by its id, a whole number, not by "one"'),
        ("--describe --topic a/b", '"a/b" cannot be a topic'),
        ("--describe --user a --add-config b=1", "--add-config and --delete-config belong to --alter"),
        ("--alter --user a", "say what is altered: --add-config, --add-config-file or --delete-config"),
        ("--alter --entity-type users --add-config a=1", "name whose settings are altered: --entity-name or --entity-default"),
        ("--alter --user a --add-config b=1,c", "--add-config: part 2 is not name=value; a value with commas"),
        ("--alter --user a --add-config b!=1", '--add-config: "b!" is not the name of a setting'),
        ("--alter --user a --add-config-file nowhere", "nowhere: cannot be read: No such file or directory"),
        ("--alter --user a --add-config b=1 --bootstrap-server a:1", "--bootstrap-server is there twice"),
        ("--describe --user a --command-config nowhere", "nowhere: cannot be read: No such file or directory"),
        ("--describe --user a", "127.0.0.1:9 cannot be reached: connection refused"),
    ],
)  # fmt: skip
def test_a_slip_in_kvota_configs_ends_with_1_as_with_kafkas_tool(
    words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(f"configs {words} {AT}", monkeypatch) == 1

    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# none\n\n", "names: names no topic; write one a line"),
        (b"a\n\nb\na\n", 'topic "a" is named twice: names:1, names:4'),
        (b"c\n", 'topic "c" is named twice: the command line, names:1'),
        (b"\xff\n", "names: cannot be read: "),
    ],
)
def test_a_slip_in_a_file_of_topics_is_answered_with_its_place(
    content: bytes,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("names").write_bytes(content)

    assert typed(f"topics create c --from-file names {AT}", monkeypatch) == 2

    assert said in capsys.readouterr().err


# ------------------------------------------------------------------ what else may go wrong


@pytest.mark.parametrize(
    "words", ["--help gateway", "help gateway", "gateway --help", "gateway -h"]
)
def test_help_of_a_command_is_found_where_people_ask_for_it(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(words, monkeypatch) == 0
    assert capsys.readouterr().out.startswith("example:\n  kvota gateway -c gateway.toml")


@pytest.mark.parametrize("words", ["--version", "-V", "version"])
def test_the_version_is_said(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(words, monkeypatch) == 0
    assert re.fullmatch(r"kvota \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path / "file" / "cache"))

    assert typed("kafka up --detach", monkeypatch) == 3

    said = capsys.readouterr().err
    assert f"kvota: {tmp_path}/file/cache/kafka: Not a directory." in said
    assert "another one can be named: KVOTA_CACHE=/path kvota" in said
    assert "Traceback" not in said


def test_a_fault_of_kvotas_own_is_no_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvota.app.cli.volumes.run", lambda _args: 1 // 0)

    assert typed("volumes", monkeypatch) == 70

    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert said.endswith("that is a fault of kvota itself; please report it with the lines above\n")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_nothing_is_left_where_the_user_stands(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", command, "--nothing-of-this-name"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    as_kafkas_tool = command == "configs"
    assert done.returncode == (1 if as_kafkas_tool else 2), done.stderr
    assert list(tmp_path.iterdir()) == []
