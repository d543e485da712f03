"""Marks each row with what is one bit of it. Pure."""

import numpy as np
import pyarrow.compute as pc

from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Events, flags, ints, texts_of
from kvota.pipeline.packing_choice import NAMES_OF, Packing
from kvota.record.tag_texts import kafka_names, places_in, sanitised


def marks_of(events: Events, complete: Array | int, packing_: Packing) -> Array | int:
    """Return the bits that ``chunk_schema`` names: of each row, or of all where they are the same.

    Args:
        events: in which texts have one dictionary.
        complete: of all, or of each run of rows.
        packing_: how counters are made.
    """
    of_runs = _marks_of_runs(events.of_runs, complete, packing_)
    marks = of_runs if isinstance(of_runs, int) else events.spread(of_runs)
    outcome = texts_of(events, "outcome")
    of_outcome = np.array([s.outcome_code(text) for text in outcome.values])
    every = [_by_code(of_outcome, outcome.codes)]
    if not packing_.is_summed:
        every += _how_counted(events)
    for part in every:
        marks = marks | part
    return marks


def _how_counted(events: Events) -> list[Array | int]:
    """Return the bits that say how each row was counted."""
    algorithm, quota_type = texts_of(events, "algorithm"), texts_of(events.of_runs, "quota_type")
    of_algorithm = np.array(
        [_algorithm(kind, text) for kind in quota_type.values for text in algorithm.values]
    )
    kinds = events.spread(quota_type.codes)
    found = [_by_code(of_algorithm, kinds, len(algorithm.texts), algorithm.codes)]
    if QuotaType.CONTROLLER_MUTATION in quota_type.values:
        found.append(_where(_strict(events), s.STRICT))
    return found


def _marks_of_runs(events: Events, complete: Array | int, packing_: Packing) -> Array | int:
    """Return the bits that are the same in all rows of a run."""
    every = [complete * s.COMPLETE, _where(flags(events, "enforced"), s.ENFORCED)]
    if packing_.by != "counter" and "tags" in packing_.further:
        every += _limit_marks(events, packing_.by)
    marks: Array | int = 0
    for part in every:
        marks = marks | part
    return marks


def _by_code(
    values: Array, codes: Array, further: int = 1, further_codes: Array | int = 0
) -> Array | int:
    """Return for each row the value of its code, or pair of codes; one number where all values are the same."""
    if (values == values[0]).all():
        return int(values[0])
    found: Array = values[codes if further == 1 else codes * further + further_codes]
    return found


def _where(has_mark: Array, mark: int) -> Array | int:
    """Return the mark for each row that has it; one number where all rows are the same."""
    if has_mark.all():
        return mark
    return has_mark * mark if has_mark.any() else 0


def _limit_marks(events: Events, by: s.By) -> list[Array | int]:
    """Return the bits that say of each row whether it was charged on a counter of just these names, and whether Kafka has no such tags."""
    tags = texts_of(events, "tags")
    client_ids, users = kafka_names(tags.texts)
    is_other = users.is_null().to_numpy(zero_copy_only=False)
    others = _by_code(is_other * s.OTHER_TAGS, tags.codes)
    if by == "tags":
        return [s.LIMIT_BINDS, others]
    binds: Array | None = None
    for column, told in (("client_id", client_ids), ("user", users)):
        if column not in NAMES_OF[by]:
            is_empty = pc.equal(told, "").fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
            if is_empty.all():
                continue
            here: Array = is_empty[tags.codes]
        else:
            names = texts_of(events, column)
            here = places_in(told, sanitised(names.texts))[tags.codes] == names.codes
        binds = here if binds is None else binds & here
    return [s.LIMIT_BINDS if binds is None else _where(binds, s.LIMIT_BINDS), others]


def _algorithm(quota_type: str, text: str) -> int:
    """Return the mark; rows from before there was more than one have none: it was the type's first."""
    if not text and quota_type in FACTS:
        text = FACTS[QuotaType(quota_type)].algorithms[0]
    return s.algorithm_mark(text)


def _strict(events: Events) -> Array:
    quota_type = texts_of(events, "quota_type")
    key, version = ints(events, "api_key", -1), ints(events, "api_version", -1)
    is_mutation = np.array([kind == QuotaType.CONTROLLER_MUTATION for kind in quota_type.values])
    strict: Array = is_mutation[quota_type.codes]
    is_new = np.zeros(events.rows, np.bool_)
    for api, since in STRICT_FROM.items():
        is_new |= (key == api) & (version >= since)
    return strict & is_new
