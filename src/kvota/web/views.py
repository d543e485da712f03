"""What tenants and explanations look like as JSON: keys are stable, and carry their units."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Protocol

from kvota.callbacks.default import Level
from kvota.engine.reading import Reading
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.glance import GatewayGlance, ProducerIdGlance, Use
from kvota.metrics.tally import BusyCounter
from kvota.model.client_quotas import PRODUCER_IDS_KEY
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, Tags, tag_value
from kvota.session.explaining import CounterOutlook, QuotaExplanation
from kvota.session.id_explanation import IdExplanation
from kvota.session.principal import ANONYMOUS
from kvota.web.source import Json

_NO_USE = Use()
# Who asks for most producer ids; the metrics have more.
_ASKERS_SHOWN = 10
# That of the user alone, and of the client id alone.
_USER_LEVEL, _CLIENT_LEVEL = 3, 7


def tenants_view(
    busiest: Sequence[BusyCounter], glance: GatewayGlance, limit_from: Callable[[CounterKey], str]
) -> list[Json]:
    """One object for each counter, worst first."""
    tenants = []
    for busy in busiest:
        reading = glance.readings.get(busy.key)
        use = glance.uses.get(busy.key, _NO_USE)
        tenants.append(
            _tenant(
                busy,
                reading,
                use,
                is_enforced=busy.key.quota_type in glance.enforced,
                limit_from=limit_from(busy.key),
                at_ms=glance.at_ms,
            )
        )
    tenants.sort(key=_how_bad, reverse=True)
    return tenants


def producer_ids_view(glance: ProducerIdGlance) -> Json:
    """What is known of producer ids, and who asks for most of them."""
    return {
        "users": glance.users,
        "distinct_ids": glance.distinct_ids_in_all,
        "window_ms": glance.window_ms,
        "refused_partitions": glance.refused_partitions,
        "untracked": glance.untracked,
        "asked_for": [
            {
                "user": init.user,
                "rate_per_s": finite(init.per_s),
                "idempotent": init.idempotent,
                "transactional": init.transactional,
                "distinct_ids": glance.distinct_ids.get(init.user),
            }
            for init in glance.inits[:_ASKERS_SHOWN]
        ],
    }


def _how_bad(tenant: Json) -> tuple[float, float]:
    held_ms = max(tenant["mute_left_ms"], tenant["wait_ms"]) if tenant["enforced"] else 0
    return held_ms, tenant["share"] or 0.0


def _tenant(
    busy: BusyCounter,
    reading: Reading | None,
    use: Use,
    *,
    is_enforced: bool,
    limit_from: str,
    at_ms: int,
) -> Json:
    key = busy.key
    # Of one that is put away or gone, what its last decision was held against.
    limit = busy.limit if reading is None else reading.limit
    rate = busy.rate if reading is None or reading.rate is None else reading.rate
    wait_ms = 0 if reading is None else max(0, reading.throttle_ms, reading.turn_in_ms)
    held_ms = max(use.mute_left_ms, wait_ms) if is_enforced else 0
    return {
        **_names(key.tags),
        "quota_type": key.quota_type,
        "node_id": key.node_id,
        "unit": FACTS[key.quota_type].unit,
        "enforced": is_enforced,
        "rate_per_s": finite(rate),
        "limit_per_s": finite(limit),
        "share": finite(rate / limit) if limit else None,
        "wait_ms": wait_ms,
        "throttled_until_ms": at_ms + held_ms if held_ms else None,
        "connections": use.connections,
        "muted_connections": use.muted,
        "mute_left_ms": use.mute_left_ms,
        "requests_waiting": 0 if reading is None else reading.waiting,
        "last_refusal_ms": busy.refused_ms,
        "last_decision_ms": busy.last_ms,
        "limit_from": limit_from,
        **_counter(reading),
    }


def _counter(reading: Reading | None) -> Json:
    if reading is None:
        return {"algorithm": None, "blocked": False, "factor": 1.0, "tokens": None, "debt_ms": None}
    return {
        "algorithm": reading.algorithm,
        "blocked": reading.is_blocked,
        "factor": reading.factor,
        "tokens": finite(reading.tokens),
        "debt_ms": finite(reading.debt_ms),
    }


def _names(tags: str) -> Json:
    """The names of a counter, plain; tags of a callback of one's own as they are."""
    user, client_id = tag_value(tags, USER_TAG), tag_value(tags, CLIENT_ID_TAG)
    return {"tags": tags, "user": user or None, "client_id": client_id or None}


class Origins(Protocol):
    """Where limits come from, and what would change them."""

    def of_entity(self, entity: QuotaEntity) -> str:
        """E.g. ``quotas.toml:4``."""
        ...

    def to_change(self, entity: QuotaEntity, config_key: str, *, is_configured: bool) -> str:
        """What to do to give an entity another quota, or its first one."""
        ...


def explanation_view(
    explained: Sequence[QuotaExplanation],
    uses: Mapping[CounterKey, Use],
    origins: Origins,
    at_ms: int,
) -> list[Json]:
    """One object for each quota type."""
    return [_explanation(one, uses, origins, at_ms) for one in explained]


