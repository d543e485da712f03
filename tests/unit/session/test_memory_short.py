"""While connections hold much, answers that would be kept until they are whole go on while they arrive."""

import pytest

from kvota.testing.frames import fetch, fetch_answer
from kvota.testing.stage import Cluster, Stage, quotas

CHUNK_BYTES = 16_384
FETCHED = fetch_answer(13, records=b"f" * 100_000)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_fetch_answer_of_100_kb(is_short: bool) -> None:
    cluster = Cluster(quotas(FETCH=1e12))
    stage = Stage(cluster)
    stage.client(fetch(13))
    cluster.shared.is_memory_short = is_short

    for at in range(0, len(FETCHED) - CHUNK_BYTES, CHUNK_BYTES):
        stage.broker(FETCHED[at : at + CHUNK_BYTES])
        assert len(stage.to_client) == (at + CHUNK_BYTES if is_short else 0)
    stage.broker(FETCHED[at + CHUNK_BYTES :])

    assert stage.to_client == FETCHED
    assert [row.value for row in cluster.rows] == [len(FETCHED) - 4 - 4 - 1 + 4]
    assert stage.machine.idle
