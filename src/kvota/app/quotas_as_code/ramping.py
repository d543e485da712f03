"""Carries out a ramp: a step, a wait, the next step; whoever stops it goes on with the same command.

Each step is noted in the undo file before it is asked for. So what is in force is always what the noted step wants, or the
one before it, and a ramp that was stopped at any moment is gone on with from there.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kvota.app.quotas_as_code.alterable_quotas import VALUES_PER_REQUEST_MAX, AlterableQuotas
from kvota.app.quotas_as_code.cluster_quotas import not_shown, raise_refusals
from kvota.app.quotas_as_code.plan import moved_since
from kvota.app.quotas_as_code.undo_file import UndoFile, iso_time
from kvota.files.command_name import called
from kvota.model.client_quotas import ClientQuotas
from kvota.model.clock import Clock
from kvota.model.entity_table import is_same
from kvota.model.errors import KvotaError, UnreachableError
from kvota.model.units import format_duration_ms, parse_duration_ms, parse_percent
from kvota.planning.ramp import Ramp
from kvota.planning.wanted_quotas import Difference, requests


def parse_ramp(text: str) -> Ramp:
    """Read ``10%/1h``.

    Raises:
        ValueError: it is none.
    """
    share, slash, every = text.partition("/")
    if not slash or "%" not in share:
        msg = f'"{text}" is not a part and a time; write e.g. 10%/1h'
        raise ValueError(msg)
    return Ramp(parse_percent(share), parse_duration_ms(every))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramping:
    """One ramp that is carried out.

    Attributes:
        quotas: of the cluster.
        undo: where it is noted; it has what was in force at the beginning, and the goals.
        ramp: how far and how often.
        clock: the real one.
        say: where to tell a person about it.
    """

    quotas: AlterableQuotas
    undo: UndoFile
    ramp: Ramp
    clock: Clock
    say: Callable[[str], None]

    async def run(self) -> None:
        """Go on from the step that was noted last, up to the goals.

        Raises:
            NegativeError: somebody else has changed one of its quotas meanwhile; it stays where it is.
            KvotaError: a step has failed; the same command goes on.
        """
        differences = self.undo.differences
        last = self.ramp.steps(differences)
        step = self._step_in_force((await self.quotas.in_force()).quotas, differences, last)
        while step < last:
            if step == self.undo.head.ramp_step:
                await self._wait()
            with self._stopping_before(step + 1, last):
                found = (await self.quotas.in_force()).quotas
            step = self._step_in_force(found, differences, last) + 1
            await self._step(found, differences, step, last)
        self.undo.reached()

    def _step_in_force(
        self, found: ClientQuotas, differences: Sequence[Difference], last: int
    ) -> int:
        """The noted step, or the one before where that one did not get through."""
        noted = self.undo.head.ramp_step
        here = self.ramp.at_step(differences, noted, last=last)
        before = self.ramp.at_step(differences, max(0, noted - 1), last=last)
        moved = [
            Difference(now.entity, now.key, now.new, value)
            for now, was in zip(here, before, strict=True)
            if not _is_one_of((value := found.value(now.entity, now.key)), now.new, was.new)
        ]
        if moved:
            what = f"the ramp of {self.undo.path} stays at step {noted} of {last}: meanwhile somebody has changed"
            so = (
                f"{called()} quotas undo {self.undo.path} goes back; apply --force begins another ramp "
                "at what is in force"
            )
            raise moved_since(what, moved, so=so)
        return noted if not not_shown(here, found) else noted - 1

    async def _step(
        self, found: ClientQuotas, differences: Sequence[Difference], step: int, last: int
    ) -> None:
        wanted = self.ramp.at_step(differences, step, last=last)
        changing = not_shown(wanted, found)
        self.undo.stepping(step, self._now_ms())
        with self._stopping_before(step, last):
            for part in requests(changing, values_max=VALUES_PER_REQUEST_MAX):
                results = await self.quotas.alter(part)
                raise_refusals(results, f"step {step} of {last} has failed")
            await self.quotas.until_in_force(changing)
        self.say(self._told(step, last, len(changing)))

    @contextmanager
    def _stopping_before(self, step: int, last: int) -> Iterator[None]:
        """Whatever goes wrong in it: it is told how to go on, and how to go back."""
        try:
            yield
        except KvotaError as error:
            so = f"the same command goes on with step {step} of {last}, {called()} quotas undo {self.undo.path} goes back"
            msg = f"{error}\n  {so}"
            raise UnreachableError(msg) from error

    async def _wait(self) -> None:
        """Until the next step is due; the first one is at once, and so is one that did not get through."""
        head = self.undo.head
        if head.ramp_step:
            due_ms = head.ramp_step_at_ms + self.ramp.every_ms
            await asyncio.sleep(max(0, due_ms - self._now_ms()) / 1000)

    def _told(self, step: int, last: int, values: int) -> str:
        text = f"step {step} of {last}: {values} value{'s' if values != 1 else ''}"
        if step == last:
            return f"{text}; all have their goals"
        next_at = iso_time(self.undo.head.ramp_step_at_ms + self.ramp.every_ms)
        left = format_duration_ms((last - step) * self.ramp.every_ms)
        return f"{text}; the next at {next_at}, all done in {left}. Ctrl-C stops here, the same command goes on"

    def _now_ms(self) -> int:
        return self.clock.now_us() // 1000


def unfinished(
    files: Iterable[UndoFile],
    ramp: str,
    wanted: Sequence[Difference],
    in_force: ClientQuotas,
    *,
    cluster_id: str | None,
) -> UndoFile | None:
    """The ramp that was begun for the same goals and has not reached them."""
    for file in files:
        head = file.head
        if head.ramp != ramp or not list(head.not_done.values()):
            continue
        if None not in (head.cluster_id, cluster_id) and head.cluster_id != cluster_id:
            continue
        goals = {(each.entity, each.key): each.new for each in file.differences}
        now = {(each.entity, each.key): each.new for each in wanted}
        is_there = all(key in goals and is_same(goals[key], value) for key, value in now.items())
        others = [key for key in goals if key not in now]
        if is_there and all(is_same(in_force.value(*key), goals[key]) for key in others):
            return file
    return None


def _is_one_of(value: float | None, *others: float | None) -> bool:
    return any(is_same(value, other) for other in others)
