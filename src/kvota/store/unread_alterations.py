"""Alterations that a topic has taken and that have not been read back: no topic that takes its place goes without them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kvota.model.broker_settings import SettingChanges, Settings
from kvota.model.broker_settings import with_changes as with_settings
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.entity_table import is_same
from kvota.store.quota_rows import Changes, QuotaKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """What was appended to a topic as one batch.

    Attributes:
        topic_id: of that topic; None where brokers have none (before 2.8).
        last: offset of its last row.
        quotas: what it changes.
        settings: what it changes of the gateway's own.
    """

    topic_id: UUID | None
    last: int
    quotas: list[KeyChange]
    settings: SettingChanges


class UnreadAlterations:
    """Those of one gateway, in their order."""

    def __init__(self) -> None:
        self._all: list[Stored] = []

    def __contains__(self, stored: Stored) -> bool:
        return stored in self._all

    @property
    def all(self) -> Sequence[Stored]:
        """Those there are now."""
        return tuple(self._all)

    def add(self, stored: Stored) -> None:
        """This one is in the topic, and was not read yet."""
        self._all.append(stored)

    def read_to(self, topic_id: UUID | None, offset: int) -> None:
        """What stands before this offset of this topic is in force."""
        if self._all:
            self._all = [
                each for each in self._all if each.topic_id != topic_id or each.last >= offset
            ]

    def replace(self, those: Collection[Stored], stored: Stored | None) -> None:
        """A topic has what counts of those: with ``stored``, which was put into it just now."""
        self._all = [each for each in self._all if each not in those]
        if stored is not None:
            self._all.append(stored)

    def on_top_of(self, quotas: ClientQuotas, settings: Settings) -> tuple[ClientQuotas, Settings]:
        """What is in force once all of them have been read."""
        for each in self._all:
            quotas = quotas.with_changes(each.quotas)
            settings = with_settings(settings, each.settings)
        return quotas, settings


def is_any_elsewhere(unread: Iterable[Stored], topic_id: UUID | None, end: int) -> bool:
    """Whether one was appended to another topic than this one, whose next row will have the offset ``end``."""
    return any(each.topic_id != topic_id or each.last >= end for each in unread)


def missing(
    unread: Iterable[Stored],
    found: tuple[ClientQuotas, Settings],
    before: tuple[ClientQuotas, Settings],
) -> Changes:
    """What of these a topic has not that was made in the place of theirs.

    What somebody has altered there since stays so: neither as it was before them, nor as one of them has it.

    Args:
        unread: in their order.
        found: what that topic says.
        before: what is in force here.
    """
    values: dict[QuotaKey, list[float | None]] = {}
    texts: dict[str, list[str | None]] = {}
    for each in unread:
        for entity, key, value in each.quotas:
            values.setdefault((entity, key), [before[0].value(entity, key)]).append(value)
        for name, text in each.settings.items():
            texts.setdefault(name, [before[1].get(name)]).append(text)
    quotas = []
    for (entity, key), known in values.items():
        now = found[0].value(entity, key)
        if not is_same(now, known[-1]) and any(is_same(now, one) for one in known):
            quotas.append(KeyChange(entity, key, known[-1]))
    settings = {
        name: known_texts[-1]
        for name, known_texts in texts.items()
        if (text := found[1].get(name)) != known_texts[-1] and text in known_texts
    }
    return Changes(quotas, settings)
