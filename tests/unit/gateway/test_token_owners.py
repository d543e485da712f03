"""Whose delegation tokens are: asked once for all, again for new ones, and never for ever."""

import asyncio
from collections.abc import Mapping

import pytest

from kvota.gateway import token_owners
from kvota.gateway.token_owners import TokenOwners
from kvota.model.errors import KvotaError, UnreachableError
from kvota.session.outside import Owner


class Described:
    """What a cluster tells, one answer after the other; the last one again and again."""

    def __init__(self, *answers: Mapping[str, str] | KvotaError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self) -> Mapping[str, str]:
        self.asked += 1
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KvotaError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_owners, "_PAUSE_S", 0.01)


async def test_many_who_ask_at_once_ask_the_cluster_once() -> None:
    described = Described({"a": "alice", "b": "bob"})
    owners = TokenOwners(described)

    found = await asyncio.gather(*(owners.owner_of(name) for name in "abab"))

    assert found == [Owner("alice"), Owner("bob")] * 2
    assert described.asked == 1
    assert await owners.owner_of("a") == Owner("alice")
    assert described.asked == 1


async def test_a_token_that_another_broker_does_not_know_yet_is_asked_for_again() -> None:
    described = Described({}, {}, {"a": "alice"})

    assert await TokenOwners(described).owner_of("a") == Owner("alice")
    assert described.asked == 3


async def test_one_that_is_not_found_is_not_looked_for_again_at_once() -> None:
    described = Described({"b": "bob"})
    owners = TokenOwners(described)

    found = await owners.owner_of("a")
    assert found.name is None
    assert "needs DESCRIBE on DelegationToken" in found.why
    asked = described.asked
    assert await owners.owner_of("a") == found
    assert described.asked == asked


async def test_whom_nobody_answers_is_told_why_and_asks_again() -> None:
    described = Described(UnreachableError("no broker answers"), {"a": "alice"})
    owners = TokenOwners(described)

    assert "no broker answers" in (await owners.owner_of("a")).why
    assert await owners.owner_of("a") == Owner("alice")


async def test_a_cluster_that_does_not_answer_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_owners, "_FIND_S", 0.05)

    async def silent() -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}

    owners = TokenOwners(silent)
    found = await asyncio.gather(*(owners.owner_of(name) for name in "ab"))

    assert [("within" in one.why, one.name) for one in found] == [(True, None)] * 2
