"""What the record and the replay show of each tenant, and what it may claim for that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.fair_share import Claim
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need

# Who was held back for so much of the time in which it sent wanted more than the record shows.
CENSORED_FROM = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One tenant of one quota type.

    Attributes:
        quota_type: what is shared.
        entity: of whom the quota is.
        needs: by broker; None: no quota tried was good enough, or nothing was learnt there.
        rate_usual: per second, on the broker where it is most: the median of the seconds of minutes with its traffic.
        events: its requests.
        hours: in which it had traffic of its own.
        current: the quota in force; None: unlimited.
        weight: above 0.
        share_throttled: of the time in which it sent, how much it was held back lately.
        evenness: by broker, what its need is on average over all gateways, as a share of that at the gateway where it
            is largest; a broker that is not there: 1, the same at all of them.
    """

    quota_type: QuotaType
    entity: QuotaEntity
    needs: Mapping[int, Need | None]
    rate_usual: float
    events: int
    hours: float
    current: float | None
    weight: float = 1.0
    share_throttled: float = 0.0
    evenness: Mapping[int, float] = field(default_factory=dict)

    @property
    def need(self) -> Need | None:
        """The need on the broker where it is largest; None where one of them is not known."""
        known = [need for need in self.needs.values() if need is not None]
        if not known or len(known) < len(self.needs):
            return None
        return max(known, key=lambda need: need.rate)

    @property
    def is_censored(self) -> bool:
        """True where it was held back so much that it may want more than was seen."""
        return self.share_throttled >= CENSORED_FROM

    def wants(self, rules: Guardrails, headroom: float) -> dict[int, float]:
        """What it may want, by broker: its need and the headroom, or a step more where that is not known."""
        more = max(rules.step_up_max, 1 + headroom) if self.is_censored else 1 + headroom
        return {
            broker: self.rate_usual if need is None else need.rate * more
            for broker, need in self.needs.items()
        }

    def takes(self, rules: Guardrails, headroom: float) -> dict[int, float]:
        """What of that it takes of each broker, on average over all gateways.

        A quota is per gateway, and who comes through one of three has all its need there. With such a quota it
        could take three times as much, but it takes what it needs.
        """
        return {
            broker: wanted * self.evenness.get(broker, 1.0)
            for broker, wanted in self.wants(rules, headroom).items()
        }

    def taken(self, quota: float, rules: Guardrails, headroom: float) -> dict[int, float]:
        """What it takes of each broker with a quota, on average over all gateways.

        With less than it needs it could take as much at each of them; with its need it takes that, and as much
        more as the quota has headroom.
        """
        most, needs = self.takes(rules, headroom), self.takes(rules, 0.0)
        needed = max(self.wants(rules, 0.0).values())
        if quota < needed:
            return {broker: min(quota, rate) for broker, rate in most.items()}
        more = quota / needed if needed > 0 else 1.0
        return {broker: min(rate, needs[broker] * more) for broker, rate in most.items()}

    def claim(self, rules: Guardrails, headroom: float) -> Claim:
        """What it may get of a plan, on average over all gateways."""
        at_least = rules.floors.get(self.quota_type, 0.0)
        # Who is held at its quota has no usual rate of its own.
        if rules.keeps_median and not self.is_censored:
            at_least = max(at_least, self.rate_usual)
        at_most = inf
        if self.current is not None:
            at_most = self.current * rules.step_up_max
            at_least = min(max(at_least, self.current * rules.step_down_max), at_most)
        return Claim(
            wants=self.takes(rules, headroom),
            weight=self.weight,
            at_least=at_least,
            at_most=at_most,
        )

    def keeps(self, rules: Guardrails) -> dict[int, float]:
        """What is set aside for it on each broker where its quota stays as it is."""
        most = inf if self.current is None else self.current
        return {broker: min(most, rate) for broker, rate in self.takes(rules, 0.0).items()}
