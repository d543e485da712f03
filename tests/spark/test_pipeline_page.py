"""What docs/pipeline.md and the notebook say, works: their code is run, and their columns are those of the tables.

Blocks that begin with ``python`` are run, one after the other; those with ``py`` need a cluster
(``test_other_sessions.py`` does what they say).
"""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.looks import write_looks

from kvota.pipeline.arrow_columns import spark_ddl
from kvota.pipeline.events import BAD_INPUT_SCHEMA, EVENTS_SCHEMA
from kvota.pipeline.grid import RESULT
from kvota.pipeline.law_stage import ROWS
from kvota.pipeline.plan_table import RECOMMENDATION
from kvota.pipeline.tenant_forecasts import TENANT_FORECAST
from kvota.pipeline.usage_stage import WINDOWS
from kvota.pipeline.volume_tables import FORECAST, OBSERVATIONS
from kvota.record.usage_sums import MINUTES_SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pipeline.md").read_text(encoding="utf-8")


@pytest.fixture
def beside_a_record(recorded_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(recorded_folder, tmp_path / "record")
    write_looks(tmp_path / "record", failed=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_code_of_the_page_runs(spark: SparkSession, beside_a_record: Path) -> None:
    names: dict[str, object] = {"spark": spark}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, "docs/pipeline.md", "exec"), names)

    assert names["top"]
    assert names["of_alice"].count() > 0
    saved = spark.read.parquet(str(beside_a_record / "tables" / "usage"))
    assert saved.count() == names["minutes"].count() > 0
    plan = spark.read.parquet(str(beside_a_record / "tables" / "recommendation"))
    assert {row["plan_id"] for row in plan.collect()} == {names["plan"].plan_id}
    (disk,) = spark.read.parquet(str(beside_a_record / "tables" / "forecast")).collect()
    assert (disk["broker_id"], disk["log_dirs"], disk["limit_kind"]) == (1, ["/data"], "full")
    assert disk["total_bytes"] == disk["limit_bytes"] > disk["used_bytes"] > 0
    tenants = spark.read.parquet(str(beside_a_record / "tables" / "tenant_forecast"))
    assert tenants.count() == len(names["tenants"].rows) > 0
    assert names["failed"] == 2


def test_the_notebook_runs_and_is_ten_lines(
    spark: SparkSession, beside_a_record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for text in code for line in text.splitlines() if line]

    names: dict[str, object] = {}
    for text in code:
        exec(compile(text, "docs/notebook.ipynb", "exec"), names)

    assert len(lines) <= 10
    assert names["spark"] is spark
    assert "all equal" in capsys.readouterr().out


def test_the_page_has_every_column_of_every_table() -> None:
    found = {}
    for name, text in re.findall(r"^### (\w+)\n(.*?)(?=^###|\Z)", PAGE, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| \**(\w+)\**\?? \| ([\w<>]+) \|", text, re.MULTILINE)
        found[name] = [row for row in rows if row != ("column", "type")]

    # Its texts are codes while they are worked with.
    minutes = pa.schema(
        [
            field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
            for field in MINUTES_SCHEMA
        ]
    )
    made = {"usage": WINDOWS, "usage_minutes": minutes, "replay": RESULT, "replay_rows": ROWS}
    expected = {
        name: [tuple(column.split(" ")) for column in spark_ddl(schema).split(", ")]
        for name, schema in made.items()
    }
    words = {"bigint": "long", "smallint": "short"}
    for name, schema in {
        "recommendation": RECOMMENDATION,
        "forecast": FORECAST,
        "tenant_forecast": TENANT_FORECAST,
        "volume_observation": OBSERVATIONS,
        "events": EVENTS_SCHEMA,
        "bad_input": BAD_INPUT_SCHEMA,
    }.items():
        kinds = [(field.name, field.dataType.simpleString()) for field in schema]
        expected[name] = [(column, words.get(kind, kind)) for column, kind in kinds]
    assert found == expected
