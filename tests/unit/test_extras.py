"""What each part may need: the engine nothing, the gateway no Spark, the pipeline no gateway."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def _modules_after(statement: str, *options: str) -> set[str]:
    """The top-level modules that are loaded after a statement in a new interpreter."""
    program = f"import sys; sys.path.insert(0, {str(SOURCES)!r}); {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_engine_runs_where_nothing_is_installed() -> None:
    loaded = _modules_after("import kvota.engine, kvota.session.connection", "-I", "-S")

    assert "kvota" in loaded


def test_the_gateway_loads_no_spark_and_no_codec() -> None:
    loaded = _modules_after("import kvota.app.run_gateway")

    assert loaded.isdisjoint({"pyspark", "pandas", "numba", "kio", "kafka"})


def test_a_forecast_of_volumes_loads_no_spark(tmp_path: Path) -> None:
    statement = f"from kvota.app.cli.main import main; main(['forecast', '--events', {str(tmp_path)!r}]); print()"

    assert _modules_after(statement).isdisjoint({"pyspark", "py4j", "pandas", "numba"})


def test_the_pipeline_loads_no_gateway() -> None:
    program = "import kvota.pipeline.law_check; assert 'kvota.gateway' not in sys.modules"

    assert "uvloop" not in _modules_after(program)


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "gateway",
        "ingest",
        "usage",
        "replay",
        "recommend",
        "volumes",
        "forecast",
        "report",
        "kafka",
    ],
)
def test_help_is_shown_without_loading_anything_heavy(command: str) -> None:
    statement = (
        "from kvota.app.cli.main import main\n"
        f"try: main([{command!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "import sys"
    )
    program = f"import sys\nsys.path.insert(0, {str(SOURCES)!r})\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "example:" in done.stdout
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert loaded.isdisjoint({"pyspark", "pyarrow", "numba", "numpy", "kio", "uvloop"})
