"""Brings a file into force, or back what was in force before: looks, shows, asks, looks again, and only then changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvota.app.quotas_as_code.alterable_quotas import VALUES_PER_REQUEST_MAX, AlterableQuotas
from kvota.app.quotas_as_code.carrying_out import carry_out
from kvota.app.quotas_as_code.plan import (
    AGE_MAX_MS,
    LOWER_PERCENT_MAX,
    QuotaPlan,
    check_age,
    check_fresh,
    make_plan,
    moved_since,
)
from kvota.app.quotas_as_code.ramping import Ramping, parse_ramp, unfinished
from kvota.app.quotas_as_code.undo_file import (
    Origin,
    UndoFile,
    found_undo_file,
    new_undo_path,
    undo_files_beside,
)
from kvota.model.client_quotas import ClientQuotas
from kvota.model.clock import Clock
from kvota.model.entity_table import is_same
from kvota.model.errors import NegativeError, UnreachableError, UsageError
from kvota.planning.wanted_quotas import Difference, moved
from kvota.store.quotas_yaml import QuotasDocument


class Dialogue(Protocol):
    """Whoever stands before the screen."""

    def show(self, plan: QuotaPlan) -> None:
        """Show what would change."""
        ...

    def agrees(self, plan: QuotaPlan) -> bool:
        """Ask whether it shall."""
        ...

    def undone_by(self, path: Path) -> None:
        """Tell what undoes it."""
        ...

    def say(self, text: str) -> None:
        """Tell how it goes on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked for with it.

    Attributes:
        file: the one with quotas, or what undoes a change.
        command: what was typed.
        prunes: values go that the file does not mention.
        lower_percent_max: no limit goes down by more.
        age_max_ms: no plan is older.
        is_forced: nevertheless.
        ramp: in steps, as it was typed.
        undo_file: where to write what undoes it; None: beside the file.
        values_per_request: no request changes more.
    """

    file: Path
    command: str
    prunes: bool = False
    lower_percent_max: float = LOWER_PERCENT_MAX
    age_max_ms: float = AGE_MAX_MS
    is_forced: bool = False
    ramp: str | None = None
    undo_file: Path | None = None
    values_per_request: int = VALUES_PER_REQUEST_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What has come of it.

    Attributes:
        plan: what was to change.
        undo_file: what undoes it; None: nothing was changed.
        is_agreed: whether the answer was yes.
    """

    plan: QuotaPlan
    undo_file: Path | None = None
    is_agreed: bool = True


