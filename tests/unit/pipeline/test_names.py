"""What a notebook imports is never hidden by a module of the same name, nor hides one."""

import pkgutil
import subprocess
import sys

import pytest

import kvota.pipeline


def test_no_name_of_the_package_is_also_a_module_of_it() -> None:
    modules = {found.name for found in pkgutil.iter_modules(kvota.pipeline.__path__)}
    assert modules & set(kvota.pipeline.__all__) == set()


def test_every_name_of_the_package_is_found_when_it_is_asked_for() -> None:
    for name in kvota.pipeline.__all__:
        assert name.isupper() or getattr(kvota.pipeline, name).__name__ == name
        assert hasattr(kvota.pipeline, name)
    with pytest.raises(AttributeError, match="has no attribute 'replays'"):
        kvota.pipeline.replays  # noqa: B018


def test_spark_can_be_started_before_what_its_jobs_need_is_imported() -> None:
    code = "import sys, kvota.pipeline.spark_session; print(sorted({'numba', 'pandas'} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
