"""What a request announces that is kept whole while it is decided on, of which only the head is here."""

from collections.abc import Callable, Mapping
from functools import partial

from kvota.engine import QuotaEngine
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.session.route import QUOTA_TYPE_OF_KEY
from kvota.wire import alter_configs, client_quotas, metadata_requests, mutations
from kvota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
)
from kvota.wire.headers import REQUEST_HEAD_BYTES
from kvota.wire.varint import Bytes

# A request's head with its client id, and tags that no client sends yet.
HEAD_BYTES_MAX = 4_096

# How many things each announces, by API key.
ANNOUNCED: Mapping[int, Callable[[Bytes], int]] = {
    **{
        key: partial(mutations.announced_topics, key=key)
        for key, quota_type in QUOTA_TYPE_OF_KEY.items()
        if quota_type is QuotaType.CONTROLLER_MUTATION
    },
    # Of clients for whom a limit says how many of its topics may be created.
    METADATA: metadata_requests.announced_names,
    # An entity takes what two topics take.
    ALTER_CLIENT_QUOTAS: lambda head: 2 * client_quotas.announced_entries(head),
    ALTER_CONFIGS: alter_configs.announced_items,
    INCREMENTAL_ALTER_CONFIGS: alter_configs.announced_items,
}


def announced_parts(
    engine: QuotaEngine, user: str, key: int, head: Bytes, now_ms: int
) -> int | None:
    """How many things a request of this user announces with its first bytes; None: it is not kept whole.

    Raises:
        ProtocolError: it announces more topics, or entities, than are taken.
    """
    if key == METADATA and not limits_mutations(engine, user, head, now_ms):
        return None
    return ANNOUNCED[key](head)


def limits_mutations(engine: QuotaEngine, user: str, frame: Bytes, now_ms: int) -> bool:
    """True where the client of this request has a limit on topic mutations, or where nobody knows yet."""
    mutation = QuotaType.CONTROLLER_MUTATION
    if engine.callback.answers_at_once and not engine.callback.enabled(mutation):
        return False
    length = int.from_bytes(frame[REQUEST_HEAD_BYTES - 2 : REQUEST_HEAD_BYTES], "big", signed=True)
    client_id = bytes(frame[REQUEST_HEAD_BYTES : REQUEST_HEAD_BYTES + max(0, length)])
    name = client_id.decode("utf-8", "replace")
    lane = engine.lane(mutation, CLUSTER_NODE_ID, user, name, now_ms)
    return lane is None or lane.limit is not None