async def apply(
    quotas: AlterableQuotas,
    document: QuotasDocument,
    wishes: Wishes,
    dialogue: Dialogue,
    clock: Clock,
) -> Applied:
    """Bring a file, or a plan, into force.

    Raises:
        NegativeError: a plan is stale or too old, or guardrails refuse; nothing was changed.
        UsageError: the cluster refuses some of it; nothing was changed.
        KvotaError: something went wrong; the text says how much was changed.
    """
    cluster_id = await quotas.cluster_id()
    found = await quotas.in_force()
    plan = make_plan(
        document, found, prunes=wishes.prunes, lower_percent_max=wishes.lower_percent_max
    )
    resumed = _resumed(wishes, plan, cluster_id)
    if not plan.differences:
        if resumed is not None:
            resumed.reached()
        return Applied(plan=plan)
    if document.plan is not None and resumed is None:
        check_fresh(document.plan, found, cluster_id)
        check_age(document.plan, now_ms=clock.now_us() // 1000, age_max_ms=wishes.age_max_ms)
    dialogue.show(plan)
    _check_guardrails(plan, wishes)
    if wishes.ramp is not None:
        _check_length(wishes.ramp, plan.differences)
    if not await _is_agreed(quotas, plan, dialogue):
        return Applied(plan=plan, is_agreed=False)
    file = resumed or _begun(wishes, plan.differences, clock, cluster_id)
    dialogue.undone_by(file.path)
    if wishes.ramp is None:
        await carry_out(
            quotas, plan.differences, file, values_per_request=wishes.values_per_request
        )
    else:
        ramp = parse_ramp(wishes.ramp)
        await Ramping(quotas=quotas, undo=file, ramp=ramp, clock=clock, say=dialogue.say).run()
    return Applied(plan=plan, undo_file=file.path)


async def undo(
    quotas: AlterableQuotas, wishes: Wishes, dialogue: Dialogue, clock: Clock
) -> Applied:
    """Bring back what was in force before a change, as far as it came.

    Raises:
        NegativeError: somebody else has changed some of it since; nothing was changed.
        UsageError: the file undoes nothing, or is of another cluster; nothing was changed.
        KvotaError: something went wrong; the text says how much was changed.
    """
    file = found_undo_file(wishes.file)
    back: UndoFile | None = None
    cluster_id = await quotas.cluster_id()
    if None not in (file.head.cluster_id, cluster_id) and file.head.cluster_id != cluster_id:
        msg = f"{file.path} undoes a change of cluster {file.head.cluster_id}, and this is {cluster_id}"
        raise UsageError(msg)
    found = (await quotas.in_force()).quotas
    others = _changed_by_others(file, found)
    if others and not wishes.is_forced:
        what = f"{file.path} does not know what is in force: meanwhile somebody has changed"
        raise moved_since(what, others, so="nothing was changed; --force goes back all the same")
    plan = QuotaPlan(in_force=found, differences=file.wanted.differences(found))
    if plan.differences:
        dialogue.show(plan)
        if not await _is_agreed(quotas, plan, dialogue):
            return Applied(plan=plan, is_agreed=False)
        back = _begun(wishes, plan.differences, clock, cluster_id)
        dialogue.undone_by(back.path)
        await carry_out(
            quotas, plan.differences, back, values_per_request=wishes.values_per_request
        )
    try:
        file.undone()
    except UnreachableError as error:
        dialogue.say(f"{error}; it is undone all the same")
    return Applied(plan=plan, undo_file=None if back is None else back.path)


async def _is_agreed(quotas: AlterableQuotas, plan: QuotaPlan, dialogue: Dialogue) -> bool:
    """The cluster would take it, somebody says yes, and meanwhile nobody has changed anything."""
    await quotas.check(plan.differences)
    if not dialogue.agrees(plan):
        return False
    now = (await quotas.in_force()).quotas
    if now != plan.in_force:
        what = "while this was shown somebody has changed"
        raise moved_since(what, moved(plan.in_force, now))
    return True


def _check_guardrails(plan: QuotaPlan, wishes: Wishes) -> None:
    objections = plan.objections()
    if objections and not wishes.is_forced:
        most = f"lowers no limit by more than {wishes.lower_percent_max:g} % without --force"
        msg = "\n  ".join((f"apply {most}; nothing was changed:", *objections))
        raise NegativeError(msg)


def _check_length(ramp: str, differences: Sequence[Difference]) -> None:
    try:
        parse_ramp(ramp).steps(differences)
    except ValueError as error:
        msg = f"--ramp {ramp}: {error}"
        raise UsageError(msg) from error


def _begun(
    wishes: Wishes, differences: Sequence[Difference], clock: Clock, cluster_id: str | None
) -> UndoFile:
    origin = Origin(command=wishes.command, at_ms=clock.now_us() // 1000, cluster_id=cluster_id)
    path = wishes.undo_file or new_undo_path(wishes.file)
    return UndoFile.begun(path, differences, origin, ramp=wishes.ramp)


def _resumed(wishes: Wishes, plan: QuotaPlan, cluster_id: str | None) -> UndoFile | None:
    """The ramp that this same command has begun; forced, only where it is where it was left."""
    if wishes.ramp is None:
        return None
    files: Iterable[UndoFile]
    if wishes.undo_file is None:
        files = undo_files_beside(wishes.file)
    else:
        files = [found_undo_file(wishes.undo_file)] if wishes.undo_file.exists() else []
    file = unfinished(files, wishes.ramp, plan.differences, plan.in_force, cluster_id=cluster_id)
    if (
        file is not None
        and wishes.is_forced
        and _changed_by_others(file, plan.in_force, is_going_on=True)
    ):
        return None
    return file


def _changed_by_others(
    file: UndoFile, found: ClientQuotas, *, is_going_on: bool = False
) -> list[Difference]:
    """Values that are neither as they were before nor as the change has made them.

    Args:
        file: what is known of the change.
        found: what is in force.
        is_going_on: of a ramp: only where its last step has left it.
    """
    differences = file.differences
    known = [[each.old for each in differences], [each.new for each in differences]]
    if file.head.ramp is not None:
        step = file.head.ramp_step
        try:
            ramp = parse_ramp(file.head.ramp)
            last = ramp.steps(differences)
        except ValueError as error:
            msg = f"{file.path}: undo.ramp: {error}. The ramp was begun with another one: write that; nothing was changed"
            raise UsageError(msg) from error
        states = [
            [each.new for each in ramp.at_step(differences, number, last=last)]
            for number in {step, max(0, step - 1)}
        ]
        known = states if is_going_on else known + states
    return [
        Difference(each.entity, each.key, each.new, value)
        for number, each in enumerate(differences)
        if not any(
            is_same(value := found.value(each.entity, each.key), state[number]) for state in known
        )
    ]
