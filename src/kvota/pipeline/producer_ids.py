"""New producer ids in a record: which came, and what other quotas would have made of them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from kvota.pipeline.chunks import Chunks
from kvota.pipeline.counters import ID_TYPES
from kvota.pipeline.grid import RESULT
from kvota.pipeline.producer_id_stage import CAME, came, id_grid_stage
from kvota.pipeline.replay_tables import check_candidates

# The columns that chunks need for both, beside those they always have.
ID_COLUMNS = ("producer_id",)


def ids_that_came(chunks: Chunks) -> DataFrame:
    """Return which new producer ids came, a row per counter.

    In:  chunks by user, client id or both, or by tags, with ``ID_COLUMNS``.
    Out: counter_id long, user, client_id string (null: not part of the level), tags string, enforced boolean, new_ids long (let
         in, each at the cost of a token: different ones, but that an id that was silent for a window is new again),
         most_in_window long (the most of them within the window), distinct_ids long (let in or refused, each once),
         unnamed_ids long (in rows of many, which name none: a hostile request), refused_ids long (each once),
         refusals long (as often as they came), window_ms long, limit_last double (per second), start_us, end_us long.
    """
    return chunks.of_types(ID_TYPES).stage(came, CAME)


def replay_ids(chunks: Chunks, candidates: Sequence[float]) -> DataFrame:
    """Replay the new producer ids under candidate quotas in the open loop; one row per counter and candidate.

    An id that a candidate has let in is known to it when it comes again, as long as the gateway itself did not know
    it. What the record cannot tell: when an id that the gateway has let in, and a candidate refuses, would have come
    again.

    In:  chunks with ``ID_COLUMNS``.
    Out: as ``replay``; events and over count rows (an id, or many of one request that nobody names), rejected ids.

    Args:
        chunks: what was recorded.
        candidates: new ids per window.

    Raises:
        UsageError: a candidate is not above 0.
    """
    check_candidates(candidates)
    return chunks.of_types(ID_TYPES).stage(id_grid_stage(tuple(candidates)), RESULT)
