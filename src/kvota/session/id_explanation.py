"""What becomes of a user's next new producer id, and why; nothing is moved by looking."""

from dataclasses import dataclass

from kvota.engine.producer_ids import ProducerIdReading, ProducerIds
from kvota.model.quota_entity import QuotaEntity
from kvota.session.producer_id_quota import ProducerIdQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class IdExplanation:
    """The quota on new producer ids for one user.

    Attributes:
        enforced: false: shadow mode, no id is refused.
        exists: false: nobody has such a quota, and nothing is counted.
        decided_by: the entity whose quota it is; None: no quota matches.
        reading: what is seen of the user under the rate that is in force now; its ``throttle_ms`` is how long
            a new id would be refused, if it is enforced. 0: it passes.
        window_ms: in which so many new ids may come.
        learns_until_ms: until then (Unix ms) new ids pass uncounted, as what was known is lost; 0: no such time.
        refused_partitions: where a batch of this user was refused that has not gone on yet: nothing overtakes it.
    """

    enforced: bool
    exists: bool
    decided_by: QuotaEntity | None
    reading: ProducerIdReading
    window_ms: int
    learns_until_ms: int
    refused_partitions: int


def explain_ids(quota: ProducerIdQuota, user: str, now_ms: int, *, enforced: bool) -> IdExplanation:
    """Explain it for a user, known or not."""
    ids = quota.ids
    reading = _reading(ids, user, quota.rate(user), now_ms)
    learns_until_ms = ids.learns_until_ms if now_ms < ids.learns_until_ms else 0
    if learns_until_ms:
        reading = reading._replace(throttle_ms=0)
    return IdExplanation(
        enforced=enforced,
        exists=quota.has_rates,
        decided_by=quota.deciding_entity(user),
        reading=reading,
        window_ms=ids.memory.layering.window_ms,
        learns_until_ms=learns_until_ms,
        refused_partitions=len(quota.refused_batches.users.get(user, ())),
    )


def _reading(ids: ProducerIds, user: str, rate: float | None, now_ms: int) -> ProducerIdReading:
    """What there would be to see of a user if it produced now: another rate counts from its next request on."""
    imagined = ProducerIds(ids.memory.layering)
    seen = imagined.users[user] = imagined.new_user(rate, now_ms)
    there = ids.users.get(user)
    if there is not None:
        seen.layers, seen.recent = there.layers, there.recent
        if there.bucket is not None:
            seen.restore_owed(*there.bucket.owed)
    reading = imagined.reading(user, now_ms)
    assert reading is not None
    return reading
