"""Large requests that are announced and not sent: the room for them stands empty."""

import asyncio

from tests.adversary.frames import plain_login, produce
from tests.adversary.good_client import GoodLoad
from tests.adversary.target import Attack, Entity, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

# Together all the room there is by default.
ANNOUNCED_BYTES = (100 << 20, 28 << 20)
# So much must be here before a request goes on.
_BEGIN_BYTES = 16_384
_LEAST_BYTES_PER_S, _STEP_S = 160_000, 0.05


async def announced(target: Target, seconds: float, got: Got) -> None:
    """A byte now and then, on two connections; they come again when they are closed."""
    await for_seconds(
        seconds,
        *(lambda size=size: _keep_going(target, size, 1, 0.5, got) for size in ANNOUNCED_BYTES),
    )


async def at_the_least_rate(target: Target, seconds: float, got: Got) -> None:
    """The same, at a rate that is just high enough for them not to be closed for it."""
    step_bytes = int(_LEAST_BYTES_PER_S * _STEP_S)
    await for_seconds(
        seconds,
        *(
            lambda size=size: _keep_going(target, size, step_bytes, _STEP_S, got)
            for size in ANNOUNCED_BYTES
        ),
    )


async def _keep_going(target: Target, size: int, step_bytes: int, pause_s: float, got: Got) -> None:
    whole = produce(target.topic, 20_000, client_id=target.client_id)
    begin = size.to_bytes(4, "big") + whole[4:_BEGIN_BYTES]
    while True:
        try:
            async with connected(target.address) as client:
                got.connections += 1
                await client.ask(
                    plain_login(target.user, target.secret, client_id=target.client_id)
                )
                await client.answer()
                client.send(begin)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_send(client, step_bytes, pause_s))
                    tasks.create_task(_until_closed(client))
        except* (*Lost, OSError):
            got.closed += 1
            await asyncio.sleep(0.02)


async def _send(client: WireClient, step_bytes: int, pause_s: float) -> None:
    while True:
        client.send(bytes(step_bytes))
        await client.sent()
        await asyncio.sleep(pause_s)


async def _until_closed(client: WireClient) -> None:
    await client.closed()
    raise ConnectionError


_GOOD = GoodLoad(value_bytes=600_000, pace_s=0.05)
ATTACKS = (
    Attack("announced_and_not_sent", announced, entity=Entity.USER, good=_GOOD),
    Attack("announced_and_sent_slowly", at_the_least_rate, entity=Entity.USER, good=_GOOD),
)
