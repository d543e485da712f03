"""Who wants more than one step goes on in the next rounds of the loop, one after the other."""

import asyncio
from itertools import pairwise

from tests.unit.gateway.world import Worlds

from kvota.gateway import turns
from kvota.gateway.turns import Turns
from kvota.session.exchanges.own_node import LOOK_UP_US
from kvota.session.step_work import STEP_WORK_US
from kvota.testing.frames import produce, produce_answer
from kvota.testing.stage import quotas


async def test_who_joins_again_comes_in_another_round_behind_the_others() -> None:
    loop = asyncio.get_running_loop()
    queue, happened = Turns(loop), []

    def greedy() -> None:
        happened.append("greedy")
        if len(happened) < 6:
            queue.join(greedy)
            loop.call_soon(happened.append, "loop")

    queue.join(greedy)
    queue.join(lambda: happened.append("other"))
    for _ in range(10):
        await asyncio.sleep(0)

    assert happened[:2] == ["greedy", "other"]
    assert all(first != second for first, second in pairwise(happened))


async def test_a_round_ends_when_its_time_is_over(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(turns, "_ROUND_S", 0.0)
    loop = asyncio.get_running_loop()
    queue, happened = Turns(loop), []

    for number in range(3):
        queue.join(lambda number=number: happened.append(number))
        loop.call_soon(lambda: happened.append("loop"))
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append([one for one in happened if one != "loop"])

    assert seen[:3] == [[0], [0, 1], [0, 1, 2]]


async def test_hundreds_of_names_in_one_segment_are_all_answered(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000_000))
    client = await world.connect()
    count = 10 * STEP_WORK_US // LOOK_UP_US

    client.send(b"".join(produce(correlation=n, client=f"client-{n}") for n in range(count)))

    for number in range(count):
        assert await client.frame() == produce_answer(correlation=number)
