"""What undoes a change is written beside the file before anything is changed, and then what was done of it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kvota.files.command_name import called
from kvota.model.client_quotas import KeyChange
from kvota.model.errors import KvotaError, UsageError
from kvota.planning.wanted_quotas import Difference, WantedQuotas
from kvota.store.quotas_yaml import QuotasDocument, UndoHead, load_document, write_document

_OF_UNDO = re.compile(r"\.undo(-[0-9]+)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a change comes from.

    Attributes:
        command: what somebody has typed.
        at_ms: when, Unix milliseconds.
        cluster_id: which cluster is changed; None: it does not say.
    """

    command: str
    at_ms: int
    cluster_id: str | None


class UndoFile:
    """One file that says how to go back, and how far the change has come; each step is on the disk before it is taken.

    Make one by ``begun`` or ``found``.
    """

    def __init__(self, path: Path, document: QuotasDocument) -> None:
        self.path = path
        self._document = document

    @classmethod
    def begun(
        cls,
        path: Path,
        differences: Sequence[Difference],
        origin: Origin,
        *,
        ramp: str | None = None,
    ) -> "UndoFile":
        """Write a new file.

        Raises:
            UsageError: there is a file of this name, or it cannot be written; nothing was changed.
        """
        head = UndoHead(
            made_at=iso_time(origin.at_ms),
            command=origin.command,
            cluster_id=origin.cluster_id,
            not_done=WantedQuotas.of(each.change for each in differences),
            ramp=ramp,
        )
        before = WantedQuotas.of((each.entity, each.key, each.old) for each in differences)
        made = cls(path, QuotasDocument(wanted=before, undo=head))
        try:
            path.open("xb").close()
        except OSError as error:
            reason = "it is there already" if isinstance(error, FileExistsError) else error.strerror
            msg = f"{path}, which would say how to undo it, cannot be written: {reason}. Nothing was changed; --undo-file names another one"
            raise UsageError(msg) from error
        try:
            made._write()
        except KvotaError as error:
            with suppress(OSError):
                path.unlink()
            msg = f"{error}. Nothing was changed"
            raise type(error)(msg) from error
        return made

    @property
    def head(self) -> UndoHead:
        """What it says of the change."""
        assert self._document.undo is not None
        return self._document.undo

    @property
    def wanted(self) -> WantedQuotas:
        """What was in force before."""
        return self._document.wanted

    @property
    def differences(self) -> list[Difference]:
        """What was in force before, and what was wanted."""
        before = {(entity, key): value for entity, key, value in self._document.wanted.values()}
        head = self.head
        wanted = [
            change for part in (head.done, head.in_doubt, head.not_done) for change in part.values()
        ]
        return [
            Difference(entity, key, before[entity, key], value)
            for entity, key, value in wanted
            if (entity, key) in before
        ]

    def asking(self, part: Iterable[Difference]) -> None:
        """Note that this much is about to be asked for."""
        head = self.head
        asked = [each.change for each in part]
        self._note(
            replace(
                head,
                not_done=_without(head.not_done, asked),
                in_doubt=_with(head.in_doubt, asked),
            )
        )

    def answered(self, done: Iterable[Difference], refused: Iterable[Difference]) -> None:
        """Note what has become of some of what was in doubt."""
        head = self.head
        taken, others = [each.change for each in done], [each.change for each in refused]
        self._note(
            replace(
                head,
                in_doubt=_without(_without(head.in_doubt, taken), others),
                done=_with(head.done, taken),
                not_done=_with(head.not_done, others),
            )
        )

    def stepping(self, step: int, at_ms: int) -> None:
        """Note which step of a ramp is about to be asked for."""
        self._note(replace(self.head, ramp_step=step, ramp_step_at_ms=at_ms))

    def reached(self) -> None:
        """Note that a ramp has come to its goals."""
        head = self.head
        self._note(
            replace(head, done=_with(head.done, head.not_done.values()), not_done=WantedQuotas())
        )

    def undone(self) -> None:
        """Note that nothing of it is in force any more, so that no ramp is gone on with."""
        head, nothing = self.head, WantedQuotas()
        wanted = WantedQuotas.of(each.change for each in self.differences)
        self._note(
            replace(
                head,
                done=nothing,
                in_doubt=nothing,
                not_done=wanted,
                ramp=None,
                ramp_step=0,
                ramp_step_at_ms=0,
            )
        )

    def _note(self, head: UndoHead) -> None:
        self._document = replace(self._document, undo=head)
        self._write()

    def _write(self) -> None:
        head = self.head
        heading = f'What undoes "{head.command}" of {head.made_at}: {called()} quotas undo FILE'
        write_document(self.path, self._document, heading=heading)


def found_undo_file(path: Path) -> UndoFile:
    """Read an undo file.

    Raises:
        UsageError: it is none.
    """
    document = load_document(path)
    if document.undo is None:
        msg = (
            f'{path} does not undo anything: it has no "undo". {called()} quotas apply writes such files '
            "beside its own"
        )
        raise UsageError(msg)
    return UndoFile(path, document)


def new_undo_path(path: Path) -> Path:
    """A name beside ``path`` that nothing has yet: ``quotas.undo.yaml``, then ``quotas.undo-2.yaml``."""
    stem = _OF_UNDO.sub("", path.stem)
    number = 1
    while True:
        name = f"{stem}.undo.yaml" if number == 1 else f"{stem}.undo-{number}.yaml"
        found = path.with_name(name)
        if not found.exists():
            return found
        number += 1


def undo_files_beside(path: Path) -> Iterator[UndoFile]:
    """Those of ``path`` that can be read, the newest first."""
    stem = _OF_UNDO.sub("", path.stem)
    named = [
        each
        for each in path.parent.glob(f"{_escaped(stem)}.undo*.yaml")
        if _OF_UNDO.sub("", each.stem) == stem and _OF_UNDO.search(each.stem)
    ]
    for each in sorted(named, key=_number, reverse=True):
        with suppress(UsageError):  # somebody's own file of such a name
            yield found_undo_file(each)


def iso_time(at_ms: int) -> str:
    """A moment as people and programs read it, UTC."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(path: Path) -> int:
    match = _OF_UNDO.search(path.stem)
    return int(match[1][1:]) if match is not None and match[1] else 1


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def _with(wanted: WantedQuotas, more: Iterable[KeyChange]) -> WantedQuotas:
    return WantedQuotas.of([*wanted.values(), *more])


def _without(wanted: WantedQuotas, fewer: Iterable[KeyChange]) -> WantedQuotas:
    gone = {(change.entity, change.key) for change in fewer}
    return WantedQuotas.of(
        change for change in wanted.values() if (change.entity, change.key) not in gone
    )