def id_explanation_view(one: IdExplanation, user: str, origins: Origins, at_ms: int) -> Json:
    """The object for the quota on new producer ids."""
    entity, reading = one.decided_by, one.reading
    is_held = one.enforced and reading.throttle_ms > 0
    return {
        "quota_type": QuotaType.PRODUCER_ID,
        "config_key": PRODUCER_IDS_KEY,
        "enforced": one.enforced,
        "counted": one.exists,
        "decided_by": None if entity is None else _entity(entity),
        "limit_from": "" if entity is None else origins.of_entity(entity),
        "change": origins.to_change(
            entity or QuotaEntity(user=user), PRODUCER_IDS_KEY, is_configured=entity is not None
        ),
        "rate_per_window": reading.rate,
        "window_ms": one.window_ms,
        "distinct_ids": reading.distinct_ids,
        "new_ids": reading.new_ids,
        "tokens": None if reading.rate is None else reading.tokens,
        "new_id_refused_ms": reading.throttle_ms,
        "new_id_refused_until_ms": at_ms + reading.throttle_ms if is_held else None,
        "learns_until_ms": one.learns_until_ms or None,
        "refused_partitions": one.refused_partitions,
    }


def _explanation(
    one: QuotaExplanation, uses: Mapping[CounterKey, Use], origins: Origins, at_ms: int
) -> Json:
    facts = FACTS[one.quota_type]
    limit_from = origins.of_entity
    return {
        "quota_type": one.quota_type,
        "config_key": facts.config_key,
        "unit": facts.unit,
        "value_unit": facts.value_unit,
        "enforced": one.enforced,
        "counted": one.exists,
        "asked": one.tags is not None,
        "levels": [_level(level, one.decided_by, limit_from) for level in one.levels],
        "decided_by": None if one.decided_by is None else _entity(one.decided_by),
        "limit_from": "" if one.decided_by is None else limit_from(one.decided_by),
        "change": _change(one, origins),
        "tags": _plain(one.tags),
        "limit_per_s": finite(one.limit),
        "algorithm": one.algorithm,
        "counters": [
            _outlook(counter, uses, is_enforced=one.enforced, at_ms=at_ms)
            for counter in one.counters
        ],
    }


def _change(one: QuotaExplanation, origins: Origins) -> str:
    """What would give this client another quota; empty where a callback decides."""
    config_key = FACTS[one.quota_type].config_key
    if not one.levels or config_key is None:
        return ""
    entities = {level.number: level.entity for level in one.levels}
    of_user = entities[_USER_LEVEL]
    # A quota of all who have not logged in would be too much.
    is_nobody = of_user is not None and of_user.user == ANONYMOUS
    of_client = entities[_CLIENT_LEVEL] if is_nobody else None
    entity = one.decided_by or of_client or of_user
    if entity is None:
        return ""
    return origins.to_change(entity, config_key, is_configured=one.decided_by is not None)


def _level(
    level: Level, decided_by: QuotaEntity | None, limit_from: Callable[[QuotaEntity], str]
) -> Json:
    is_configured = level.limit is not None and level.entity is not None
    return {
        "level": level.number,
        "entity": None if level.entity is None else _entity(level.entity),
        "limit_per_s": finite(level.limit),
        "limit_from": limit_from(level.entity) if is_configured and level.entity else "",
        "decides": is_configured and level.entity == decided_by,
    }


def _outlook(
    counter: CounterOutlook, uses: Mapping[CounterKey, Use], *, is_enforced: bool, at_ms: int
) -> Json:
    reading = counter.reading
    use = uses.get(CounterKey(reading.quota_type, reading.tags, reading.node_id), _NO_USE)
    held_ms = max(use.mute_left_ms, counter.wait_ms) if is_enforced else 0
    return {
        "node_id": None if counter.is_new else reading.node_id,
        "new": counter.is_new,
        "outlook": counter.outlook if is_enforced else "passes",
        "outlook_if_enforced": counter.outlook,
        "wait_ms": counter.wait_ms,
        "throttled_until_ms": at_ms + held_ms if held_ms else None,
        "room": counter.room,
        "configured_limit_per_s": finite(reading.configured_limit),
        "limit_per_s": finite(reading.limit),
        "rate_per_s": finite(reading.rate),
        "samples": reading.samples,
        "sample_ms": reading.sample_ms,
        "connections": use.connections,
        "muted_connections": use.muted,
        "mute_left_ms": use.mute_left_ms,
        "requests_waiting": reading.waiting,
        "last_decision_ms": None if counter.is_new else reading.last_ms,
        **_counter(reading),
    }


def _entity(entity: QuotaEntity) -> Json:
    return {
        "text": str(entity),
        "user": _name(entity.user),
        "client_id": _name(entity.client_id),
        "user_default": entity.user is DEFAULT,
        "client_id_default": entity.client_id is DEFAULT,
    }


def _name(name: EntityName) -> str | None:
    return name if isinstance(name, str) else None


def _plain(tags: Tags | None) -> Json | None:
    return None if tags is None else dict(tags)


def finite(value: float | None) -> float | None:
    """JSON knows no infinity."""
    return value if value is not None and isfinite(value) else None
