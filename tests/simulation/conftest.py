"""Which seeds are run: a thousand fresh ones, the first thousand in CI's profile, or the one asked for."""

from collections.abc import Iterator
from random import SystemRandom

import pytest

SEEDS = 1_000
GROUP = 50
_FIRST = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="run this one simulated world")


def _first_seed(config: pytest.Config) -> int:
    """Drawn once a run, so that what is printed is what was run."""
    if _FIRST not in config.stash:
        is_ci = config.getoption("hypothesis_profile", default=None) == "ci"
        config.stash[_FIRST] = 0 if is_ci else SystemRandom().randrange(10**6, 10**9)
    return config.stash[_FIRST]


def _groups(config: pytest.Config) -> Iterator[range]:
    seed = config.getoption("seed", default=None)
    if seed is not None:
        yield range(seed, seed + 1)
        return
    first = _first_seed(config)
    for begin in range(first, first + SEEDS, GROUP):
        yield range(begin, begin + GROUP)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        groups = list(_groups(metafunc.config))
        metafunc.parametrize("seeds", groups, ids=[f"{one[0]}-{one[-1]}" for one in groups])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    if _FIRST in config.stash:
        first = config.stash[_FIRST]
        terminalreporter.write_line(f"simulated worlds: seeds {first} to {first + SEEDS - 1}")
