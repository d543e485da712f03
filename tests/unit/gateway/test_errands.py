"""Errands of conversations: hosts are looked up, alterations stored."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kvota.gateway.errands import NAMES_MAX, Errands
from kvota.model.client_quotas import KeyChange
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import LookUpHosts, StoreQuotas
from kvota.store.file_store import FileStore

CHANGES = [KeyChange(QuotaEntity("alice"), "producer_byte_rate", 5.0)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(tmp_path / "quotas.json")
    store.begin(lambda _changes: None)
    yield store
    await store.end()


@pytest.fixture
async def errands(store: FileStore) -> AsyncIterator[Errands]:
    errands = Errands(asyncio.get_running_loop(), store)
    yield errands
    errands.stop()


async def test_addresses_and_known_names_are_known(errands: Errands) -> None:
    names = {
        "10.1.2.3",
        "::1",
        "1.2.3",
        "localhost",
        "example.invalid",
        "a b",
        "x" * 300,
        "\0",
        "[::1]",
        "[::1",
        "::1]",
        "[1.2.3.4]",
        "1.2.3.4]",
        "0x7f.0.0.1",
        "010.0.0.1",
        "fe80::1%lo",
        "\uff11.2.3.4",
        "1.2.3.4\0",
    }

    unknown = await errands.run(LookUpHosts(frozenset(names)))

    assert unknown == names - {"10.1.2.3", "::1", "1.2.3", "localhost", "[::1]"}


async def test_of_very_many_names_the_rest_is_unknown(errands: Errands) -> None:
    names = frozenset({f"127.0.{n}" for n in range(NAMES_MAX + 10)})  # no literals of Python's

    unknown = await errands.run(LookUpHosts(names))

    assert isinstance(unknown, frozenset)
    assert 10 <= len(unknown) < len(names)


async def test_nothing_is_looked_up_once_the_gateway_ends(errands: Errands) -> None:
    errands.stop()

    assert await errands.addresses_of(["localhost"]) == {}


async def test_quotas_are_stored(errands: Errands, store: FileStore) -> None:
    assert await errands.run(StoreQuotas(CHANGES, "admin")) is None
    assert len(store.quotas) == 1


async def test_an_alteration_whose_client_has_gone_is_stored_all_the_same(
    errands: Errands, store: FileStore
) -> None:
    errands.run(StoreQuotas(CHANGES, "admin")).cancel()
    await store.end()
    await asyncio.sleep(0)

    assert len(store.quotas) == 1
