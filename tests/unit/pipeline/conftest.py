"""Tests of kernels: the first one on a machine that calls a kernel waits until it is compiled."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The largest kernels take ten seconds of a free core, and there may be other work.
TIMEOUT_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
