"""Marks each row with what is one bit of it. Pure."""

import re

import numpy as np
import pyarrow as pa

from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, sanitise
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Part, ints, one_array, texts_of
from kvota.pipeline.packing_choice import NAMES_OF, Packing

# The tags of Kafka's own counters; groups and shares have others.
_KAFKA_TAGS = re.compile(f"{CLIENT_ID_TAG}=([^,]*),{USER_TAG}=([^,]*)")


def marks_of(table: pa.Table, quota_type: Part, complete: Array, packing_: Packing) -> Array:
    """Return the bits that ``chunk_schema`` names, of each row."""
    outcome, algorithm = texts_of(table, "outcome"), texts_of(table, "algorithm")
    of_outcome = np.array([s.outcome_code(text) for text in outcome.texts])
    of_algorithm = np.array(
        [[_algorithm(kind, text) for text in algorithm.texts] for kind in quota_type.texts]
    )
    marks: Array = of_outcome[outcome.codes] | of_algorithm[quota_type.codes, algorithm.codes]
    marks |= complete * s.COMPLETE
    marks |= enforced_in(table) * s.ENFORCED
    if packing_.by != "counter" and "tags" in packing_.further:
        marks |= _limit_binds(table, packing_.by) * s.LIMIT_BINDS
    if QuotaType.CONTROLLER_MUTATION in quota_type.texts:
        marks |= _strict(table, quota_type) * s.STRICT
    return marks


def enforced_in(table: pa.Table) -> Array:
    """Return for each row whether it was enforced."""
    if "enforced" not in table.column_names:
        return np.zeros(table.num_rows, np.bool_)
    column = one_array(table["enforced"]).fill_null(False)  # noqa: FBT003
    enforced: Array = column.to_numpy(zero_copy_only=False)
    return enforced


def _limit_binds(table: pa.Table, by: s.By) -> Array:
    """Return for each row whether it was charged on a counter of just these names, as Kafka tags them."""
    tags = texts_of(table, "tags")
    parsed = [_KAFKA_TAGS.fullmatch(text) for text in tags.texts]
    binds: Array = np.ones(table.num_rows, np.bool_)
    for column, group in (("client_id", 1), ("user", 2)):
        values = [None if found is None else found[group] for found in parsed]
        if column not in NAMES_OF[by]:
            binds &= np.array([value == "" for value in values])[tags.codes]
            continue
        names = texts_of(table, column)
        code_of = {sanitise(text): code for code, text in enumerate(names.texts) if text}
        codes = np.array([code_of.get(value or "", -1) for value in values])
        binds &= codes[tags.codes] == names.codes
    return binds


def _algorithm(quota_type: str, text: str) -> int:
    """Return the mark; rows from before there was more than one have none: it was the type's first."""
    if not text and quota_type in FACTS:
        text = FACTS[QuotaType(quota_type)].algorithms[0]
    return s.algorithm_mark(text)


def _strict(table: pa.Table, quota_type: Part) -> Array:
    key, version = ints(table, "api_key", -1), ints(table, "api_version", -1)
    is_mutation = np.array([kind == QuotaType.CONTROLLER_MUTATION for kind in quota_type.texts])
    strict: Array = is_mutation[quota_type.codes]
    is_new = np.zeros(table.num_rows, np.bool_)
    for api, since in STRICT_FROM.items():
        is_new |= (key == api) & (version >= since)
    return strict & is_new
