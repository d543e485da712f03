"""Encodes names and reads the tags of Kafka's counters, many at once: as ``model.tags`` has them. Pure."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, sanitise

_Array = np.ndarray[Any, np.dtype[Any]]

_PLAIN = r"\A[A-Za-z0-9._-]*\z"
# Groups and shares have other tags.
_KAFKAS = rf"\A{CLIENT_ID_TAG}=(?P<client_id>[^,]*),{USER_TAG}=(?P<user>[^,]*)\z"


def sanitised(names: pa.StringArray) -> pa.StringArray:
    """Return each name as ``model.tags.sanitise`` encodes it.

    >>> sanitised(pa.array(["alice", "team a", ""])).to_pylist()
    ['alice', 'team%20a', '']
    """
    is_odd = pc.invert(pc.match_substring_regex(names, _PLAIN))
    odd = [sanitise(name) for name in names.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(names, is_odd, pa.array(odd, pa.string())) if odd else names


def kafka_names(tags: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the client id and the user in each text of Kafka's own tags, both encoded; null: they are others.

    >>> [
    ...     part.to_pylist()
    ...     for part in kafka_names(pa.array(["client-id=my%20app,user=alice", "group=a"]))
    ... ]
    [['my%20app', None], ['alice', None]]
    """
    found = pc.extract_regex(tags, _KAFKAS)
    return pc.struct_field(found, "client_id"), pc.struct_field(found, "user")


def places_in(texts: pa.StringArray, among: pa.StringArray) -> _Array:
    """Return the place of each text among others; -1 where it is null, empty or none of them.

    >>> places_in(pa.array(["b", None, "", "c"]), pa.array(["", "a", "b"])).tolist()
    [2, -1, -1, -1]
    """
    is_named = pc.not_equal(texts, "").fill_null(False)  # noqa: FBT003
    found = pc.index_in(texts, among).fill_null(-1)
    places: _Array = pc.if_else(is_named, found, -1).to_numpy(zero_copy_only=False)
    return places
