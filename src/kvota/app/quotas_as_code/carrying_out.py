"""Brings a change about: in as few requests as there can be, each noted before it is sent."""

from collections.abc import Sequence
from contextlib import suppress

from kvota.app.quotas_as_code.alterable_quotas import VALUES_PER_REQUEST_MAX, AlterableQuotas
from kvota.app.quotas_as_code.cluster_quotas import not_shown, raise_refusals
from kvota.app.quotas_as_code.undo_file import UndoFile
from kvota.client import BrokerError
from kvota.model.errors import KvotaError, UnreachableError
from kvota.planning.wanted_quotas import Difference, requests


async def carry_out(
    quotas: AlterableQuotas,
    differences: Sequence[Difference],
    undo: UndoFile,
    *,
    values_per_request: int = VALUES_PER_REQUEST_MAX,
) -> None:
    """Change all of it, and wait until it is shown.

    Args:
        quotas: of the cluster, which has checked the change before.
        differences: what to change.
        undo: gets noted what was done.
        values_per_request: no request has more.

    Raises:
        UnreachableError: something went wrong; the text says how much is in force, and the undo file which.
    """
    parts = requests(differences, values_max=values_per_request)
    for number, part in enumerate(parts, 1):
        undo.asking(part)
        try:
            results = await quotas.alter(part)
        except KvotaError as error:  # e.g. a login that is refused meanwhile
            undo.answered([], part)
            msg = f"{error}\n  request {number} of {len(parts)}: {_so(undo, differences)}"
            raise UnreachableError(msg) from error
        refused = {
            entity for entity, error in results.errors.items() if isinstance(error, BrokerError)
        }
        undo.answered(
            [each for each in part if each.entity in results.values],
            [each for each in part if each.entity in refused],
        )
        if results.errors:
            await _look_what_is_true(quotas, undo)
            so = f"request {number} of {len(parts)}: {_so(undo, differences)}"
            try:
                raise_refusals(results, so)
            except KvotaError as error:
                text = str(error) if so in str(error) else f"{error}\n  {so}"
                raise UnreachableError(text) from error
    try:
        await quotas.until_in_force(differences)
    except KvotaError as error:
        msg = f"{error}\n  all {len(differences)} values were changed; {undo.path} undoes them"
        raise UnreachableError(msg) from error


def _so(undo: UndoFile, differences: Sequence[Difference]) -> str:
    done = len(list(undo.head.done.values()))
    return (
        f"{done} of {len(differences)} values were changed; {undo.path} says which, and undoes them"
    )


async def _look_what_is_true(quotas: AlterableQuotas, undo: UndoFile) -> None:
    """What was asked for without an answer may be in force."""
    with suppress(KvotaError):
        found = (await quotas.in_force()).quotas
        in_doubt = {(each.entity, each.key) for each in undo.head.in_doubt.values()}
        doubtful = [each for each in undo.differences if (each.entity, each.key) in in_doubt]
        missing = not_shown(doubtful, found)
        undo.answered([each for each in doubtful if each not in missing], [])
