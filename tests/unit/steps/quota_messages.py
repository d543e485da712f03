"""Quotas and settings altered and described by Kafka's own API, as many at once as a controller takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.unit.quota_api.written import Entity, Values, alteration, description
from tests.unit.session.test_broker_settings import INCREMENTAL, Settings
from tests.unit.session.test_broker_settings import asked as settings_asked
from tests.unit.session.test_client_quotas import (
    FINE,
    Source,
    broker_acls,
    broker_altered,
    broker_described,
)
from tests.unit.steps.hostile import ATTACKS, attack
from tests.unit.steps.stand import House, Measure, Stand

from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import Errand
from kvota.session.quota_admins import QuotaAdmins
from kvota.testing.stage import Cluster
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

KEY = "producer_byte_rate"
# A controller changes no more values in one request.
ENTITIES = 10_000
MANY = 500
DISABLED = 54
OFFERED = (ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS)
ADMINS = QuotaAdmins(hosts=frozenset({"192.0.2.1"}))


def quotas_of(count: int = ENTITIES) -> ClientQuotas:
    return ClientQuotas({QuotaEntity(user=f"user-{one}"): {KEY: 1e6} for one in range(count)})


class Told:
    """A result that is there already."""

    def __init__(self, house: House, result: object) -> None:
        self._house = house
        self._result = result

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        self._house.loop.call_soon(call, self)

    def cancelled(self) -> bool:
        return False

    def result(self) -> object:
        return self._result


@dataclass
class Errands:
    """Says that each errand has been run."""

    errands: list[Errand] = field(default_factory=list)
    house: House | None = None

    def run(self, errand: Errand) -> Told:
        assert self.house is not None
        self.errands.append(errand)
        return Told(self.house, None)


def quota_stand(measure: Measure, *, settings: Mapping[str, str] | None = None) -> Stand:
    shared = Cluster(client_quotas=Source(quotas_of()), quota_admins=ADMINS)
    if settings is not None:
        shared.shared.broker_settings = Settings(dict(settings))
    errands = Errands()
    errands.house = House(shared, errands=errands)
    made = Stand(errands.house, measure)
    # The client has asked what the broker offers, as clients do.
    made.driver.machine.caller.upstream_versions = dict.fromkeys(OFFERED, (0, 1))
    return made


def _altered(measure: Measure, *entries: tuple[Entity, Values], many: int) -> Stand:
    made = quota_stand(measure)
    made.client(alteration(*entries))
    made.broker(broker_altered(*(FINE for _ in range(many))))
    made.broker(broker_acls(DISABLED))
    errands: Any = made.house.errands
    assert len(errands.errands[0].changes) == len(entries)
    return made


def _of_users(count: int) -> list[tuple[Entity, Values]]:
    return [({"user": f"user-{one}"}, {KEY: 2e6}) for one in range(count)]


@attack
def alter_500_quotas(measure: Measure) -> Stand:
    return _altered(measure, *_of_users(MANY), many=MANY)


@attack
def alter_10_000_quotas(measure: Measure) -> Stand:
    return _altered(measure, *_of_users(ENTITIES), many=ENTITIES)


def _described(measure: Measure, frame: bytes, times: int = 1) -> Stand:
    made = quota_stand(measure)
    for _ in range(times):
        made.client(frame)
        assert made.broker(broker_described(0, ""))
    return made


@attack
def describe_10_000_quotas(measure: Measure) -> Stand:
    """Once, when nobody has asked yet, and once again."""
    return _described(measure, description(strict=False), times=2)


@attack
def describe_of_10_000_what_is_not_there(measure: Measure) -> Stand:
    return _described(measure, description(("client-id", 0, "nobody"), strict=False))


@attack
def alter_10_000_settings(measure: Measure) -> Stand:
    """More than the gateway keeps: refused, when all of them have been looked at."""
    made = quota_stand(measure, settings={})
    names = {f"client.quota.callback.my.{one}": "1" for one in range(9_990)}
    made.client(settings_asked(INCREMENTAL, ((4, ""), names)))
    made.broker(broker_altered(FINE, version=0))
    made.broker(broker_acls(DISABLED))
    return made


@attack
def alter_settings_of_10_000_resources(measure: Measure) -> Stand:
    made = quota_stand(measure, settings={})
    resources = [((4, str(one)), {"quota.window.num": "5"}) for one in range(4_990)]
    made.client(settings_asked(INCREMENTAL, *resources))
    made.broker(broker_altered(FINE, version=0))
    made.broker(broker_acls(DISABLED))
    return made


# Those of tests.unit.steps.hostile, and these.
ALL_ATTACKS = ATTACKS
