"""The gateway's own event loop for these tests: what asyncio's does differs in details."""

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
import uvloop
from tests.unit.gateway.world import World


def pytest_asyncio_loop_factories(config: object, item: object) -> dict[str, Callable]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def worlds() -> AsyncIterator[Callable]:
    """``await worlds(...)`` starts a gateway with brokers behind it; gone after the test."""
    async with AsyncExitStack() as stack:

        async def start(**options: object) -> World:
            return await stack.enter_async_context(World(**options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What a closed connection leaves behind must be nothing for the collector to find."""
    gc.collect()
    gc.freeze()  # what is there already, of which a process of many tests has millions, is not looked through
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
