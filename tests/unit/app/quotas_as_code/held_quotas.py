"""Quotas in memory, taken and refused as a controller does (``quota_api.alteration``), which fail when they are told to."""

from collections.abc import Sequence
from pathlib import Path

from kvota.admin import BrokerError, OutcomeUnknownError, Results
from kvota.app.quotas_as_code.alterable_quotas import VALUES_PER_REQUEST_MAX, InForce
from kvota.app.quotas_as_code.cluster_quotas import not_shown, raise_refusals
from kvota.app.quotas_as_code.plan import QuotaPlan
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import KvotaError, UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.planning.wanted_quotas import Difference
from kvota.quota_api.alteration import Judged, judge
from kvota.quota_api.entity import parts_of, quota_entity
from kvota.wire.client_quotas import Entry
from kvota.wire.steps import at_once

_LOGIN_FAILED = 58


class Killed(BaseException):
    """The process ends here, as by ``kill -9``: nothing of ours runs behind it."""


class HeldQuotas:
    """Holds quotas.

    Attributes:
        quotas: those in force.
        requests: what was altered, request by request.
        fails: by the number of the alteration, from 1: ``lost`` (done, no answer), ``unsent`` (not done, no answer),
            ``login`` (refused, nothing sent), ``not offered`` (so nothing sent), ``killed before``, ``killed behind``.
        looks_failing: what the look behind so many alterations ends with, by their number.
        meanwhile: what somebody else does before the next look.
    """

    def __init__(self, quotas: ClientQuotas | None = None) -> None:
        self.quotas = quotas or ClientQuotas()
        self.requests: list[Sequence[Difference]] = []
        self.fails: dict[int, str] = {}
        self.looks_failing: dict[int, KvotaError] = {}
        self.meanwhile: list[ClientQuotas] = []

    async def cluster_id(self) -> str | None:
        return "held"

    async def in_force(self) -> InForce:
        if len(self.requests) in self.looks_failing:
            raise self.looks_failing[len(self.requests)]
        if self.meanwhile:
            self.quotas = self.meanwhile.pop(0)
        return InForce(self.quotas, ())

    async def check(self, differences: Sequence[Difference]) -> None:
        raise_refusals(self._results(self._judged(differences)), "nothing was changed")

    async def alter(self, differences: Sequence[Difference]) -> Results[QuotaEntity, None]:
        assert 0 < len(differences) <= VALUES_PER_REQUEST_MAX
        self.requests.append(differences)
        fails = self.fails.get(len(self.requests), "")
        if fails == "killed before":
            raise Killed
        if fails == "unsent":
            return self._unknown(differences)
        if fails == "login":
            what = 'kafka:9092: login of "admin" by PLAIN'
            raise BrokerError(what, _LOGIN_FAILED)
        if fails == "not offered":
            msg = "kafka:9092 does not offer it: alter_client_quotas is spoken here in 0-1"
            raise UsageError(msg)
        judged = self._judged(differences)
        self.quotas = self.quotas.with_changes(judged.changes)
        if fails == "killed behind":
            raise Killed
        return self._unknown(differences) if fails == "lost" else self._results(judged)

    async def until_in_force(self, differences: Sequence[Difference]) -> None:
        now = (await self.in_force()).quotas
        assert not not_shown(differences, now)

    def _judged(self, differences: Sequence[Difference]) -> Judged:
        operations: dict[QuotaEntity, list[tuple[str, float | None]]] = {}
        for each in differences:
            operations.setdefault(each.entity, []).append((each.key, each.new))
        entries = [Entry(parts_of(entity), tuple(ops)) for entity, ops in operations.items()]
        return at_once(judge(entries, self.quotas, {"no-such-host"}))

    def _results(self, judged: Judged) -> Results[QuotaEntity, None]:
        errors: dict[QuotaEntity, KvotaError] = {}
        values: dict[QuotaEntity, None] = {}
        for parts, code, message in judged.results:
            entity = quota_entity({part.type: part.name for part in parts})
            if code:
                errors[entity] = BrokerError(str(entity), code, message)
            else:
                values[entity] = None
        return Results(values, errors)

    def _unknown(self, differences: Sequence[Difference]) -> Results[QuotaEntity, None]:
        error = OutcomeUnknownError("no answer")
        return Results({}, {each.entity: error for each in differences})


class Agreed:
    """Somebody who says yes, and hears."""

    def __init__(self, *, answer: bool = True) -> None:
        self.answer = answer
        self.shown: list[QuotaPlan] = []
        self.heard: list[str] = []

    def show(self, plan: QuotaPlan) -> None:
        self.shown.append(plan)

    def agrees(self, plan: QuotaPlan) -> bool:
        return self.answer

    def undone_by(self, path: Path) -> None:
        self.heard.append(f"undo {path.name}")

    def say(self, text: str) -> None:
        self.heard.append(text)


class Clock:
    """Steps of a ramp are due at once where it runs fast."""

    def __init__(self, step_us: int = 10_000_000_000) -> None:
        self._now_us = 1_700_000_000_000_000
        self._step_us = step_us

    def now_us(self) -> int:
        self._now_us += self._step_us
        return self._now_us
