"""Where configured quotas are kept while a gateway runs: what every such place offers it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kvota.model.broker_settings import NO_SETTINGS, Settings
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.entity_table import is_same
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import QuotaSource, Refusal, StoreQuotas

# Puts changes in force that are stored now.
InForce = Callable[[Sequence[KeyChange]], None]
# Takes None, or why nothing was stored.
Done = Callable[[Refusal | None], None]

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def nothing() -> None:
    """Nobody wants to know."""


# So many changes come into force at once: some milliseconds.
CHANGES_PER_STEP = 250


def altered(errand: StoreQuotas) -> str:
    """Say in the log what has been altered; not to which values: one may be a password."""
    if errand.settings:
        return f"settings altered by {errand.by}: {', '.join(errand.settings)}"
    return f"quotas altered by {errand.by}: {len(errand.changes)} values"


async def computed(size: int, work: Callable[[_Given], _Made], given: _Given) -> _Made:
    """What ``work`` makes of so much; beside the event loop where it would hold it."""
    if size > CHANGES_PER_STEP:
        return await asyncio.to_thread(work, given)
    return work(given)


def differing(
    quotas: ClientQuotas, changes: Sequence[KeyChange]
) -> tuple[list[KeyChange], ClientQuotas]:
    """Those that change something, one after the other (who alters writes what is so already, too), and what is so then."""
    values: dict[tuple[QuotaEntity, str], float | None] = {}
    changing = []
    for entity, key, value in changes:
        before = values.get((entity, key), quotas.value(entity, key))
        values[entity, key] = value
        if not is_same(before, value):
            changing.append(KeyChange(entity, key, value))
    return changing, quotas.with_changes(changing) if changing else quotas


class QuotaStore(QuotaSource, Protocol):
    """Stored first, then in force, then answered: a change that was acknowledged outlives the process.

    Attributes:
        on_settings: called when ``settings`` are others; to put them in force is somebody else's business.
    """

    on_settings: Callable[[], None]

    @property
    def settings(self) -> Settings:
        """The settings of the gateway that are kept with the quotas."""
        ...

    def begin(self, in_force: InForce) -> None:
        """Work from now on, in the running event loop; ``in_force`` is called there."""

    def alter(self, errand: StoreQuotas, done: Done) -> None:
        """Store changes; ``done`` is called when they are in force, or have been refused."""

    async def follow(self) -> None:
        """Do what goes on by itself, until cancelled or done."""

    async def end(self) -> None:
        """Finish what has begun, and let go of what is held."""


class TomlStore:
    """The quotas of a file that people write; they change when it is read again.

    Attributes:
        quotas: those in force.
        refusal: what is said to everybody who would alter them over the network.
        may_lag: False; what was read is in force.
        settings: none; people write these, too.
    """

    may_lag = False
    settings = NO_SETTINGS
    on_settings: Callable[[], None] = staticmethod(nothing)

    def __init__(self, quotas: ClientQuotas, refusal: Refusal) -> None:
        self.quotas = quotas
        self.refusal: Refusal | None = refusal

    def begin(self, in_force: InForce) -> None:
        """Nothing comes from here by itself."""

    def alter(self, errand: StoreQuotas, done: Done) -> None:  # noqa: ARG002
        """Refuse."""
        done(self.refusal)

    async def follow(self) -> None:
        """Nothing goes on."""

    async def end(self) -> None:
        """Nothing is held."""
