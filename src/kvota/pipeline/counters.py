"""What a counter's name says: its parts, and what follows from its quota type."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kvota.model.quota_type import (
    BYTE_RATE_TYPES,
    FACTS,
    Algorithm,
    QuotaType,
    types_counted_by,
)
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tag_value
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array

# The quota types that can be replayed; those of newer gateways cannot. Bandwidth can be counted by
# either algorithm, request time by Kafka's sampled rate only and mutations by its token bucket. New
# producer ids have a bucket of their own, and kernels of their own.
BANDWIDTH_TYPES = tuple(kind.value for kind in BYTE_RATE_TYPES)
REQUEST_TIME_TYPES = (QuotaType.REQUEST.value,)
BUCKET_TYPES = tuple(kind.value for kind in types_counted_by(Algorithm.TOKEN_BUCKET))
REPLAYED_TYPES = (*BANDWIDTH_TYPES, *REQUEST_TIME_TYPES, *BUCKET_TYPES)
ID_TYPES = (QuotaType.PRODUCER_ID.value,)
JUDGED_TYPES = (*REPLAYED_TYPES, *ID_TYPES)

# The columns that name a counter in tables for people.
NAME = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("gateway", pa.string()),
        ("run_id", pa.string()),
        ("node_id", pa.int32()),
        ("quota_type", pa.string()),
        ("tags", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("enforced", pa.bool_()),
    ]
)


# The same counters come range by range, and the same tags broker by broker.
_tag_value = lru_cache(1 << 16)(tag_value)


def named(names: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``NAME`` for counters; user and client_id are null where they are no part of the counter.

    ``enforced`` is null where rows of shadow mode and others are not kept apart.
    """
    tags = names.column("tags").to_pylist()
    texts = [
        pa.array([_tag_value(text, key) or None for text in tags], pa.string())
        for key in (USER_TAG, CLIENT_ID_TAG)
    ]
    parts = [names.column(name).cast(NAME.field(name).type) for name in NAME.names[:-3]]
    enforcing = names.column("enforcing").to_numpy()
    enforced = pa.array(enforcing == s.ENFORCED_ROWS, mask=enforcing == s.ALL_ROWS)
    return pa.RecordBatch.from_arrays([*parts, *texts, enforced], schema=NAME)


def is_of(names: pa.RecordBatch, *quota_types: str) -> Array:
    """Return for each counter whether it is of one of these quota types."""
    return _of_type(names, dict.fromkeys(quota_types, 1.0), 0.0) > 0


def floors(names: pa.RecordBatch) -> Array:
    """Return for each counter the limit below which nothing passes freely."""
    return _of_type(names, {kind: FACTS[QuotaType(kind)].floor for kind in FACTS}, 0.0)


def _of_type(names: pa.RecordBatch, numbers: Mapping[str, float], other: float) -> Array:
    types = names.column("quota_type").dictionary_encode()
    known = [numbers.get(text, other) for text in types.dictionary.to_pylist()]
    found: Array = np.array(known or [other])[types.indices.to_numpy(zero_copy_only=False)]
    return found
