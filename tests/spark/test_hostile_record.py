"""Names and values that nobody expects: each comes back as it is in JSON, does no harm on a screen, and obeys the law."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from math import inf
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvota.app.cli.main import main
from kvota.app.text_width import columns_of
from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.event import EVENT_COLUMNS, Outcome
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tags_text
from kvota.record.compact import compact
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import START_US, EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.usefixtures("spark")]

WriteEvents = Callable[..., Path]

NAMES = [
    "x" * 65_536,
    "x" * 65_535 + "y",
    "nul\0name",
    "nul",
    "\N{GRINNING FACE}",
    "new\nline",
    "\x1b[2Jclears the screen",
    "\N{RIGHT-TO-LEFT OVERRIDE}drow",
    "a,user=b",
    "%00",
    "",
]
VALUES = [0.0, -1.0, 2.0**63, 5e-324, 1e308]
RELAXED = ("--capacity", "PRODUCE=1MB/s", "--min-hours", "0", "--min-events", "1")
SHOWN_MAX = 400


def decided() -> Iterator[EventRow]:
    """Decisions of an engine about such clients, and about such amounts."""
    quotas = ConfiguredQuotas(
        {QuotaEntity(user=DEFAULT, client_id=DEFAULT): {QuotaType.PRODUCE: 20_000.0}}
    )
    engine = QuotaEngine(DefaultQuotaCallback(quotas), {})
    requests = [(name, 40_000.0) for name in NAMES for _ in range(20)]
    requests += [(f"asks for {value}", value) for value in VALUES for _ in range(20)]
    columns = [column.name for column in EVENT_COLUMNS]
    for seq, (name, value) in enumerate(requests):
        ts_us = START_US + seq * 50_000
        alias = str(hash(name))  # an engine's own callback refuses tags as long as that
        lane = engine.lane(QuotaType.PRODUCE, 0, alias, alias, ts_us // 1000)
        assert lane is not None
        throttle_ms = lane.admit(value, ts_us // 1000)
        row = dict.fromkeys(columns) | {
            "ts_us": ts_us,
            "seq": seq,
            "gateway": "g",
            "run_id": "r\x1b[2J",
            "node_id": 0,
            "quota_type": "PRODUCE",
            "connection": 1,
            "user": name,
            "client_id": name,
            "tags": tags_text({USER_TAG: name, CLIENT_ID_TAG: name}),
            "api_key": 0,
            "api_version": 9,
            "value": value,
            "limit": lane.limit,
            "samples": lane.samples,
            "sample_ms": lane.sample_ms,
            "algorithm": lane.algorithm.value,
            "outcome": (Outcome.THROTTLED if throttle_ms > 0 else Outcome.ADMITTED).value,
            "enforced": False,
            "throttle_ms": throttle_ms,
            "upstream_throttle_ms": 0,
        }
        yield tuple(row[column] for column in columns)


@pytest.fixture(scope="module")
def folder(write_for_all: WriteEvents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_for_all(tmp_path_factory.mktemp("hostile"), list(decided()), files=2)


def answer(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> dict[str, list[dict[str, str]]]:
    assert main([*arguments, "--output", "json"]) == code
    found: dict[str, list[dict[str, str]]] = json.loads(capsys.readouterr().out)
    return found


def test_the_law_holds_for_names_and_amounts_that_nobody_expects(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "replay", "--law", "--events", str(folder))

    assert (found["holds"], found["rows"], found["unjudged_rows"]) == (True, 320, 0)
    assert found["throttled_rows"] > 20


def test_names_come_back_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = {*NAMES, *(f"asks for {value}" for value in VALUES)}
    events, top = ("--events", str(folder)), ("--top", "100")

    used = answer(capsys, "usage", *events, "--by", "user-client", *top)["rows"]
    tried = answer(capsys, "replay", *events, "--candidates", "9KB/s", *top)["rows"]
    plan = ("recommend", *events, "--by", "client", *RELAXED)
    lines = answer(capsys, *plan, code=1)["lines"]

    assert {row["user"] or "" for row in used} == {row["client_id"] or "" for row in used} == every
    assert {row["user"] or "" for row in tried} == every
    assert {line["client_id"] for line in lines} == every - {""}


@pytest.mark.parametrize(
    "words",
    [
        ("usage", "--by", "user-client", "--top", "100"),
        ("replay", "--rows", "--top", "100"),
        ("replay", "--candidates", "9KB/s", "--top", "100"),
        ("recommend", *RELAXED),
        ("record", "show"),
    ],
)
def test_on_a_screen_they_are_short_and_move_no_cursor(
    words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--events", str(folder)])

    said = capsys.readouterr()
    lines = "".join(said).split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert max(map(len, lines)) < SHOWN_MAX
    if words[0] == "usage":  # two names differ in their last letter alone
        assert len({line.split()[0] for line in lines if line.startswith("x")}) == 2
    if words[0] in {"usage", "replay"}:
        assert max(map(columns_of, said.out.split("\n"))) <= 80


@pytest.mark.parametrize("value", [float("nan"), inf])
def test_an_amount_that_is_no_number_is_named_and_stops_nothing(
    value: float, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in folder.glob("*.parquet"):
        table = pq.read_table(file)
        values = pa.array([value, *table["value"].to_pylist()[1:]])
        place = table.schema.get_field_index("value")
        pq.write_table(
            table.set_column(place, EVENT_SCHEMA.field("value"), values), tmp_path / file.name
        )

    for words in (["usage"], ["replay", "--candidates", "9KB/s"]):
        assert main([*words, "--events", str(tmp_path)]) == 0
    # No plan keeps those who ask for 2^63 bytes within a capacity.
    assert main(["recommend", *RELAXED, "--events", str(tmp_path)]) == 1
    assert "together would be let in more PRODUCE" in capsys.readouterr().err
    assert main(["record", "check", "--events", str(tmp_path)]) == 1
    assert f"the value of seq 0 is {value}, which no gateway records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("samples", [-(2**15), -100]),
        ("samples", [2**15 - 1]),
        ("sample_ms", [-(2**31), 2**31 - 1, 0]),
        ("seq", [-(2**63), 2**63 - 1]),
        ("node_id", [-(2**31), 2**31 - 1]),
        ("limit", [float("nan"), -1.0, inf]),
        ("throttle_ms", [-(2**31), 2**31 - 1]),
    ],
)
def test_numbers_that_no_gateway_records_end_no_command(
    name: str,
    values: list[float],
    write_for_all: WriteEvents,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, odd = EVENT_SCHEMA.get_field_index(name), iter(values)
    often = cycle(values)
    rows = list(decided())
    for number in range(3, len(rows), 7):
        # No two rows of a run have the same seq.
        value = next(odd, rows[number][place]) if name == "seq" else next(often)
        rows[number] = (*rows[number][:place], value, *rows[number][place + 1 :])
    raw = write_for_all(tmp_path / "raw", rows, files=2)
    merged = write_for_all(tmp_path / "merged", rows, files=2)
    compact(merged, now_us=0, every_hour=True)
    said: dict[str, list[tuple[int, str]]] = {"raw": [], "merged": []}
    for folder in (raw, merged):
        for words in (
            ("usage",),
            ("replay", "--law"),
            ("replay", "--candidates", "9KB/s", "--mode", "think"),
            ("replay", "--candidates", "9KB/s", "--mode", "backlog", "--algorithm", "token_bucket"),
        ):
            code = main([*words, "--output", "json", "--events", str(folder)])
            answer = capsys.readouterr()
            assert code in {0, 1}, answer.err
            said[folder.name].append((code, answer.out))

    assert said["raw"] == said["merged"]
    if values[0] < 0 and name in {"samples", "sample_ms"}:
        assert main(["record", "check", "--events", str(raw)]) == 1
        reason = f"the {name} of seq 3 is {values[0]}, which no gateway records"
        assert reason in capsys.readouterr().out


def test_a_file_with_texts_that_are_none_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    bent = min(tmp_path.glob("*.parquet"))
    table = pq.read_table(bent)
    user = pa.array([b"\xff\xfe", *[b"alice"] * (len(table) - 1)], pa.binary())
    place = table.schema.get_field_index("user")
    pq.write_table(table.set_column(place, "user", user.view(pa.string())), bent)

    for words in (
        ["usage"],
        ["replay", "--law"],
        ["replay", "--candidates", "9KB/s", "--by", "user"],
        ["recommend", *RELAXED],
    ):
        code = main([*words, "--events", str(tmp_path)])
        said = capsys.readouterr()
        assert (code, "Traceback" in said.err) == (3 if words != ["replay", "--law"] else 0, False)
        if code == 3:
            assert f"{bent}: its rows cannot be read (column user has a text that is no" in said.err
    assert main(["record", "check", "--events", str(tmp_path)]) == 1
    assert f"{bent}: its rows cannot be read (column user has a text" in capsys.readouterr().out
    assert main(["record", "compact", "--events", str(tmp_path), "--every-hour"]) == 0
    assert f"{bent}: its rows cannot be read (column user has a text" in capsys.readouterr().err


def test_times_that_no_calendar_has_end_no_command_and_are_named(
    write_for_all: WriteEvents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [column.name for column in EVENT_COLUMNS]
    rows = list(decided())[:40]
    for ts_us in (-1, 2**63 - 1):  # each is the only row of its run
        row = dict(zip(columns, rows[0], strict=True))
        rows.append(tuple((row | {"ts_us": ts_us, "seq": 0, "run_id": f"of {ts_us}"}).values()))
    folder = write_for_all(tmp_path, rows)
    commands: list[tuple[tuple[str, ...], int]] = [
        (("usage",), 0),
        (("usage", "--by", "tags", "--output", "json"), 0),
        (("usage", "--since", "2200-01-01", "--until", "2200-01-02"), 1),
        (("replay", "--law"), 0),
        (("replay", "--candidates", "9KB/s"), 0),
        (("replay", "--factors", "2", "--by", "client", "--mode", "think"), 0),
        (("recommend", *RELAXED), 0),
        (("report", "-o", str(tmp_path / "report.html")), 2),
        (("record", "show"), 0),
        (("record", "check"), 1),
    ]

    said = {}
    for words, code in commands:
        assert (words, main([*words, "--events", str(folder)])) == (words, code)
        said[words] = "".join(capsys.readouterr())
    assert [words for words, text in said.items() if "Traceback" in text] == []
    assert (
        "the time of seq 0 is -1 us, which is not between 1970 and 9999" in said["record", "check"]
    )
    assert "which no plot can show. Name a part of them: --since" in "".join(said.values())
    assert "1969-12-31 23:59:59" in said["usage",]
    assert f"{2**63 - 1} us" in said["replay", "--candidates", "9KB/s"]


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_bit_that_has_changed_is_found_by_who_reads(
    is_merged: bool, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if is_merged:
        compact(tmp_path, now_us=0, every_hour=True)
    file = min(tmp_path.glob("*.parquet"))
    metadata = pq.read_metadata(file).metadata
    pq.write_table(
        pq.read_table(file).replace_schema_metadata(metadata),
        file,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    assert main(["usage", "--events", str(tmp_path)]) == 0
    content = bytearray(file.read_bytes())
    value = pq.read_metadata(file).row_group(0).column(EVENT_SCHEMA.get_field_index("value"))
    # One of its numbers, as they lie there: nothing but the sum of the page tells.
    content[value.data_page_offset + value.total_compressed_size // 2] ^= 1
    file.write_bytes(content)
    capsys.readouterr()

    for words in (["usage"], ["replay", "--law"]):
        assert main([*words, "--events", str(tmp_path)]) == 3
        said = capsys.readouterr().err
        assert f"{file}: its rows cannot be read" in said
        assert "CRC" in said


def test_a_table_among_the_files_of_the_record_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())

    assert main(["usage", "--events", str(folder), "--save", str(folder / "tables" / "usage")]) == 2

    assert f"it is in {folder}, where all Parquet files" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
